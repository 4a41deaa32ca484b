"""Vector files: detected by content, refused if damaged, and no other file is read."""

from __future__ import annotations

import json
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import shapely

from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.labels import layer as vector_layer
from hypercaps.io.open import open_labels, open_scene
from hypercaps.pipeline.describe import describe
from support.vectors import KINDS, SQUARES, names, scene_on, write


def test_a_layer_of_several(tmp_path: Path) -> None:
    write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS}, layer="first")
    write(tmp_path / "a.gpkg", SQUARES[:1], {"kind": KINDS[:1]}, layer="second", append=True)
    with pytest.raises(LabelsError, match=r"several layers: first, second; name one as .*a.gpkg:first"):
        open_labels(tmp_path / "a.gpkg", scene=scene_on(), class_field="kind")
    labels = open_labels(f"{tmp_path / 'a.gpkg'}:second", scene=scene_on(), class_field="kind")
    assert names(labels) == [(1, "tree")] and labels.name == "second"
    with pytest.raises(LabelsError, match="no layer 'third': it holds first, second"):
        open_labels(f"{tmp_path / 'a.gpkg'}:third", scene=scene_on(), class_field="kind")
    assert describe(str(tmp_path / "a.gpkg")).to_json()["layers"] == ["first", "second"]
    about = describe(f"{tmp_path / 'a.gpkg'}:first").to_json()
    assert (about["kind"], about["features"], about["fields"], about["crs"]) == (
        "vector labels", 3, ["kind"], "EPSG:32633",
    )  # fmt: skip


def test_the_format_is_detected_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS}).rename(tmp_path / "labels.db")
    assert detect_file(path).kind == "vector"
    assert len(open_labels(path, scene=scene_on(), class_field="kind").legend) == 3
    (tmp_path / "scene.hdr").write_text("ENVI\n")  # the header of a scene of the same name
    path = write(tmp_path / "scene.geojson", SQUARES, {"kind": KINDS})
    assert detect_file(path).kind == "vector"
    for suffix in ("geojson", "fgb", "gpkg"):  # by name they would be text tables
        csv = write(tmp_path / f"b.{suffix}", SQUARES, {"kind": KINDS}).rename(tmp_path / f"{suffix}.csv")
        assert len(open_labels(csv, scene=scene_on(), class_field="kind").legend) == 3
    monkeypatch.setattr(vector_layer, "LARGE", 100)
    with pytest.raises(LabelsError, match=r"unusual name: call it labels\.gpkg"):
        open_labels(csv, scene=scene_on(), class_field="kind")
    with pytest.raises(SceneError, match="polygons, lines or points"):
        open_scene(path)


def vrt(path: Path, source: Path) -> Path:
    path.write_text(
        f"<OGRVRTDataSource><OGRVRTLayer name='x'><SrcDataSource>{source}</SrcDataSource></OGRVRTLayer>"
        "</OGRVRTDataSource>"
    )
    return path


@pytest.mark.parametrize("name", ["a.gpkg", "a.shp", "a.geojson", "a.fgb", "a.vrt"])
def test_a_vrt_is_refused_by_any_name(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "secret.gpkg", SQUARES, {"kind": KINDS})
    with pytest.raises(LabelsError, match="not supported"):
        open_labels(vrt(tmp_path / name, source), scene=scene_on(), class_field="kind")


