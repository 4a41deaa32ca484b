"""Vector files through pyogrio: GeoPackage, GeoJSON, Shapefile and FlatGeobuf, and nothing else.

pyogrio can't be told which driver of GDAL to take, and some of them read whatever a file tells them to. So a file's
content decides here what it is, it is looked through first (``vectorcheck``), and GDAL must have taken the driver that
goes with it before a feature is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import HypercapsError, LabelsError, warn_data
from hypercaps.io.labels import vector_check as vectorcheck
from hypercaps.io.labels.vector_check import Content

Geometries = npt.NDArray[np.object_]  # (n,) of shapely's, or None
Box = tuple[float, float, float, float]  # west, south, east, north

VECTOR_KINDS = {  # by the first bytes: the name of GDAL's driver
    b"SQLite format 3\x00": "GPKG",
    b"\x00\x00\x27\x0a": "ESRI Shapefile",
    b"fgb\x03fgb": "FlatGeobuf",
}
_ENDINGS = {"GPKG": ".gpkg", "ESRI Shapefile": ".shp", "FlatGeobuf": ".fgb"}
LARGE = 1 << 26  # bytes; larger files are read around the scene only, by an index that must then be trusted
_LEAST = 8  # bytes that a feature takes at least: a file that claims more of them lies
# What GDAL says when it has lost something on the way.
_LOST = ("Non closed ring", "parsed incompletely", "NULL geometry", "Could not decode", "Unsupported geometry")
# And what makes no difference here: measures along lines, and the name of a file whose content is clear.
_HARMLESS = ("Measured (M) geometry", "non conformant file extension")


class Features(NamedTuple):
    """The features of a layer, or those of them that were asked for."""

    geometries: Geometries  # (n,)
    columns: Mapping[str, npt.NDArray[Any]]  # (n,) each, by field


@dataclass(frozen=True)
class VectorLayer:
    """A layer that was opened and looked through but not read."""

    path: Path
    driver: str
    name: str
    geometry: str
    crs: str | None
    fields: Mapping[str, str]  # numpy types by name
    features: int
    source: Path | bytes  # what pyogrio gets
    content: Content | None  # what it must turn out to hold, where the format tells

    @property
    def is_large(self) -> bool:
        return isinstance(self.source, Path) and self.source.stat().st_size > LARGE


def vector_kind(path: Path, head: bytes) -> str | None:
    """The driver for a file by its first bytes; None if it is no vector file."""
    for mark, driver in VECTOR_KINDS.items():
        if head.startswith(mark):
            return driver
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and (path.suffix.lower() in (".geojson", ".json") or b'"type"' in text):
        return "GeoJSON"
    return None


def layer_names(path: Path, driver: str) -> list[str]:
    """The layers of a file; but for GeoPackage it has one, which is called like the file."""
    with explained(path):
        return vectorcheck.geopackage_layers(path) if driver == "GPKG" else [path.stem]


def open_layer(path: Path, driver: str, layer: str | None) -> VectorLayer:
    """One layer of a vector file; its name may be left out where there is only one."""
    import pyogrio

    layers = layer_names(path, driver)
    if not layers:
        raise LabelsError(f"{path} holds no layer of features: polygons, lines or points with a class are expected")
    if layer is not None and layer not in layers:
        raise LabelsError(f"{path} has no layer {layer!r}: it holds {', '.join(layers)}; name one as {path}:LAYER")
    if layer is None and len(layers) > 1:
        raise LabelsError(f"{path} holds several layers: {', '.join(layers)}; name one as {path}:{layers[0]}")
    name = layer or layers[0]
    source, content = _checked(path, driver, name)
    with explained(path):
        about = pyogrio.read_info(source, **_options(driver, name), force_feature_count=True)
        if about["driver"] != driver:
            raise LabelsError(f"{path} is of the kind {driver} but GDAL takes it for {about['driver']}: save it anew")
        if about["features"] > path.stat().st_size // _LEAST + (0 if isinstance(source, Path) else 1):
            raise ValueError(f"{about['features']} features")
        if driver == "FlatGeobuf":
            count = int(about["features"])
            boxes = vectorcheck.flatgeobuf_boxes(path, count)  # only features that lie somewhere have an index
            content = None if boxes is None else Content(count, count, boxes)
    return VectorLayer(
        path,
        driver,
        name,
        str(about["geometry_type"]),
        about["crs"] or None,
        dict(zip(about["fields"].tolist(), about["dtypes"].tolist(), strict=True)),
        int(about["features"]),
        source,
        content,
    )


def read_features(
    layer: VectorLayer, fields: Sequence[str] = (), *, within: Box | None = None, geometry: bool = True
) -> Features:
    """Geometries and some fields of a layer: all features, or those that meet a box."""
    import pyogrio
    import shapely

    with explained(layer.path), np.errstate(all="ignore"):  # numbers that are none are refused when they are placed
        _, _, wkb, columns = pyogrio.raw.read(
            layer.source,
            **_options(layer.driver, layer.name),
            columns=list(fields),
            read_geometry=geometry,
            force_2d=True,
            bbox=within,
        )
        rows = len(wkb) if geometry else (len(columns[0]) if columns else 0)
        expected = layer.features if layer.content is None else layer.content.rows
        if within is None and (geometry or columns) and rows != expected:
            raise ValueError(f"{rows} of {expected} features")
        shapes = shapely.from_wkb(wkb) if geometry else np.full(rows, None)
        if within is None and geometry and layer.content is not None:
            there = int((~shapely.is_missing(shapes)).sum())
            if there != layer.content.geometries:
                raise ValueError(f"{there} of {layer.content.geometries} geometries")
            if layer.content.boxes is not None and not _agree(layer.content.boxes, shapely.bounds(shapes)):
                raise ValueError("features outside of their boxes")
    order = [name for name in layer.fields if name in fields]  # pyogrio gives them in the file's order
    return Features(shapes, dict(zip(order, columns, strict=True)))


def _checked(path: Path, driver: str, layer: str) -> tuple[Path | bytes, Content | None]:
    """What pyogrio may be given, and what must be in it."""
    with explained(path):
        if driver == "GeoJSON":
            if path.stat().st_size > vectorcheck.MOST_JSON:
                raise LabelsError(
                    f"{path} has {path.stat().st_size:,} bytes: GeoJSON is read up to {vectorcheck.MOST_JSON:,}; save "
                    "it as a GeoPackage"
                )
            content = path.read_bytes()
            return content, vectorcheck.check_geojson(path, content)
        if driver == "GPKG":
            return _source(path, driver), vectorcheck.check_geopackage_layer(path, layer, LARGE)
        if driver == "ESRI Shapefile":
            if path.suffix.lower() != _ENDINGS[driver]:
                raise LabelsError(f"{path} is a part of a shapefile: name its .shp")
            return _source(path, driver), vectorcheck.check_shapefile(path)
        # FlatGeobuf says how many features it has in a place that only GDAL knows.
        return _source(path, driver), None


def _source(path: Path, driver: str) -> Path | bytes:
    """The path, or the content of a file by whose name GDAL would do something else."""
    from pyogrio.util import vsi_path

    whole = path.absolute()
    # pyogrio takes some names for addresses, with ! or ; in them, and reads another file than the one that was named.
    is_plain = vsi_path(whole) == str(whole) and not str(whole).startswith("/vsi")
    if is_plain and path.suffix.lower() == _ENDINGS[driver]:
        return whole
    if driver == "ESRI Shapefile" or path.stat().st_size > LARGE:
        raise LabelsError(f"{path} has an unusual name: call it labels{_ENDINGS[driver]}, say, without '!' and ';'")
    return path.read_bytes()


def _agree(boxes: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]) -> bool:
    """Whether features lie where their file says, but for the last digits; empty ones lie nowhere."""
    known = ~(np.isnan(boxes).any(axis=1) | np.isnan(bounds).any(axis=1))
    return bool(np.allclose(boxes[known], bounds[known], rtol=1e-9, atol=1e-9))


def _options(driver: str, layer: str) -> dict[str, Any]:
    """A GeoPackage is neither locked nor are files made beside it; other formats have one layer."""
    return {"layer": layer, "IMMUTABLE": "YES"} if driver == "GPKG" else {"layer": 0}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """What goes wrong with a vector file, in one sentence."""
    from pyogrio.errors import CRSError

    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
    except HypercapsError:
        raise
    except PermissionError:
        raise LabelsError(f"{path} can't be read: permission denied") from None
    except CRSError as cause:
        raise LabelsError(f"{path} has a coordinate system that can't be understood: write it anew in a GIS") from cause
    except Exception as cause:  # pyogrio lets nearly anything through on damaged files, UnboundLocalError included
        raise LabelsError(
            f"{path} ({path.stat().st_size:,} bytes) is truncated, damaged or not what its first bytes say "
            f"({type(cause).__name__}): a whole vector file was expected, get it again"
        ) from cause
    for text in dict.fromkeys(str(one.message) for one in said):
        if any(sign in text for sign in _LOST):
            raise LabelsError(f"{path} is damaged or was written wrongly ({text.rstrip('.')}): mend it or get it again")
        if not any(sign in text for sign in _HARMLESS):
            warn_data(f"{path.name}: {text}")
