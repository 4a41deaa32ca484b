"""A colour picture of a scene: three of its bands as red, green and blue, thinned to the size of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import NO_DATA_COLOR
from hypercaps.data.pixels import Pixels
from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import thinning
from hypercaps.data.window import tile_windows

LONGEST_SIDE = 800  # pixels of a picture; larger scenes are thinned
_RGB_NM = (650.0, 550.0, 470.0)  # red, green and blue
_NEAR = 60.0  # nm: a band further away is not that colour
_TILE = 256  # side of the windows that are read
_STRETCH = (2.0, 98.0)  # percentiles shown as black and as full colour

Picture = npt.NDArray[np.uint8]  # (h, w, 3)


@dataclass(frozen=True, eq=False)
class QuickLook:
    """A picture of a scene."""

    picture: Picture
    bands: tuple[int, int, int]  # from 0: shown as red, green and blue
    natural: bool  # whether the bands are red, green and blue light
    step: int  # every step-th row and column is shown

    @property
    def caption(self) -> str:
        shown = ", ".join(str(band + 1) for band in self.bands)
        return f"{'natural' if self.natural else 'false'} colours (bands {shown})"


def quicklook(scene: Scene, longest: int = LONGEST_SIDE, *, only_shown: bool = False) -> QuickLook:
    """Read the whole scene once, window by window, and stretch its contrast.

    With ``only_shown``, just the three bands are read, where the file allows it, and other bands make no pixel invalid.
    """
    bands, natural = rgb_bands(scene)
    step = thinning(scene.shape[:2], longest)
    height, width = -(-scene.rows // step), -(-scene.cols // step)
    values = np.zeros((height, width, 3), dtype=np.float32)
    valid = np.zeros((height, width), dtype=bool)
    for at in tile_windows(scene.whole, _TILE):
        down, across = np.arange(-at.r0 % step, at.r1 - at.r0, step), np.arange(-at.c0 % step, at.c1 - at.c0, step)
        if not (down.size and across.size):
            continue
        if only_shown:
            read = scene.read_bands(bands, at.rows, at.cols)
        else:
            read = scene.read(at.rows, at.cols)
            read = Pixels(read.values[:, :, list(bands)], read.valid)
        target = np.ix_((at.r0 + down) // step, (at.c0 + across) // step)
        source = np.ix_(down, across)
        values[target], valid[target] = read.values[source], read.valid[source]
    picture = np.full((height, width, 3), NO_DATA_COLOR, dtype=np.uint8)
    if valid.any():
        low, high = np.percentile(values[valid], _STRETCH, axis=0)  # (3,) each
        stretched = (values[valid] - low) / np.where(high > low, high - low, 1.0)
        picture[valid] = np.clip(255 * stretched, 0, 255).astype(np.uint8)
    return QuickLook(picture, bands, natural, step)


def rgb_bands(scene: Scene) -> tuple[tuple[int, int, int], bool]:
    """The bands nearest to red, green and blue, and True; false-colour bands and False if the scene has none.

    False colours are taken from the first half of the bands, where visible light is in most sensors.
    """
    waves = usable_wavelengths(scene.wavelengths)
    if waves is not None:
        red, green, blue = (int(np.abs(waves - nm).argmin()) for nm in _RGB_NM)
        if all(abs(waves[band] - nm) <= _NEAR for band, nm in zip((red, green, blue), _RGB_NM, strict=True)):
            return (red, green, blue), True
    last = scene.bands - 1
    return (last // 2, last // 4, last // 10) if last >= 10 else (last, last // 2, 0), False
