"""Labels at the size of a picture, in which single pixels stay visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import thinning

Integers = npt.NDArray[np.integer[Any]]

_DOTS_ACROSS = 120  # dots that would fit side by side along a picture: its longest side over that of a dot
_SPARSE = 0.25  # share of the labelled pixels in the square of a dot, below which it is drawn


def label_picture(labels: Integers, longest: int) -> npt.NDArray[np.int16]:
    """Thin labels (rows, columns) to at most ``longest`` pixels a side and draw single ones as dots."""
    pixels = np.flatnonzero(labels)
    return pixel_picture(labels.shape, pixels, labels.ravel()[pixels], longest)


def pixel_picture(shape: tuple[int, ...], pixels: Integers, labels: Integers, longest: int) -> npt.NDArray[np.int16]:
    """The same from the labelled pixels of a scene alone: flat indices (N,) and their labels (N,).

    A cell of the picture shows the last label inside it. Dots cover unlabelled cells only; labels that lie close
    together are left as they are.
    """
    rows, cols = shape
    step = thinning((rows, cols), longest)
    picture = np.zeros((-(-rows // step), -(-cols // step)), dtype=np.int16)
    r, c = np.divmod(pixels, cols)
    picture[r // step, c // step] = labels
    dot = dot_side(picture.shape)
    if dot == 1 or not pixels.size:
        return picture
    r, c = np.nonzero((picture > 0) & (_labelled_around(picture, dot) < _SPARSE * dot**2))
    dots = np.zeros((picture.shape[0] + dot - 1, picture.shape[1] + dot - 1), dtype=np.int16)  # half a dot around it
    for down in range(dot):
        for right in range(dot):
            dots[r + down, c + right] = picture[r, c]
    half = dot // 2
    return np.where(picture > 0, picture, dots[half:-half, half:-half])


def _labelled_around(picture: npt.NDArray[np.int16], side: int) -> npt.NDArray[np.int64]:
    """Number of labelled pixels in the square around each pixel: (h, w) -> (h, w)"""
    before, after = side // 2 + 1, side // 2
    labelled = np.pad(picture > 0, ((before, after), (before, after))).astype(np.int64)
    above = labelled.cumsum(axis=0)
    strips = above[side:] - above[:-side]  # (h, w + side)
    left = strips.cumsum(axis=1)
    return np.asarray(left[:, side:] - left[:, :-side])


def dot_side(shape: tuple[int, ...]) -> int:
    """Pixels along the side of a dot in a picture of this shape, an odd number; 1: nothing is drawn larger."""
    return 2 * (max(shape) // (2 * _DOTS_ACROSS)) + 1
