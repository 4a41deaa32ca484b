"""Writing: all or nothing, and rasters that say the same when they are read back."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import (
    check_output,
    open_for_update,
    write_all_or_nothing,
    write_bytes,
    write_csv,
    write_json,
    write_npz,
)
from support.plain_user import plain_user


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# All or nothing


def test_bytes_are_written_and_replaced(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a.bin", b"first and long")
    write_bytes(tmp_path / "a.bin", b"second")
    assert (tmp_path / "a.bin").read_bytes() == b"second"
    assert names(tmp_path) == ["a.bin"]


def test_the_final_name_is_taken_after_the_content_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, bool]] = []
    fsync = os.fsync

    def watched(number: int) -> None:
        fsync(number)
        seen.append((os.fstat(number).st_size, (tmp_path / "a.bin").exists()))

    monkeypatch.setattr(os, "fsync", watched)
    write_bytes(tmp_path / "a.bin", b"12345")
    assert seen[0] == (5, False)
    assert (tmp_path / "a.bin").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("before", [None, b"old content"])
def test_a_full_disk(number: int, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    if before is not None:
        path.write_bytes(before)

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"a\.bin can't be written: the disk is full; free some space"):
        write_bytes(path, b"new content")
    assert names(tmp_path) == ([] if before is None else ["a.bin"])
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EROFS, "not writable"), (errno.EACCES, "not writable"), (errno.EIO, "Input/output error")],
)
def test_other_refusals_at_the_last_step(
    number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bin").write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match=f"{reason}; choose another place"):
        write_bytes(tmp_path / "a.bin", b"new")
    assert names(tmp_path) == ["a.bin"]
    assert (tmp_path / "a.bin").read_bytes() == b"old"


def test_ctrl_c_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a.bin", b"new")
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a\.bin can't be written"):
        write_bytes(tmp_path / "nowhere" / "a.bin", b"new")
    assert names(tmp_path) == []


def test_a_folder_that_may_not_be_written() -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(OutputError, match="not writable"):
            write_bytes(folder / "locked" / "a.bin", b"new")


def test_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(RuntimeError), write_all_or_nothing([tmp_path / "a", tmp_path / "b"]) as temporary:
        temporary[tmp_path / "a"].write_bytes(b"new")
        assert not (tmp_path / "a").exists()
        raise RuntimeError
    assert names(tmp_path) == ["b"]
    with (
        pytest.raises(OutputError, match="b can't be written"),
        write_all_or_nothing([tmp_path / "a", tmp_path / "b"]) as temporary,
    ):
        temporary[tmp_path / "a"].write_bytes(b"new")  # and b was forgotten
    assert names(tmp_path) == ["b"] and (tmp_path / "b").read_bytes() == b"old"


# Only files are replaced


def make_special(folder: Path) -> dict[Path, str]:
    """Things that are not files, and the reason for which they are refused."""
    (folder / "target").write_bytes(b"old")
    (folder / "link").symlink_to(folder / "target")
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    reasons = {"link": "it is a link", "dangling": "it is a link", "folder": "a folder", "pipe": "a device or a pipe"}
    return {folder / name: reason for name, reason in reasons.items()}


def test_nothing_but_a_file_is_replaced(tmp_path: Path) -> None:
    special = make_special(tmp_path)
    before = {path: path.lstat() for path in tmp_path.iterdir()}
    for path, reason in special.items():
        with pytest.raises(OutputError, match=f"can't be written: .*{reason}"):
            check_output(path)
        with pytest.raises(OutputError, match=f"can't be written: .*{reason}"):
            write_bytes(path, b"new")
        with pytest.raises(OutputError, match=f"can't be written: .*{reason}"):
            open_for_update(path)
    assert {path: path.lstat() for path in tmp_path.iterdir()} == before


def test_a_link_that_appears_while_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(OutputError, match="it is a link"), write_all_or_nothing([path]) as temporary:
        temporary[path].write_bytes(b"new")
        path.symlink_to(tmp_path / "nowhere")
    assert names(tmp_path) == ["a"] and path.is_symlink()


# Small formats


def test_json(tmp_path: Path) -> None:
    value = {"oa": 99.5, "name": "Wälder", "list": [1, None]}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value


def test_json_without_nan(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"oa": float("nan")})
    assert (tmp_path / "a.json").read_text() == "{}"


def test_csv(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["epoch", "loss"], [[1, 0.25], [2, "a,b"]])
    assert (tmp_path / "a.csv").read_bytes() == b'epoch,loss\n1,0.25\n2,"a,b"\n'


def test_npz(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", train=np.array([3, 1]), test=np.array([], dtype=np.int64))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["train"].tolist() == [3, 1]
        assert archive["test"].shape == (0,)


# Outputs refused before the work


def test_a_good_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.mat").touch()
    check_output(tmp_path / "map.TIF", {".tif", ".tiff"}, inputs=[tmp_path / "in.mat"])
    (tmp_path / "map.tif").touch()
    check_output(tmp_path / "map.tif", {".tif"}, inputs=[tmp_path / "in.mat", tmp_path / "nowhere"])
    monkeypatch.chdir(tmp_path)
    check_output(Path("new.tif"))


def test_an_output_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "map.tif").mkdir()
    with pytest.raises(OutputError, match=r"map\.tif can't be written: it is a folder"):
        check_output(tmp_path / "map.tif", {".tif"})


def test_an_output_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"there is no folder .*new; make it first"):
        check_output(tmp_path / "new" / "map.tif")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="there is no folder"):
        check_output(tmp_path / "file" / "map.tif")
    with pytest.raises(OutputError, match=r"there is no folder .*new; make it first"):
        write_bytes(tmp_path / "new" / "map.tif", b"")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["map", "map.png", "map.tif.gz", ".tif"])
def test_an_output_with_another_ending(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in \.tif or \.tiff"):
        check_output(tmp_path / name, {".tiff", ".tif"})


def test_an_output_that_is_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "in.tif"
    source.touch()
    (tmp_path / "link.tif").symlink_to(source)
    (tmp_path / "hard.tif").hardlink_to(source)
    monkeypatch.chdir(tmp_path)
    for same in (source, Path("in.tif"), tmp_path / "link.tif", tmp_path / "hard.tif"):
        with pytest.raises(OutputError, match="twice or is an input"):
            check_output(same, inputs=[tmp_path / "other", source])


def test_two_outputs_of_one_name(tmp_path: Path) -> None:
    """Neither is there yet."""
    with pytest.raises(OutputError, match="twice or is an input"):
        check_output(tmp_path / "a.tif", inputs=[tmp_path / "a.tif"])


def test_an_output_in_a_folder_that_may_not_be_entered() -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0)
        with pytest.raises(OutputError, match=r"map\.tif"):
            check_output(folder / "locked" / "map.tif")


def test_an_output_in_a_folder_that_may_not_be_written() -> None:
    """Said before the work and not after it."""
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(OutputError, match="not writable"):
            check_output(folder / "locked" / "map.tif")


def test_an_output_inside_an_input_that_is_a_folder(tmp_path: Path) -> None:
    store = tmp_path / "cube.zarr"
    store.mkdir()
    with pytest.raises(OutputError, match="twice or is an input"):
        check_output(store / "zarr.json", inputs=[store])
    check_output(tmp_path / "zarr.json", inputs=[store])
