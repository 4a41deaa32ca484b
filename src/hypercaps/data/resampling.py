"""Spectral resampling of a scene to the bands of another sensor, and differences between two lists of bands.

A new band is a weighted sum of a few bands of the scene: of its two neighbours (linear interpolation) or, where its
width is known and the scene's bands are narrower, of all bands under a Gaussian of that width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.median import median
from hypercaps.data.pixels import PixelReader, Pixels
from hypercaps.data.scene import Scene
from hypercaps.errors import SceneError, warn_data

Floats = npt.NDArray[np.float64]

# Bands count as the same within 1 nm or a tenth of their spacing: products of one sensor differ by tenths of a nm
# from day to day, and its spectral smile by about 1 nm across the swath.
TOLERANCE_NM = 1.0
TOLERANCE_SHARE = 0.1
_REACH = 1.5  # where a Gaussian is cut off, in widths: its value is 0.2 % there
_FAR = 1.5  # spacings of the new bands: the user is warned of a band whose nearest band is farther away
_CHUNK = 4096  # pixels: bands x pixels fit into the cache
_LISTED = 4  # bands that a message names


class Tap(NamedTuple):
    """The bands of a scene whose weighted sum is a new band."""

    bands: npt.NDArray[np.intp]  # (k,) of the scene
    weights: npt.NDArray[np.float32]  # (k,) sum to 1; a single one is 1


def resample(scene: Scene, wavelengths: npt.ArrayLike, fwhm: npt.ArrayLike | None = None) -> Scene:
    """Resample a scene to other bands; each window is resampled when it is read.

    Each pixel is resampled on its own: its values do not depend on the window, to the last bit. A wavelength of the
    scene itself keeps its values, unless the new band is wider. Validity does not change.

    Parameters
    ----------
    scene : a scene with wavelengths
    wavelengths : (n,) centre wavelengths of the new bands in nm, in any order
    fwhm : (n,) full width at half maximum of the new bands in nm; None or NaN where unknown
    """
    source, target = usable_wavelengths(scene.wavelengths), np.asarray(wavelengths, dtype=np.float64)
    if source is None:
        raise SceneError(
            f"scene {scene.name!r} has no wavelengths and can't be resampled: give it those of its {scene.bands} bands"
        )
    if target.ndim != 1 or target.size == 0 or not np.isfinite(target).all():
        raise SceneError("the wavelengths to resample to must be a list of numbers in nm")
    widths = None if fwhm is None else np.asarray(fwhm, dtype=np.float64)
    if widths is not None and widths.shape != target.shape:
        raise SceneError(f"{widths.size} band widths were given for {target.size} wavelengths: give one for each")
    if np.array_equal(source, target) and (widths is None or scene.fwhm is None):
        return scene  # the same list of wavelengths is the same sensor, with the same widths
    order = np.argsort(source, kind="stable")
    _check_range(scene, source[order], target)
    taps = _taps(source[order], None if scene.fwhm is None else scene.fwhm[order], target, widths)
    return replace(
        scene,
        shape=(scene.rows, scene.cols, target.size),
        dtype=np.dtype(np.float32),
        reader=_reader(scene, [tap._replace(bands=order[tap.bands]) for tap in taps]),
        wavelengths=target,
        fwhm=widths,
    )


def _reader(scene: Scene, taps: Sequence[Tap]) -> PixelReader:
    def read(rows: slice, cols: slice) -> Pixels:
        pixels = scene.read(rows, cols)
        return Pixels(_weighted(pixels.values, taps), pixels.valid)

    return read


def _weighted(values: npt.NDArray[np.float32], taps: Sequence[Tap]) -> npt.NDArray[np.float32]:
    """(h, w, bands of the scene) -> (h, w, new bands)

    Tap by tap over many pixels: a matrix product would sum in an order that depends on its size.
    """
    flat = values.reshape(-1, values.shape[2])  # (N, bands)
    resampled = np.empty((len(flat), len(taps)), dtype=np.float32)
    for first in range(0, len(flat), _CHUNK):
        by_band = np.ascontiguousarray(flat[first : first + _CHUNK].T)  # (bands, n)
        rows = np.empty((len(taps), by_band.shape[1]), dtype=np.float32)
        part = np.empty_like(rows[0])
        with np.errstate(over="ignore", invalid="ignore"):  # of invalid pixels
            for row, (bands, weights) in zip(rows, taps, strict=True):
                if bands.size == 1:
                    row[:] = by_band[bands[0]]
                    continue
                np.multiply(by_band[bands[0]], weights[0], out=row)
                for band, weight in zip(bands[1:], weights[1:], strict=True):
                    np.multiply(by_band[band], weight, out=part)
                    row += part
        resampled[first : first + _CHUNK] = rows.T
    return resampled.reshape(*values.shape[:2], len(taps))


def _check_range(scene: Scene, source: Floats, target: Floats) -> None:
    """Refuse bands more than half a band outside the scene's range; warn of bands in its gaps."""
    half = np.maximum(_spacing(source) / 2, TOLERANCE_NM)
    outside = (target < source[0] - half[0]) | (target > source[-1] + half[-1])
    if outside.any():
        raise SceneError(
            f"scene {scene.name!r} ranges from {source[0]:.1f} to {source[-1]:.1f} nm and can't be resampled to "
            f"{outside.sum()} of the {target.size} requested bands ({_listed(target[outside])}): a scene that covers "
            "them is needed"
        )
    after = np.clip(np.searchsorted(source, target), 1, max(1, source.size - 1))
    nearest = np.abs(target[:, None] - source[np.stack([after - 1, after], axis=1) % source.size]).min(axis=1)
    spacing = _spacing(target)
    spacing = np.maximum(spacing, median(spacing))  # bands of two detectors may be a fraction of a nm apart
    far = nearest > np.maximum(_FAR * spacing, TOLERANCE_NM)
    if far.any():
        warn_data(
            f"scene {scene.name!r} has no band near {far.sum()} of the {target.size} requested bands "
            f"({_listed(target[far])}): they are interpolated across its gaps, up to {nearest.max():.0f} nm away from "
            "measured bands"
        )


