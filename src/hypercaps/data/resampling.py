"""A scene brought to the bands of another sensor, window by window, and what differs between two lists of bands.

A new band is a weighted sum of a few bands of the scene: of the two beside it (linear interpolation) or, where its
width is known and the scene's bands are finer, of all that it would have seen (a Gaussian of that width).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.scene import PixelReader, Pixels, Scene
from hypercaps.errors import DataWarning, SceneError

Floats = npt.NDArray[np.float64]

# Bands count as the same within 1 nm or a tenth of their spacing: products of one sensor differ by tenths of a nm
# from day to day, and its smile by about one across the swath.
TOLERANCE_NM = 1.0
TOLERANCE_SHARE = 0.1
_REACH = 1.5  # how far a Gaussian is followed, in widths: it has come down to 0.2 % there
_FAR = 1.5  # spacings of the wanted bands: one whose nearest band is farther off is a guess, and the user is told
_AT_ONCE = 4096  # pixels: bands x pixels stay near the cache
_LISTED = 4  # bands that are named before the rest is counted


class Tap(NamedTuple):
    """What a new band is made of."""

    bands: npt.NDArray[np.intp]  # (k,) of the scene
    weights: npt.NDArray[np.float32]  # (k,) sum to 1; a single one is 1


def resample(scene: Scene, wavelengths: npt.ArrayLike, fwhm: npt.ArrayLike | None = None) -> Scene:
    """The scene with bands at ``wavelengths`` (nm) in their order, as wide as ``fwhm`` (nm) where that is known.

    Nothing is read now; every window is resampled when it is read, each pixel on its own: its values do not depend on
    the window, to the last bit. A wavelength that the scene already has keeps its values, unless a wider band is
    wanted there. Which pixels are valid does not change.
    """
    source, wanted = usable_wavelengths(scene.wavelengths), np.asarray(wavelengths, dtype=np.float64)
    if source is None:
        raise SceneError(
            f"scene {scene.name!r} has no wavelengths and can't be resampled: give it those of its {scene.bands} bands"
        )
    if wanted.ndim != 1 or wanted.size == 0 or not np.isfinite(wanted).all():
        raise SceneError("the wavelengths to resample to must be a list of numbers in nm")
    widths = None if fwhm is None else np.asarray(fwhm, dtype=np.float64)
    if widths is not None and widths.shape != wanted.shape:
        raise SceneError(f"{widths.size} band widths were given for {wanted.size} wavelengths: give one for each")
    if np.array_equal(source, wanted) and (widths is None or scene.fwhm is None):
        return scene  # the same list is the same sensor: its bands are as wide as they are
    order = np.argsort(source, kind="stable")
    _check_reach(scene, source[order], wanted)
    taps = _taps(source[order], None if scene.fwhm is None else scene.fwhm[order], wanted, widths)
    return replace(
        scene,
        shape=(scene.rows, scene.cols, wanted.size),
        dtype=np.dtype(np.float32),
        reader=_reader(scene, [Tap(order[tap.bands], tap.weights) for tap in taps]),
        wavelengths=wanted,
        fwhm=widths,
    )


def _reader(scene: Scene, taps: Sequence[Tap]) -> PixelReader:
    def read(rows: slice, cols: slice) -> Pixels:
        pixels = scene.read(rows, cols)
        return Pixels(_weighted(pixels.values, taps), pixels.valid)

    return read


def _weighted(values: npt.NDArray[np.float32], taps: Sequence[Tap]) -> npt.NDArray[np.float32]:
    """(h, w, bands of the scene) -> (h, w, new bands)

    One tap after the other over many pixels: a matrix product would add up in another order for other sizes.
    """
    flat = values.reshape(-1, values.shape[2])  # (N, bands)
    made = np.empty((len(flat), len(taps)), dtype=np.float32)
    for first in range(0, len(flat), _AT_ONCE):
        by_band = np.ascontiguousarray(flat[first : first + _AT_ONCE].T)  # (bands, n)
        rows = np.empty((len(taps), by_band.shape[1]), dtype=np.float32)
        part = np.empty_like(rows[0])
        with np.errstate(over="ignore", invalid="ignore"):  # invalid pixels may hold anything
            for row, (bands, weights) in zip(rows, taps, strict=True):
                if bands.size == 1:
                    row[:] = by_band[bands[0]]
                    continue
                np.multiply(by_band[bands[0]], weights[0], out=row)
                for band, weight in zip(bands[1:], weights[1:], strict=True):
                    np.multiply(by_band[band], weight, out=part)
                    row += part
        made[first : first + _AT_ONCE] = rows.T
    return made.reshape(*values.shape[:2], len(taps))


def _check_reach(scene: Scene, source: Floats, wanted: Floats) -> None:
    """Refuse bands outside the scene's range, by more than half a band; tell of those inside a gap of it."""
    half = np.maximum(_spacing(source) / 2, TOLERANCE_NM)
    outside = (wanted < source[0] - half[0]) | (wanted > source[-1] + half[-1])
    if outside.any():
        raise SceneError(
            f"scene {scene.name!r} reaches from {source[0]:.1f} to {source[-1]:.1f} nm and can't give "
            f"{outside.sum()} of the {wanted.size} bands that are wanted ({_listed(wanted[outside])}): a scene that "
            "covers them is needed"
        )
    after = np.clip(np.searchsorted(source, wanted), 1, max(1, source.size - 1))
    nearest = np.abs(wanted[:, None] - source[np.stack([after - 1, after], axis=1) % source.size]).min(axis=1)
    apart = _spacing(wanted)
    apart = np.maximum(apart, np.median(apart))  # two detectors may lie a fraction of a nm apart where they meet
    far = nearest > np.maximum(_FAR * apart, TOLERANCE_NM)
    if far.any():
        warnings.warn(
            f"scene {scene.name!r} has no band near {far.sum()} of the {wanted.size} bands that are wanted "
            f"({_listed(wanted[far])}): they are interpolated across its gaps, up to {nearest.max():.0f} nm away from "
            "what was measured",
            DataWarning,
            stacklevel=3,
        )


