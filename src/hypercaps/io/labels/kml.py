"""KML: the placemarks of a file with their names, folders and extended data. Links to other files are not followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt

from hypercaps.errors import LabelsError
from hypercaps.io.labels.layer import Features, VectorLayer
from hypercaps.io.xml import parse_xml

_MAX_BYTES = 1 << 26
_MAX_ELEMENTS = 2_000_000
_WGS84 = "EPSG:4326"  # the only system of KML


class _Placemark(NamedTuple):
    fields: dict[str, str]
    geometry: Element | None


def is_kml(path: Path, head: bytes) -> bool:
    """Whether a file is KML by its first bytes, without a byte order mark and blanks, and its name."""
    return head.startswith(b"<") and (b"<kml" in head or path.suffix.lower() == ".kml")


def kml_layer(path: Path, name: str, source: Path | bytes) -> VectorLayer:
    """All placemarks of a KML file as one layer; ``source`` is the file, or its content."""
    size = source.stat().st_size if isinstance(source, Path) else len(source)
    if size > _MAX_BYTES:
        raise LabelsError(f"{path} has {size:,} bytes: KML is read up to {_MAX_BYTES:,}; save it as a GeoPackage")
    raw = source.read_bytes() if isinstance(source, Path) else source
    root = parse_xml(raw, str(path), max_elements=_MAX_ELEMENTS)
    placemarks = list(_placemarks(root, ""))
    if not placemarks and next(root.iter("NetworkLink"), None) is not None:
        raise LabelsError(f"{path} only refers to other files, which are not opened: name the file with the features")
    geometries = np.full(len(placemarks), None, dtype=object)
    for place, placemark in enumerate(placemarks):
        geometries[place] = _geometry_of(placemark, f"placemark {place + 1} of {path}")
    return VectorLayer.parsed(path, "KML", name, _WGS84, Features(geometries, _columns(placemarks)))


def _placemarks(element: Element, folder: str) -> Iterator[_Placemark]:
    """Every placemark below an element, with the name of its folder."""
    for child in element:
        if child.tag == "Placemark":
            fields = {"name": child.findtext("name", ""), **_extended_data(child), "folder": folder}
            geometry = (each for each in child if each.tag in _SHAPES or each.tag == "MultiGeometry")
            yield _Placemark({key: value.strip() for key, value in fields.items()}, next(geometry, None))
        elif child.tag in ("Document", "Folder", "kml"):
            yield from _placemarks(child, child.findtext("name", "") if child.tag == "Folder" else folder)


def _extended_data(placemark: Element) -> dict[str, str]:
    data = {each.get("name", ""): each.findtext("value", "") for each in placemark.iterfind("ExtendedData/Data")}
    typed = placemark.iterfind("ExtendedData/SchemaData/SimpleData")
    fields = data | {each.get("name", ""): each.text or "" for each in typed}
    return {name: value for name, value in fields.items() if name and name.isprintable()}


def _columns(placemarks: list[_Placemark]) -> dict[str, npt.NDArray[np.object_]]:
    """The fields that placemarks have; the folder only if it differs between them."""
    names = dict.fromkeys(name for placemark in placemarks for name in placemark.fields)
    columns = {
        name: np.array([placemark.fields.get(name, "") for placemark in placemarks], dtype=object) for name in names
    }
    return {
        name: column
        for name, column in columns.items()
        if (column != "").any() and (name != "folder" or (column != column[0]).any())
    }


def _geometry_of(placemark: _Placemark, where: str) -> object:
    import shapely

    if placemark.geometry is None:
        return None
    try:
        parts = list(_shapes(placemark.geometry))
        return parts[0] if len(parts) == 1 else shapely.GeometryCollection(parts)
    except (ValueError, IndexError, shapely.GEOSException) as error:
        raise LabelsError(f"{where} has a geometry that can't be read ({error}): correct it or get it again") from None


def _shapes(element: Element) -> Iterator[object]:
    """The points, lines and polygons of a geometry."""
    if element.tag in _SHAPES:
        yield _SHAPES[element.tag](element)
    for child in element if element.tag == "MultiGeometry" else ():
        yield from _shapes(child)


def _point(element: Element) -> object:
    import shapely

    return shapely.Point(_coordinates(element)[0])


def _line(element: Element) -> object:
    import shapely

    return shapely.LineString(_coordinates(element))


def _polygon(element: Element) -> object:
    import shapely

    outer = element.find("outerBoundaryIs/LinearRing")
    if outer is None:
        raise ValueError("a polygon without a boundary")
    holes = element.iterfind("innerBoundaryIs/LinearRing")
    return shapely.Polygon(_coordinates(outer), [_coordinates(ring) for ring in holes])


def _coordinates(element: Element) -> npt.NDArray[np.float64]:
    """(n, 2) longitude and latitude; heights are left out."""
    places = [text.split(",")[:2] for text in element.findtext("coordinates", "").split()]
    if any(len(place) != 2 for place in places):
        raise ValueError("a coordinate without a longitude and a latitude")
    return np.array([[float(number) for number in place] for place in places], dtype=np.float64).reshape(-1, 2)


_SHAPES = {"Point": _point, "LineString": _line, "LinearRing": _line, "Polygon": _polygon}
