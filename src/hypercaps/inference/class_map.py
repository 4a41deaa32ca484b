"""ClassMap: a classified scene, with its legend and georeference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.display import Displayed
from hypercaps.data.grid import Affine, Lookup, MapGrid
from hypercaps.data.labels import Legend

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class ClassMap(Displayed):
    """A classified scene. ``classes, confidence = class_map`` works too.

    Parameters
    ----------
    classes : (rows, columns) int16 array
        Labels of the legend; 0: no class.
    confidence : (rows, columns) float32 array
        Of that class, 0 to 1; NaN: no class.
    legend : Legend
        Label, name and colour of each class.
    crs : str, optional
        Coordinate reference system, as WKT or an authority code such as "EPSG:32633".
    transform : tuple of 6 float, optional
        (a, b, c, d, e, f) of x = a*col + b*row + c, y = d*col + e*row + f, in units of ``crs``.
    lookup : Lookup, optional
        Projection of the map of a swath scene.
    name : str
        Of the scene.

    Examples
    --------
    >>> from hypercaps import ConvCapsClassifier, open_labels, open_scene
    >>> scene, labels = open_scene("indian-pines"), open_labels("indian-pines")
    >>> class_map = ConvCapsClassifier(method="lda").fit(scene, labels).map(scene)
    >>> class_map.classes.shape, len(class_map.legend)
    ((145, 145), 16)
    """

    classes: npt.NDArray[np.int16]
    confidence: npt.NDArray[np.float32]
    legend: Legend = field(default_factory=lambda: Legend(()))
    crs: str | None = None
    transform: Affine | None = None
    lookup: Lookup | None = None
    name: str = "map"

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """The classes and the confidence."""
        return iter((self.classes, self.confidence))

    def __repr__(self) -> str:
        rows, cols = self.classes.shape
        return f"<ClassMap of {self.name!r}: {rows} x {cols} pixels, {len(self.legend)} classes>"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.classes.shape[0], self.classes.shape[1]

    def counts(self) -> dict[int, int]:
        """Number of pixels by class number."""
        numbers = np.bincount(self.classes.ravel(), minlength=int(self.legend.labels.max(initial=0)) + 1)
        return {entry.label: int(numbers[entry.label]) for entry in self.legend}

    def to_xarray(self) -> xarray.DataArray:
        """The classes as an xarray DataArray with georeference, names and colours; needs xarray.

        Returns
        -------
        xarray.DataArray
            Classes (y, x) int16, 0: no class. The coordinate ``confidence`` (y, x) has the confidence; ``x`` and ``y``
            are the centres of pixels, and ``spatial_ref`` holds the coordinate system as rioxarray and GDAL do. The
            attributes ``flag_values`` and ``flag_meanings`` follow the CF conventions, ``flag_colors`` has a colour for
            each class in the same way, and ``class_names`` the names as they are. The map of a swath scene is projected
            by its lookup table.

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import ConvCapsClassifier
        >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + np.arange(20)[:, None, None] // 10
        >>> classifier = ConvCapsClassifier(method="lda").fit(cube, 1 + np.arange(400).reshape(20, 20) // 200)
        >>> data = classifier.map(cube).to_xarray()
        >>> data.dims, data.attrs["class_names"]
        (('y', 'x'), ['class 1', 'class 2'])
        """
        from hypercaps.io.writers.xarray import class_map_array

        classes, confidence, grid = self._projected()
        return class_map_array(classes, confidence, self.legend, (grid.crs, grid.transform))

    def save(self, path: str | Path, confidence: str | Path | None = None) -> None:
        """Write the map as a GeoTIFF, as ``hypercaps map`` does: with colours, and names in the files beside it.

        Parameters
        ----------
        path : path
            Of the classes, ending in ``.tif``. ``.tif.aux.xml`` (names, for GDAL) and ``.qml`` (a style for QGIS) are
            written beside it. Files of these names are replaced, but no style that hypercaps did not write.
        confidence : path, optional
            Of the confidence; default: it is not written.

        Examples
        --------
        >>> import numpy as np
        >>> from hypercaps import ConvCapsClassifier, Scene, open_labels
        >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + np.arange(20)[:, None, None] // 10
        >>> scene = Scene.from_array(cube, crs="EPSG:32633", transform=(30, 0, 600000, 0, -30, 5000000))
        >>> classifier = ConvCapsClassifier(method="lda").fit(scene, 1 + np.arange(400).reshape(20, 20) // 200)
        >>> classifier.map(scene).save("map.tif", confidence="confidence.tif")
        >>> open_labels("map.tif").shape
        (20, 20)
        """
        from hypercaps import __version__
        from hypercaps.io.writers.atomic import check_output
        from hypercaps.io.writers.class_raster import SUFFIXES, write_class_raster  # imports rasterio
        from hypercaps.io.writers.legend_files import legend_files, refuse_foreign_style

        classes, sure, grid = self._projected()
        file, beside = Path(path), None if confidence is None else Path(confidence)
        check_output(file, SUFFIXES)
        refuse_foreign_style(file.with_suffix(".qml"))
        if beside is not None:
            check_output(beside, SUFFIXES, inputs=[file, *legend_files(file, self.legend)])
        tags = {"HYPERCAPS_VERSION": __version__, "HYPERCAPS_SCENE": self.name}
        both = None if beside is None else (beside, sure)
        write_class_raster(file, classes, self.legend, grid, tags=tags, confidence=both)

    def _projected(self) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.float32], MapGrid]:
        """Classes and confidence on the grid of the map; those of a swath are projected."""
        if self.lookup is None:
            return self.classes, self.confidence, MapGrid(self.shape, self.crs, self.transform)
        rows, cols = self.lookup.rows, self.lookup.cols
        classes = np.where(rows >= 0, self.classes[rows, cols], np.int16(0))
        confidence = np.where(rows >= 0, self.confidence[rows, cols], np.float32(np.nan))
        return classes, confidence, MapGrid(self.lookup.shape, self.lookup.crs, self.lookup.transform)