def test_json_that_is_a_command(tmp_path: Path) -> None:
    command = {"type": "gdal_streamed_alg", "command_line": f"gdal vector pipeline ! read {tmp_path / 'secret.gpkg'}"}
    (tmp_path / "a.geojson").write_text(json.dumps(command))
    with pytest.raises(LabelsError, match="JSON but no GeoJSON"):
        open_labels(tmp_path / "a.geojson", scene=scene_on())
    disguised = {"type": "FeatureCollection", "features": [], "gdal_streamed_alg": command}
    (tmp_path / "b.geojson").write_text(json.dumps(disguised))
    with pytest.raises(LabelsError, match="command of GDAL"):
        open_labels(tmp_path / "b.geojson", scene=scene_on())


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIRTUAL TABLE x USING VirtualOGR('/etc/passwd')",
        "create/* */virtual table x using VirtualShape('/etc/x', 'UTF-8', 0)",
        "CREATE -- y\n VIRTUAL TABLE \"x\" USING csv(filename='/etc/passwd')",
    ],
)
def test_a_geopackage_with_tables_outside_the_file(sql: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    database = sqlite3.connect(path)
    database.execute("PRAGMA writable_schema=ON")
    database.execute("INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, ?)", (sql,))
    database.commit()
    database.close()
    with pytest.raises(LabelsError, match="stores its table 'x' outside the file"):
        open_labels(path, scene=scene_on(), class_field="kind")


def test_databases_that_are_no_labels(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "a.gpkg")
    database.execute("CREATE TABLE x (y)")
    database.close()
    with pytest.raises(LabelsError, match="no GeoPackage"):
        open_labels(tmp_path / "a.gpkg", scene=scene_on())
    path = write(tmp_path / "b.gpkg", SQUARES, {"kind": KINDS})
    database = sqlite3.connect(path)
    database.execute("CREATE VIEW v AS SELECT * FROM b")
    database.execute("UPDATE gpkg_contents SET table_name = 'v'")
    database.commit()
    database.close()
    with pytest.raises(LabelsError, match="no layer of features"):  # a view could compute anything
        open_labels(path, scene=scene_on())


def test_unsaved_changes_of_another_program(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    (tmp_path / "a.gpkg-wal").write_bytes(b"x" * 100)
    with pytest.raises(LabelsError, match=r"a.gpkg-wal"):
        open_labels(path, scene=scene_on(), class_field="kind")
    (tmp_path / "a.gpkg-wal").write_bytes(b"")
    open_labels(path, scene=scene_on(), class_field="kind")
    assert {file.name for file in tmp_path.iterdir()} == {"a.gpkg", "a.gpkg-wal"}  # no file was created


def test_a_geopackage_with_a_wrong_feature_count(tmp_path: Path) -> None:
    """GDAL uses a count that is stored separately: all features are read, or none."""
    path = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    right = open_labels(path, scene=scene_on(), class_field="kind")
    for count in (1, 10**12):
        database = sqlite3.connect(path)
        database.execute("UPDATE gpkg_ogr_contents SET feature_count = ?", (count,))
        database.commit()
        database.close()
        try:
            found = open_labels(path, scene=scene_on(), class_field="kind")
        except LabelsError:
            continue
        np.testing.assert_array_equal(found.array, right.array)


def test_parts_of_a_shapefile(tmp_path: Path) -> None:
    path = write(tmp_path / "a.shp", SQUARES, {"kind": KINDS})
    with pytest.raises(LabelsError, match=r"part of a shapefile: name its \.shp"):
        open_labels(tmp_path / "a.shx", scene=scene_on())
    for suffix in (".shx", ".dbf"):
        part = tmp_path / f"a{suffix}"
        part.rename(tmp_path / "kept")
        with pytest.raises(LabelsError, match=f"lacks a{suffix}: a shapefile is several files"):
            open_labels(path, scene=scene_on(), class_field="kind")
        (tmp_path / "kept").rename(part)
    assert len(open_labels(path, scene=scene_on(), class_field="kind").legend) == 3
    deleted = bytearray((tmp_path / "a.dbf").read_bytes())
    deleted[int.from_bytes(deleted[8:10], "little")] = ord("*")
    (tmp_path / "a.dbf").write_bytes(deleted)
    assert names(open_labels(path, scene=scene_on(), class_field="kind")) == [(1, "soil"), (2, "water")]


def test_names_that_gdal_would_interpret_as_addresses(tmp_path: Path) -> None:
    for name in ("a!b.gpkg", "a;b.gpkg", "a?b.gpkg", "a.zip"):
        path = write(tmp_path / "x.gpkg", SQUARES, {"kind": KINDS}).rename(tmp_path / name)
        assert len(open_labels(path, scene=scene_on(), class_field="kind").legend) == 3
    (tmp_path / "a!").mkdir()
    with pytest.raises(LabelsError, match="unusual name"):
        open_labels(write(tmp_path / "x.shp", SQUARES, {"kind": KINDS}).rename(tmp_path / "a;b.shp"), scene=scene_on())
    for name in ("/vsizip/a.zip/b.gpkg", "https://example.org/a.gpkg", "PG:dbname=x"):
        with pytest.raises(LabelsError, match=r"is a network address|is not a local file"):
            open_labels(name, scene=scene_on())


def test_a_header_that_claims_too_much(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fgb", [SQUARES[n % 3] for n in range(77)], {"kind": ["a"] * 77}, SPATIAL_INDEX="NO")
    content = path.read_bytes()
    count = (77).to_bytes(8, "little")
    assert content.count(count) == 1
    path.write_bytes(content.replace(count, (10**15).to_bytes(8, "little")))
    with pytest.raises(LabelsError, match="damaged"):
        open_labels(path, scene=scene_on(), class_field="kind")
    too_long = tmp_path / "a.geojson"
    with too_long.open("wb") as file:
        file.write(b'{"type": "FeatureCollection"')
        file.truncate(1 << 27)  # sparse
    with pytest.raises(LabelsError, match="save it as a GeoPackage"):
        open_labels(too_long, scene=scene_on())


def damage(whole: bytes, rng: np.random.Generator) -> bytes:
    """Truncate, flip a bit, replace some bytes, or fill 8 bytes."""
    raw, kind = bytearray(whole), rng.integers(4)
    place = int(rng.integers(len(raw)))
    if kind == 0:
        return bytes(raw[:place])
    if kind == 1:
        raw[place] ^= 1 << int(rng.integers(8))
    elif kind == 2:
        for other in rng.integers(0, len(raw), 4):
            raw[other] = rng.integers(256)
    else:
        raw[place : place + 8] = [b"\xff", b"\x00", b"\x7f"][rng.integers(3)] * len(raw[place : place + 8])
    return bytes(raw)


@pytest.mark.parametrize(
    ("suffix", "part", "silent"),
    # Undetected changes allowed, of 220: JSON and the table of a shapefile store names and numbers as text, without
    # a checksum; elsewhere a changed vertex changes its feature's box. A GeoPackage is mostly empty pages.
    [("gpkg", "gpkg", 2), ("geojson", "geojson", 12), ("fgb", "fgb", 6), ("shp", "shp", 6), ("shp", "shx", 0),
     ("shp", "dbf", 90), ("shp", "prj", 6)],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_damaged_files_never_crash_and_are_seldom_read_wrongly(
    suffix: str, part: str, silent: int, tmp_path: Path
) -> None:
    write(tmp_path / f"a.{suffix}", SQUARES * 2, {"kind": KINDS * 2, "code": [1, 2, 3] * 2})
    scene, rng = scene_on(), np.random.default_rng(7)
    right = open_labels(tmp_path / f"a.{suffix}", scene=scene, class_field="kind")
    file = tmp_path / f"a.{part}"
    whole = file.read_bytes()
    refused = different = 0
    for _ in range(220):
        file.write_bytes(damage(whole, rng))
        try:
            found = open_labels(tmp_path / f"a.{suffix}", scene=scene, class_field="kind")
            different += not np.array_equal(found.array, right.array)
        except LabelsError:
            refused += 1
    assert refused > 60 and different <= silent, (refused, different)


def test_real_points_on_real_tiles(real_data: Path) -> None:
    path = real_data / "enmap_potsdam" / "landcover_potsdam_point.gpkg"
    _, _, wkb, fields = pyogrio.raw.read(path, layer=0)
    points, kinds = shapely.get_coordinates(shapely.from_wkb(wkb)), fields[1]
    found: dict[str, int] = {}
    for tile in sorted((real_data / "enmap_potsdam" / "images").glob("*.tif")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of the tile
            scene = open_scene(tile)
        assert scene.transform is not None
        x0, y0 = scene.transform[2], scene.transform[5]
        col, row = ((points - [x0, y0]) / [30, -30]).astype(int).T
        here = (points[:, 0] >= x0) & (points[:, 1] <= y0) & (col < 32) & (row < 32)
        if not here.any():
            with pytest.raises(LabelsError, match="lies in scene"):
                open_labels(path, scene=scene, class_field="level_2")
            continue
        with pytest.warns(DataWarning, match=f"120 points: {120 - here.sum()} outside the scene, {here.sum()} used"):
            labels = open_labels(path, scene=scene, class_field="level_2")
        by_label = {entry.label: entry for entry in labels.legend}
        assert [by_label[label].name for label in labels.array[row[here], col[here]]] == list(kinds[here])
        assert (labels.array > 0).sum() == len({*zip(row[here], col[here], strict=True)})
        found |= {entry.name: entry.label for entry in labels.legend}
        colors = {entry.name: entry.color for entry in labels.legend}
        assert colors.get("water", (0, 100, 255)) == (0, 100, 255)  # from the style inside the file
    assert found == {"impervious": 1, "low vegetation": 2, "soil": 3, "tree": 4, "water": 5}
