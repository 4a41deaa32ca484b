"""Zipped shapefiles: read without unpacking, within limits, and with the checks of shapefiles."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from hypercaps.errors import LabelsError
from hypercaps.io.labels import archive
from hypercaps.io.open import open_labels
from hypercaps.pipeline.describe import describe
from support.vectors import KINDS, SQUARES, names, scene_on, write


def zipped(
    folder: Path, path: Path, *, inside: str = "", leave_out: str = "", method: int = zipfile.ZIP_DEFLATED
) -> Path:
    """Zip every file of a folder."""
    with zipfile.ZipFile(path, "w", method) as file:
        for part in sorted(folder.iterdir()):
            if not leave_out or part.suffix != leave_out:
                file.write(part, inside + part.name)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts" / "fields.shp", SQUARES, {"kind": KINDS})
    return tmp_path / "parts"


@pytest.mark.parametrize("inside", ["", "some/folder/", "../../up/"])
def test_a_zipped_shapefile(inside: str, folder: Path, tmp_path: Path) -> None:
    path = zipped(folder, tmp_path / "a.zip", inside=inside)
    labels = open_labels(path, scene=scene_on(), class_field="kind")
    right = open_labels(folder / "fields.shp", scene=scene_on(), class_field="kind")
    np.testing.assert_array_equal(labels.array, right.array)
    assert names(labels) == names(right)
    assert {entry.name for entry in tmp_path.iterdir()} == {"parts", "a.zip"}  # nothing was unpacked


def test_several_shapefiles(folder: Path, tmp_path: Path) -> None:
    write(folder / "other.shp", SQUARES[:1], {"kind": KINDS[:1]})
    path = zipped(folder, tmp_path / "a.zip")
    with pytest.raises(LabelsError, match="several layers: fields, other"):
        open_labels(path, scene=scene_on(), class_field="kind")
    assert names(open_labels(f"{path}:other", scene=scene_on(), class_field="kind")) == [(1, "tree")]
    assert describe(f"{path}:fields").to_json()["features"] == 3


@pytest.mark.parametrize("part", [".shx", ".dbf"])
def test_missing_parts(part: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match=f"a.zip lacks fields{part}"):
        open_labels(zipped(folder, tmp_path / "a.zip", leave_out=part), scene=scene_on(), class_field="kind")


def test_limits(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "fields.dbf").write_bytes((folder / "fields.dbf").read_bytes() + bytes(1 << 20))
    path = zipped(folder, tmp_path / "a.zip")
    monkeypatch.setattr(archive, "_MAX_UNPACKED", 1 << 20)
    with pytest.raises(LabelsError, match=r"unpacks to 1,\d+,\d+ bytes"):
        open_labels(path, scene=scene_on(), class_field="kind")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "_MAX_DIRECTORY", 100)
    with pytest.raises(LabelsError):  # no vector file is looked for
        open_labels(path, scene=scene_on(), class_field="kind")


def test_a_size_that_is_smaller_than_the_content(folder: Path, tmp_path: Path) -> None:
    """The unpacked size is only what the archive claims."""
    path = zipped(folder, tmp_path / "a.zip")
    with zipfile.ZipFile(path) as file:
        sizes = [info.file_size for info in file.infolist()]
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")  # of the first file in the list at the end
    assert int.from_bytes(content[place + 24 : place + 28], "little") == sizes[0]
    content[place + 24 : place + 28] = (3).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(LabelsError, match="damaged"):
        open_labels(path, scene=scene_on(), class_field="kind")


def test_unusual_compression_and_damage(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="compressed in an unusual way"):
        open_labels(zipped(folder, tmp_path / "a.zip", method=zipfile.ZIP_LZMA), scene=scene_on(), class_field="kind")
    path = zipped(folder, tmp_path / "b.zip")
    whole = open_labels(path, scene=scene_on(), class_field="kind").array
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        (tmp_path / "c.zip").write_bytes(damaged)
        try:
            found = open_labels(tmp_path / "c.zip", scene=scene_on(), class_field="kind")
        except LabelsError:
            continue
        np.testing.assert_array_equal(found.array, whole)


def test_an_archive_of_something_else_says_what_to_do(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "fields.gdb.zip", "w") as file:
        file.writestr("fields.gdb/a00000001.gdbtable", b"1")
    with pytest.raises(LabelsError, match=r"without arrays .*, shapefile or KML in it: unpack it"):
        open_labels(tmp_path / "fields.gdb.zip", scene=scene_on())
