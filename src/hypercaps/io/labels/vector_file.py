"""Vector files: GeoPackage, GeoJSON, Shapefile (also zipped), FlatGeobuf and File Geodatabase through pyogrio; KML and
CSV, which are parsed here; and no other format.

pyogrio has no option for the driver of GDAL, and some drivers read other files that a file names. So the format is
detected by content, the file is checked first (``vector_check``, ``geodatabase``, ``archive``), and features are read
only if GDAL uses the driver of that format.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.errors import HypercapsError, LabelsError, warn_data
from hypercaps.io.labels import archive, geodatabase, vector_check
from hypercaps.io.labels.csv_points import csv_layer, is_csv
from hypercaps.io.labels.kml import is_kml, kml_layer
from hypercaps.io.labels.layer import Box, Features, Reference, VectorLayer, file_size, is_large
from hypercaps.io.labels.vector_check import Content

VECTOR_KINDS = {  # GDAL driver by first bytes
    b"SQLite format 3\x00": "GPKG",
    b"\x00\x00\x27\x0a": "ESRI Shapefile",
    b"fgb\x03fgb": "FlatGeobuf",
}
_ENDINGS = {"GPKG": ".gpkg", "ESRI Shapefile": ".shp", "FlatGeobuf": ".fgb", geodatabase.DRIVER: ".gdb"}
_LEAST = 8  # bytes per feature at least, to refuse files that claim more features
# Warnings of GDAL that mean lost data.
_LOST = ("Non closed ring", "parsed incompletely", "NULL geometry", "Could not decode", "Unsupported geometry")
# Warnings that do not matter here: measures along lines; file names, as formats are detected by content; and a field
# "id" with equal values, which GDAL takes for the number of the feature.
_HARMLESS = ("Measured (M) geometry", "non conformant file extension", "Several features with id")


class _Checked(NamedTuple):
    """A file that GDAL may open."""

    driver: str
    source: Path | bytes  # for pyogrio
    content: Content | None
    reference: Reference = "own"


def vector_kind(path: Path, head: bytes) -> str | None:
    """The format of a file by its first bytes, mostly as the GDAL driver; None if it is no vector file."""
    if path.is_dir():
        return geodatabase.DRIVER if geodatabase.is_geodatabase(path) else None
    for mark, driver in VECTOR_KINDS.items():
        if head.startswith(mark):
            return driver
    if head.startswith(archive.MARK):
        return archive.ZIP if archive.vector_members(path) else None
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{") and (path.suffix.lower() in (".geojson", ".json") or b'"type"' in text):
        return "GeoJSON"
    if is_kml(path, text):
        return "KML"
    return "CSV" if is_csv(path, head) else None


def layer_names(path: Path, driver: str) -> list[str]:
    """The layers of a file. Formats other than GeoPackage, geodatabase and archives have one, named like the file."""
    with translate_errors(path):
        if driver == "GPKG":
            return vector_check.geopackage_layers(path)
        if driver == geodatabase.DRIVER:
            return geodatabase.layer_names(path)
        return list(archive.vector_members(path)) if driver == archive.ZIP else [path.stem]


def open_layer(path: Path, driver: str, layer: str | None, *, prefer_pixels: bool = False) -> VectorLayer:
    """Open a layer of a vector file; None for the only one.

    prefer_pixels : take the rows and columns of a table that has both these and map coordinates
    """
    layers = layer_names(path, driver)
    if not layers:
        raise LabelsError(f"{path} holds no layer of features: polygons, lines or points with a class are expected")
    if layer is not None and layer not in layers:
        raise LabelsError(f"{path} has no layer {layer!r}: it holds {', '.join(layers)}; name one as {path}:LAYER")
    if layer is None and len(layers) > 1:
        raise LabelsError(f"{path} holds several layers: {', '.join(layers)}; name one as {path}:{layers[0]}")
    name = layer or layers[0]
    with translate_errors(path):
        if driver == "CSV":
            return csv_layer(path, prefer_pixels=prefer_pixels)
        if driver == "KML":
            return kml_layer(path, name, path)
        if driver == archive.ZIP:
            member = archive.vector_members(path)[name]
            if member.endswith(".kml"):
                return kml_layer(path, name, archive.read_member(path, member))
        return _open_by_gdal(path, name, _check(path, driver, name))


def _open_by_gdal(path: Path, name: str, checked: _Checked) -> VectorLayer:
    import pyogrio

    driver, source, content, reference = checked
    info = pyogrio.read_info(source, **_options(driver, name), force_feature_count=True)
    if info["driver"] != driver:
        raise LabelsError(f"{path} is a file of {driver} but GDAL opens it as {info['driver']}: save it again")
    size = file_size(source) if isinstance(source, Path) else len(source) + _LEAST
    if info["features"] > size // _LEAST:
        raise ValueError(f"{info['features']} features")
    if driver == "FlatGeobuf":
        count = int(info["features"])
        boxes = vector_check.flatgeobuf_boxes(path, count)  # with an index, all features have a geometry
        content = None if boxes is None else Content(count, count, boxes)
    return VectorLayer(
        path,
        driver,
        name,
        str(info["geometry_type"]),
        info["crs"] or None,
        dict(zip(info["fields"].tolist(), info["dtypes"].tolist(), strict=True)),
        int(info["features"]),
        source,
        content,
        reference,
    )


def read_features(
    layer: VectorLayer, fields: Sequence[str] = (), *, within: Box | None = None, geometry: bool = True
) -> Features:
    """Read geometries and some fields of all features of a layer, or of those that intersect a box."""
    import pyogrio
    import shapely

    if isinstance(layer.source, Features):
        columns = layer.source.columns
        return Features(layer.source.geometries, {name: columns[name] for name in columns if name in fields})
    with translate_errors(layer.path), np.errstate(all="ignore"):  # coordinates that are NaN are refused later
        _, _, wkb, values = pyogrio.raw.read(
            layer.source,
            **_options(layer.driver, layer.name),
            columns=list(fields),
            read_geometry=geometry,
            force_2d=True,
            bbox=within,
        )
        rows = len(wkb) if geometry else (len(values[0]) if values else 0)
        if within is None and (geometry or values) and rows != layer.count:
            raise ValueError(f"{rows} of {layer.count} features")
        shapes = shapely.from_wkb(wkb) if geometry else np.full(rows, None)
        if within is None and geometry and layer.content is not None:
            count = int((~shapely.is_missing(shapes)).sum())
            if count != layer.content.geometries:
                raise ValueError(f"{count} of {layer.content.geometries} geometries")
            if layer.content.boxes is not None and not _agree(layer.content.boxes, shapely.bounds(shapes)):
                raise ValueError("features outside their boxes")
    order = [name for name in layer.fields if name in fields]  # pyogrio returns columns in the file's order
    return Features(shapes, dict(zip(order, values, strict=True)))


def _check(path: Path, driver: str, layer: str) -> _Checked:
    """Check a file before GDAL opens it."""
    if driver == "GeoJSON":
        if path.stat().st_size > vector_check.MOST_JSON:
            raise LabelsError(
                f"{path} has {path.stat().st_size:,} bytes: GeoJSON is read up to {vector_check.MOST_JSON:,}; save "
                "it as a GeoPackage"
            )
        raw = path.read_bytes()
        json = vector_check.check_geojson(path, raw)
        return _Checked(driver, raw, json.content, "own" if json.has_crs else "default")
    if driver == "GPKG":
        content = vector_check.check_geopackage_layer(path, layer, with_boxes=not is_large(path))
        return _Checked(driver, _source(path, driver), content)
    if driver == "ESRI Shapefile":
        if path.suffix.lower() != _ENDINGS[driver]:
            raise LabelsError(f"{path} is part of a shapefile: name its .shp")
        return _Checked(driver, _source(path, driver), vector_check.check_shapefile(path))
    if driver == archive.ZIP:
        return _Checked("ESRI Shapefile", *archive.read_shapefile(path, archive.vector_members(path)[layer]))
    if driver == geodatabase.DRIVER:
        geodatabase.check_geodatabase(path)
    # The feature counts of FlatGeobuf and geodatabases are in tables that only GDAL parses.
    return _Checked(driver, _source(path, driver), None)


def _source(path: Path, driver: str) -> Path | bytes:
    """The path, or the content of a file whose name GDAL would interpret otherwise."""
    from pyogrio.util import vsi_path

    absolute = path.absolute()
    # pyogrio interprets some names, with ! or ; in them, as addresses, and would read another file.
    is_plain = vsi_path(absolute) == str(absolute) and not str(absolute).startswith("/vsi")
    if is_plain and path.suffix.lower() == _ENDINGS[driver]:
        return absolute
    if driver == "ESRI Shapefile" or path.is_dir() or is_large(path):
        raise LabelsError(f"{path} has an unusual name: call it labels{_ENDINGS[driver]}, say, without '!' and ';'")
    return path.read_bytes()


def _agree(boxes: npt.NDArray[np.float64], bounds: npt.NDArray[np.float64]) -> bool:
    """Whether stored boxes (n, 4) equal the bounds (n, 4) of the geometries, up to rounding; NaN is not compared."""
    both = ~(np.isnan(boxes).any(axis=1) | np.isnan(bounds).any(axis=1))
    return bool(np.allclose(boxes[both], bounds[both], rtol=1e-9, atol=1e-9))


def _options(driver: str, layer: str) -> dict[str, str | int]:
    """Options of pyogrio; a GeoPackage is opened without locks and temporary files."""
    if driver == "GPKG":
        return {"layer": layer, "IMMUTABLE": "YES"}
    return {"layer": layer if driver == geodatabase.DRIVER else 0}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn errors and warnings of pyogrio into LabelsError and DataWarning."""
    from pyogrio.errors import CRSError

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    except HypercapsError:
        raise
    except PermissionError:
        raise LabelsError(f"{path} can't be read: permission denied") from None
    except UnicodeEncodeError:
        raise LabelsError(f"{path} has a name that is not valid text (UTF-8): rename it") from None
    except CRSError as cause:
        raise LabelsError(f"{path} has a coordinate system that can't be read: assign it again in a GIS") from cause
    except Exception as cause:  # pyogrio raises nearly any type on damaged files, UnboundLocalError included
        raise LabelsError(
            f"{path} ({file_size(path):,} bytes) is truncated, damaged or not of the format of its first bytes "
            f"({type(cause).__name__}): a complete vector file is expected, get it again"
        ) from cause
    for text in dict.fromkeys(str(one.message) for one in caught):
        if any(sign in text for sign in _LOST):
            raise LabelsError(
                f"{path} is damaged or was written wrongly ({text.rstrip('.')}): repair it or get it again"
            )
        if not any(sign in text for sign in _HARMLESS):
            warn_data(f"{path.name}: {text}")
