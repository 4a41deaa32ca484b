"""Spectra and band attribution of the classes as SVG paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.report.plots import unbroken
from hypercaps.report.signatures import ClassesRecord, ClassRecord

WIDTH, HEIGHT = 320.0, 110.0  # of the spectrum, in SVG units
BARS_HEIGHT = 84.0  # of the attribution below it
_GAP = 6.0  # between the two

Floats = npt.NDArray[np.float64]


class Axis(NamedTuple):
    """The common horizontal axis."""

    unit: str  # "nm" or "band"
    ticks: tuple[str, ...]  # first, middle, last


class Bars(NamedTuple):
    """Band attribution of a class."""

    positive: str  # path of the bars for the class
    negative: str  # path of the bars against it
    zero: float  # y of the zero line
    top: str  # up to three bands of highest attribution


class Drawing(NamedTuple):
    """A class: its record and the paths of its drawing."""

    entry: ClassRecord
    line: str  # mean of the class
    scene: str  # mean of the scene
    spread: str  # area of one standard deviation around the mean of the class
    bars: Bars | None

    @property
    def ticks_y(self) -> float:
        return HEIGHT + (BARS_HEIGHT + 2 * _GAP if self.bars else 0) + 12

    @property
    def height(self) -> float:
        return self.ticks_y + 8


def band_positions(classes: ClassesRecord) -> Floats:
    """Wavelengths in nm, or band numbers from 1."""
    waves = classes.wavelengths_nm
    return np.arange(1.0, classes.scene.bands + 1) if waves is None else np.asarray(waves, dtype=float)


def make_axis(classes: ClassesRecord) -> Axis:
    x = band_positions(classes)
    ticks = tuple(f"{value:.0f}" for value in np.linspace(x.min(), x.max(), 3))
    return Axis("band" if classes.wavelengths_nm is None else "nm", ticks)


@dataclass(frozen=True, eq=False)
class BandAxis:
    """Where the bands lie in a drawing."""

    x: Floats  # (bands,) in SVG units
    pieces: list[npt.NDArray[np.intp]]  # runs of bands without a gap

    @classmethod
    def of(cls, classes: ClassesRecord) -> BandAxis:
        positions = band_positions(classes)
        span = float(positions.max() - positions.min())
        x = (positions - positions.min()) / span * WIDTH if span else np.full(positions.size, WIDTH / 2)
        return cls(x, unbroken(positions))

    def line(self, y: Floats) -> str:
        """The path of a spectrum (bands,) in SVG units."""
        return "".join(_path(self.x[p], y[p]) for p in self.pieces)

    def area(self, top: Floats, bottom: Floats) -> str:
        """The path of the area between two spectra (bands,)."""
        x = self.x
        return "".join(_path(np.r_[x[p], x[p][::-1]], np.r_[top[p], bottom[p][::-1]]) + "Z" for p in self.pieces)


def to_height(curves: Floats) -> Floats:
    """Curves (n, bands) in SVG units, on one scale that fills the height of a drawing."""
    low, high = curves.min(), curves.max()
    return np.asarray(HEIGHT - (curves - low) * (HEIGHT / (high - low) if high > low else 1.0))


def draw_spectra(classes: ClassesRecord) -> list[Drawing]:
    """Drawings of all classes that have labelled pixels."""
    axis, scene = BandAxis.of(classes), np.asarray(classes.mean_spectrum)
    unit = "band {:.0f}" if classes.wavelengths_nm is None else "{:.0f} nm"
    names = [unit.format(position) for position in band_positions(classes)]
    drawings = []
    for entry in classes.classes:
        if entry.spectrum is None:
            continue
        mean, spread = np.asarray(entry.spectrum), np.asarray(entry.spread)
        line, of_scene, bottom, top = to_height(np.stack([mean, scene, mean - spread, mean + spread]))  # (4, bands)
        bars = None if entry.share is None else _draw_bars(axis.x, np.asarray(entry.share), names)
        drawings.append(Drawing(entry, axis.line(line), axis.line(of_scene), axis.area(top, bottom), bars))
    return drawings


def _draw_bars(x: Floats, share: Floats, names: list[str]) -> Bars:
    """Bars of the attribution (bands,), scaled to its largest value."""
    largest = float(np.abs(share).max()) or 1.0
    width, zero = 0.8 * WIDTH / share.size, HEIGHT + BARS_HEIGHT / 2 + _GAP
    paths = {True: "", False: ""}  # for the class, against it
    for at, value in zip(x, share, strict=True):
        if abs(value) > largest / 200:
            height = -value / largest * BARS_HEIGHT / 2
            paths[bool(value > 0)] += f"M{at - width / 2:.1f} {zero:.1f}h{width:.2f}v{height:.2f}h{-width:.2f}Z"
    top = [names[band] for band in np.argsort(-share)[:3] if share[band] > 0]
    return Bars(paths[True], paths[False], zero, ", ".join(top))


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
