"""Spectra and band attribution of the classes as SVG paths."""

from __future__ import annotations

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


def draw_spectra(classes: ClassesRecord) -> list[Drawing]:
    """Drawings of all classes that have labelled pixels."""
    positions = band_positions(classes)
    span = float(positions.max() - positions.min())
    x = (positions - positions.min()) / span * WIDTH if span else np.full(positions.size, WIDTH / 2)
    pieces, scene = unbroken(positions), np.asarray(classes.mean_spectrum)
    unit = "band {:.0f}" if classes.wavelengths_nm is None else "{:.0f} nm"
    names = [unit.format(position) for position in positions]
    drawings = []
    for entry in classes.classes:
        if entry.spectrum is None:
            continue
        mean, spread = np.asarray(entry.spectrum), np.asarray(entry.spread)
        curves = np.stack([mean, scene, mean - spread, mean + spread])  # (4, bands)
        low, high = curves.min(), curves.max()
        line, of_scene, bottom, top = HEIGHT - (curves - low) * (HEIGHT / (high - low) if high > low else 1.0)
        area = "".join(_path(np.r_[x[p], x[p][::-1]], np.r_[top[p], bottom[p][::-1]]) + "Z" for p in pieces)
        bars = None if entry.share is None else _draw_bars(x, np.asarray(entry.share), names)
        own, dashed = ("".join(_path(x[p], y[p]) for p in pieces) for y in (line, of_scene))
        drawings.append(Drawing(entry, own, dashed, area, bars))
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
