"""What a scene looks like to the eye: three of its bands as red, green and blue, thinned to the size of a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import thinning
from hypercaps.data.window import tile_windows

LONGEST_SIDE = 800  # pixels of a picture; larger scenes are thinned
NOTHING = (245, 245, 245)  # where the scene holds no data
_EYE = (650.0, 550.0, 470.0)  # nm: red, green and blue
_NEAR = 60.0  # nm from there: a band further away is not that colour
_TILE = 256  # side of what is read at a time
_STRETCH = (2.0, 98.0)  # percentiles that become black and full colour

Picture = npt.NDArray[np.uint8]  # (h, w, 3)


@dataclass(frozen=True, eq=False)
class QuickLook:
    """A picture of a scene."""

    picture: Picture
    bands: tuple[int, int, int]  # from 0: shown as red, green and blue
    natural: bool  # whether these are the colours that the eye would see
    step: int  # every step-th row and column is shown

    @property
    def caption(self) -> str:
        shown = ", ".join(str(band + 1) for band in self.bands)
        return f"{'natural' if self.natural else 'false'} colours (bands {shown})"


def quicklook(scene: Scene, longest: int = LONGEST_SIDE) -> QuickLook:
    """Look at the whole scene once, window by window."""
    bands, natural = bands_to_see(scene)
    step = thinning(scene.shape[:2], longest)
    height, width = -(-scene.rows // step), -(-scene.cols // step)
    values = np.zeros((height, width, 3), dtype=np.float32)
    valid = np.zeros((height, width), dtype=bool)
    for at in tile_windows(scene.whole, _TILE):
        down, across = np.arange(-at.r0 % step, at.r1 - at.r0, step), np.arange(-at.c0 % step, at.c1 - at.c0, step)
        if not (down.size and across.size):
            continue
        read = scene.read(at.rows, at.cols)
        here = np.ix_((at.r0 + down) // step, (at.c0 + across) // step)
        chosen = np.ix_(down, across)
        values[here], valid[here] = read.values[chosen][:, :, list(bands)], read.valid[chosen]
    picture = np.empty((height, width, 3), dtype=np.uint8)
    picture[:] = NOTHING
    if valid.any():
        low, high = np.percentile(values[valid], _STRETCH, axis=0)  # (3,) each
        stretched = (values[valid] - low) / np.where(high > low, high - low, 1.0)
        picture[valid] = np.clip(255 * stretched, 0, 255).astype(np.uint8)
    return QuickLook(picture, bands, natural, step)


def bands_to_see(scene: Scene) -> tuple[tuple[int, int, int], bool]:
    """The bands nearest to red, green and blue; where there are none, an infrared one, or those of an unknown sensor.

    Without wavelengths bands are taken from the first half of the spectrum, where the visible light mostly is.
    """
    waves = usable_wavelengths(scene.wavelengths)
    if waves is not None:
        red, green, blue = (int(np.abs(waves - at).argmin()) for at in _EYE)
        if all(abs(waves[band] - at) <= _NEAR for band, at in zip((red, green, blue), _EYE, strict=True)):
            return (red, green, blue), True
    last = scene.bands - 1
    return (last // 2, last // 4, last // 10) if last >= 10 else (last, last // 2, 0), False