def _taps(source: Floats, source_fwhm: Floats | None, wanted: Floats, fwhm: Floats | None) -> list[Tap]:
    """What each wanted band is made of, as positions in ``source``, which ascends."""
    spacing = _spacing(source)
    own = spacing if source_fwhm is None else np.where(source_fwhm > 0, source_fwhm, spacing)  # NaN: not known
    taps = []
    for i, wave in enumerate(wanted):
        tap = None
        if fwhm is not None and fwhm[i] > 0:
            nearest = int(np.abs(source - wave).argmin())
            finer = fwhm[i] ** 2 - own[nearest] ** 2  # widths of Gaussians that follow each other add up in squares
            tap = _gaussian(wave, float(np.sqrt(finer)), source, spacing) if finer > 0 else None
        taps.append(tap or _linear(wave, source))
    return taps


def _linear(wave: float, source: Floats) -> Tap:
    """Between the two bands beside it; the band itself where there is one, and the last one beyond the ends."""
    after = int(np.searchsorted(source, wave))  # first that is not below
    if after == source.size or source[after] == wave or after == 0:
        return Tap(np.array([min(after, source.size - 1)]), np.ones(1, dtype=np.float32))
    low, high = source[after - 1], source[after]
    share = (wave - low) / (high - low)
    return Tap(np.array([after - 1, after]), np.array([1 - share, share], dtype=np.float32))


def _gaussian(wave: float, width: float, source: Floats, spacing: Floats) -> Tap | None:
    """All bands under a Gaussian, or None where they are too few or lie to one side.

    The centre of gravity of the weights is put exactly on ``wave``: a spectrum that rises evenly is kept as it is.
    """
    near = np.flatnonzero(np.abs(source - wave) <= _REACH * width)
    if near.size < 3:
        return None
    off = source[near] - wave
    heights = spacing[near] * np.exp(-4 * np.log(2) * (off / width) ** 2)
    lean, spread = (heights * off).sum(), (heights * off**2).sum()
    if not spread > 0:
        return None
    weights = heights * (1 - lean / spread * off)
    if weights.min() < 0 or not weights.sum() > 0:
        return None
    return Tap(near, (weights / weights.sum()).astype(np.float32))


def usable_wavelengths(wavelengths: Floats | None) -> Floats | None:
    """Wavelengths that can be used: None where there are none, or not of every band."""
    return wavelengths if wavelengths is not None and np.isfinite(wavelengths).all() else None


def differences(model: Floats, scene: Floats) -> list[str]:
    """What differs between a model's wavelengths and a scene's, in words; nothing if they are the same bands."""
    if model.size == scene.size and (np.abs(scene - model) <= _tolerance(model)).all():
        return []
    to_scene = np.abs(model[:, None] - scene)  # (model's bands, scene's bands)
    nearest = to_scene.argmin(axis=1)
    off = to_scene.min(axis=1)
    missing = off > np.maximum(_spacing(model) / 2, TOLERANCE_NM)
    extra = to_scene.min(axis=0) > np.maximum(_spacing(scene) / 2, TOLERANCE_NM)
    shifted = ~missing & (off > _tolerance(model))
    found = []
    if missing.any():
        found.append(f"{missing.sum()} are missing ({_listed(model[missing])})")
    if extra.any():
        found.append(f"{extra.sum()} are not the model's ({_listed(scene[extra])})")
    if shifted.any():
        pairs = [f"{scene[at]:.1f} for {wave:.1f}" for wave, at in zip(model[shifted], nearest[shifted], strict=True)]
        found.append(f"{shifted.sum()} are shifted by up to {off[shifted].max():.1f} nm ({_shortened(pairs)})")
    return found or ["they come in another order or more than once"]


def _tolerance(waves: Floats) -> Floats:
    return np.asarray(np.maximum(TOLERANCE_NM, TOLERANCE_SHARE * _spacing(waves)))


def _spacing(waves: Floats) -> Floats:
    """How far each band is from its neighbours on average (n,); wide gaps count as two usual steps at most."""
    if waves.size < 2:
        return np.zeros_like(waves)
    order = np.argsort(waves, kind="stable")
    steps = np.diff(waves[order])
    usual = np.median(steps[steps > 0]) if (steps > 0).any() else 0.0
    steps = np.minimum(steps, 2 * usual)
    spacing = np.empty_like(waves)
    spacing[order] = (np.append(steps, steps[-1]) + np.append(steps[0], steps)) / 2
    return spacing


def _listed(waves: Floats) -> str:
    return _shortened([f"{wave:.1f}" for wave in waves])


def _shortened(words: Sequence[str]) -> str:
    """The first few in nm, and how many more there are."""
    more = len(words) - _LISTED
    return ", ".join(words[:_LISTED]) + " nm" + (f" and {more} more" if more > 0 else "")
