"""What became of the features of a label file: how many were used, and why the others were not."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import shapely

from hypercaps.io.labels.layer import Geometries

Fates = npt.NDArray[np.int8]  # (features,)

_NOUNS = ("points", "lines", "polygons")  # by dimension


class Fate(IntEnum):
    """What became of a feature, in the order in which messages list them."""

    OUTSIDE = 0
    ON_NODATA = 1
    NO_GEOMETRY = 2
    NO_CLASS = 3
    NO_CENTRE = 4  # a polygon in the scene that contains no pixel centre
    COVERED = 5  # all its pixels belong to other features too
    USED = 6


_TEXTS = {
    Fate.OUTSIDE: "outside the scene",
    Fate.ON_NODATA: "on nodata",
    Fate.NO_GEOMETRY: "without a geometry",
    Fate.NO_CLASS: "without a class",
    Fate.NO_CENTRE: "too small to contain the centre of a pixel",
    Fate.COVERED: "in pixels of other features",
    Fate.USED: "used",
}


def fates_message(geometries: Geometries, fates: Fates, unread: int) -> str:
    """'120 points: 52 outside the scene, 33 on nodata, 35 used'; ``unread`` further features lie outside."""
    numbers = np.bincount(fates, minlength=len(Fate))
    numbers[Fate.OUTSIDE] += unread
    total = fates.size + unread
    noun = features_noun(geometries)
    parts = [f"{numbers[fate]:,} {_TEXTS[fate]}" for fate in Fate if numbers[fate]]
    return f"{total:,} {noun if total != 1 else noun.removesuffix('s')}: {', '.join(parts)}"


def features_noun(geometries: Geometries) -> str:
    """'points', 'lines' or 'polygons' if all features are, otherwise 'features'."""
    dimensions = np.unique(shapely.get_dimensions(geometries[~shapely.is_missing(geometries)]))
    return _NOUNS[int(dimensions[0])] if dimensions.size == 1 and dimensions[0] >= 0 else "features"
