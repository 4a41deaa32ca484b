"""Where pixels lie on a map: an affine grid, or a lookup table for a scene in sensor geometry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Coefficients (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f; rotated grids included.
Affine = tuple[float, float, float, float, float, float]


class MapGrid(NamedTuple):
    """Size and georeference of a raster."""

    shape: tuple[int, int]  # rows, columns
    crs: str | None = None
    transform: Affine | None = None


@dataclass(frozen=True, eq=False)
class Lookup:
    """Geometry lookup table (GLT): the pixel of a swath scene for each pixel of a map-projected grid.

    A swath scene, in sensor geometry, is classified in its own rows and columns; its map is then projected by this
    table.
    """

    rows: npt.NDArray[np.int32]  # (rows, columns of the grid): row in the scene, from 0; -1 where there is no data
    cols: npt.NDArray[np.int32]  # the same for columns
    crs: str
    transform: Affine

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape[0], self.rows.shape[1]
