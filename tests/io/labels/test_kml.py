"""KML: placemarks with names, folders and extended data; links and entities are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import rasterio.warp
import shapely

from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.detect import detect_file
from hypercaps.io.labels import kml
from hypercaps.io.open import open_labels
from support.vectors import KINDS, names, on_grid, scene_on

SQUARES = [shapely.box(1, 1, 5, 5), shapely.box(10, 2, 14, 9), shapely.box(30, 20, 42, 30)]


def in_degrees(x: list[float], y: list[float]) -> str:
    lon, lat = rasterio.warp.transform("EPSG:32633", "EPSG:4326", x, y)
    return " ".join(f"{a:.12f},{b:.12f},0" for a, b in zip(lon, lat, strict=True))


def ring(polygon: shapely.Polygon) -> str:
    x, y = shapely.get_coordinates(on_grid(polygon)).T
    return f"<LinearRing><coordinates>\n{in_degrees(x.tolist(), y.tolist())}\n</coordinates></LinearRing>"


def placemark(polygon: shapely.Polygon, inside: str, hole: shapely.Polygon | None = None) -> str:
    inner = "" if hole is None else f"<innerBoundaryIs>{ring(hole)}</innerBoundaryIs>"
    shape = f"<Polygon><outerBoundaryIs>{ring(polygon)}</outerBoundaryIs>{inner}</Polygon>"
    return f"<Placemark>{inside}{shape}</Placemark>"


def document(content: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<kml xmlns="http://www.opengis.net/kml/2.2"><Document>'
        f"<name>mine</name>{content}</Document></kml>"
    )


def written(path: Path, content: str) -> Path:
    path.write_text(document(content), encoding="utf-8")
    return path


BY_NAME = "".join(placemark(square, f"<name>{kind}</name>") for square, kind in zip(SQUARES, KINDS, strict=True))


def test_classes_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.kml", BY_NAME)
    assert detect_file(path).vector_driver == "KML"
    with pytest.warns(DataWarning, match="field 'name'"):
        labels = open_labels(path, scene=scene_on())
    assert names(labels) == [(1, "soil"), (2, "tree"), (3, "water")]
    assert labels.counts() == {1: 28, 2: 16, 3: 120}
    kmz = tmp_path / "a.kmz"
    with zipfile.ZipFile(kmz, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, "doc.kml")
        archive.writestr("files/icon.png", b"")
    np.testing.assert_array_equal(open_labels(kmz, scene=scene_on(), class_field="name").array, labels.array)


@pytest.mark.parametrize("form", ["Data", "SchemaData"])
def test_classes_by_extended_data(form: str, tmp_path: Path) -> None:
    texts = {
        "Data": '<ExtendedData><Data name="kind"><value>{}</value></Data></ExtendedData>',
        "SchemaData": '<ExtendedData><SchemaData><SimpleData name="kind">{}</SimpleData></SchemaData></ExtendedData>',
    }
    places = [placemark(square, texts[form].format(kind)) for square, kind in zip(SQUARES, KINDS, strict=True)]
    with pytest.warns(DataWarning, match="field 'kind'"):
        assert len(open_labels(written(tmp_path / "a.kml", "".join(places)), scene=scene_on()).legend) == 3


def test_classes_by_folder_and_holes_points_and_lines(tmp_path: Path) -> None:
    point = f"<Placemark><Point><coordinates>{in_degrees([366505], [5809305])}</coordinates></Point></Placemark>"
    line = f"<LineString><coordinates>{in_degrees([366505, 366525], [5809255, 5809255])}</coordinates></LineString>"
    folders = (
        f"<Folder><name>field</name>{placemark(SQUARES[2], '', shapely.box(32, 22, 34, 24))}</Folder>"
        f"<Folder><name>road</name>{point}<Placemark><MultiGeometry>{line}</MultiGeometry></Placemark></Folder>"
    )
    labels = open_labels(written(tmp_path / "a.kml", folders), scene=scene_on(), class_field="folder")
    assert names(labels) == [(1, "field"), (2, "road")] and labels.counts() == {1: 120 - 4, 2: 4}
    assert np.argwhere(labels.array == 2).tolist() == [[29, 50], [34, 50], [34, 51], [34, 52]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("<NetworkLink><Link><href>file:///etc/passwd</href></Link></NetworkLink>", "only refers to other files"),
        ("<Placemark><name>a</name><Point><coordinates>12,x</coordinates></Point></Placemark>", "placemark 1 of"),
        ("<Placemark><name>a</name><Point><coordinates>12</coordinates></Point></Placemark>", "placemark 1 of"),
        ("<Placemark><name>a</name><Point><coordinates/></Point></Placemark>", "placemark 1 of"),
        ("<Placemark><name>a</name><Polygon/></Placemark>", "polygon without a boundary"),
        ("<Placemark><name>a</name></Placemark>", "labels a pixel.*1 without a geometry"),
        ("", "no field of text"),
        ("<Folder>" * 100, "nested more than 64"),
        ("<Placemark>", "not valid XML"),
    ],
)
def test_files_that_are_refused(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match=sentence):
        open_labels(written(tmp_path / "a.kml", content), scene=scene_on(), class_field=None if not content else "name")


def test_entities_and_long_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = '<!DOCTYPE kml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + document("<name>&b;</name>")
    (tmp_path / "a.kml").write_text(bomb)
    with pytest.raises(LabelsError, match="document type"):
        open_labels(tmp_path / "a.kml", scene=scene_on())
    monkeypatch.setattr(kml, "_MAX_BYTES", 100)
    with pytest.raises(LabelsError, match="KML is read up to 100"):
        open_labels(written(tmp_path / "b.kml", BY_NAME), scene=scene_on())