def _taps(source: Floats, source_fwhm: Floats | None, target: Floats, fwhm: Floats | None) -> list[Tap]:
    """The weights of each new band, as positions in ``source``, which is ascending."""
    spacing = _spacing(source)
    own = spacing if source_fwhm is None else np.where(source_fwhm > 0, source_fwhm, spacing)  # NaN: unknown
    taps = []
    for i, wave in enumerate(target):
        tap = None
        if fwhm is not None and fwhm[i] > 0:
            nearest = int(np.abs(source - wave).argmin())
            variance = fwhm[i] ** 2 - own[nearest] ** 2  # squared widths of convolved Gaussians add up
            tap = _gaussian(wave, float(np.sqrt(variance)), source, spacing) if variance > 0 else None
        taps.append(tap or _linear(wave, source))
    return taps


def _linear(wave: float, source: Floats) -> Tap:
    """Linear interpolation of the neighbouring bands; a single band where it coincides, and beyond the ends."""
    after = int(np.searchsorted(source, wave))  # first band that is not below
    if after == source.size or source[after] == wave or after == 0:
        return Tap(np.array([min(after, source.size - 1)]), np.ones(1, dtype=np.float32))
    low, high = source[after - 1], source[after]
    share = (wave - low) / (high - low)
    return Tap(np.array([after - 1, after]), np.array([1 - share, share], dtype=np.float32))


def _gaussian(wave: float, width: float, source: Floats, spacing: Floats) -> Tap | None:
    """All bands under a Gaussian, or None where they are too few or on one side only.

    The mean of the weights is moved exactly to ``wave``, so that a linear spectrum is reproduced.
    """
    near = np.flatnonzero(np.abs(source - wave) <= _REACH * width)
    if near.size < 3:
        return None
    offset = source[near] - wave
    heights = spacing[near] * np.exp(-4 * np.log(2) * (offset / width) ** 2)
    first, second = (heights * offset).sum(), (heights * offset**2).sum()  # moments
    if not second > 0:
        return None
    weights = heights * (1 - first / second * offset)
    if weights.min() < 0 or not weights.sum() > 0:
        return None
    return Tap(near, (weights / weights.sum()).astype(np.float32))


def usable_wavelengths(wavelengths: Floats | None) -> Floats | None:
    """The wavelengths, or None unless every band has one."""
    return wavelengths if wavelengths is not None and np.isfinite(wavelengths).all() else None


def differences(model: Floats, scene: Floats) -> list[str]:
    """Differences of a scene's wavelengths from a model's, for a message; empty if the bands are the same."""
    if model.size == scene.size and (np.abs(scene - model) <= _tolerance(model)).all():
        return []
    to_scene = np.abs(model[:, None] - scene)  # (model's bands, scene's bands)
    nearest = to_scene.argmin(axis=1)
    offset = to_scene.min(axis=1)
    missing = offset > np.maximum(_spacing(model) / 2, TOLERANCE_NM)
    extra = ~np.isin(np.arange(scene.size), nearest[~missing])  # not the nearest to any band of the model
    shifted = ~missing & (offset > _tolerance(model))
    texts = []
    if missing.any():
        texts.append(f"{missing.sum()} are missing ({_listed(model[missing])})")
    if extra.any():
        texts.append(f"{extra.sum()} are not the model's ({_listed(scene[extra])})")
    if shifted.any():
        pairs = [f"{scene[at]:.1f} for {wave:.1f}" for wave, at in zip(model[shifted], nearest[shifted], strict=True)]
        texts.append(f"{shifted.sum()} are shifted by up to {offset[shifted].max():.1f} nm ({_listed(pairs)})")
    return texts or ["they are in another order or more than once"]


def is_shifted(model: Floats, scene: Floats) -> bool:
    """Whether a scene has the model's bands in the same order, but most of them offset by less than a band.

    A tenth of them may lie further away, at the edges of gaps for example.
    """
    if model.size != scene.size or not differences(model, scene):
        return False
    is_near = np.abs(scene - model) < np.maximum(_spacing(model), TOLERANCE_NM)
    return bool(is_near.mean() >= 1 - TOLERANCE_SHARE)


def _tolerance(waves: Floats) -> Floats:
    return np.asarray(np.maximum(TOLERANCE_NM, TOLERANCE_SHARE * _spacing(waves)))


def _spacing(waves: Floats) -> Floats:
    """(n,) mean distance of each band to its neighbours in nm; a gap counts as two median steps at most."""
    if waves.size < 2:
        return np.zeros_like(waves)
    order = np.argsort(waves, kind="stable")
    steps = np.diff(waves[order])
    usual = median(steps[steps > 0]) if (steps > 0).any() else 0.0
    steps = np.minimum(steps, 2 * usual)
    spacing = np.empty_like(waves)
    spacing[order] = (np.append(steps, steps[-1]) + np.append(steps[0], steps)) / 2
    return spacing


def _listed(waves: Floats | Sequence[str]) -> str:
    """The first few wavelengths, and the number of the others."""
    words = [wave if isinstance(wave, str) else f"{wave:.1f}" for wave in waves]
    more = len(words) - _LISTED
    return ", ".join(words[:_LISTED]) + " nm" + (f" and {more} more" if more > 0 else "")
