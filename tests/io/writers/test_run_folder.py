"""The run's folder: whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from hypercaps.errors import OutputError
from hypercaps.io.writers.run_folder import CHECKPOINT, RunFolder
from hypercaps.pipeline.run_files import RUN_FILES as DESCRIBED
from support.plain_user import plain_user

Usage = namedtuple("Usage", "total used free")
RUN_FILES = tuple(DESCRIBED)


def contents(folder: Path) -> dict[str, str]:
    """Everything below a folder: files with their text, folders with an empty one."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "/" for path in sorted(folder.rglob("*"))
    }


def fill(staging: Path, text: str = "new", names: tuple[str, ...] = RUN_FILES) -> None:
    for name in names:
        (staging / name).write_text(text)


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A folder with a whole run and two files of the user."""
    out = tmp_path / "run"
    out.mkdir()
    fill(out, "old")
    (out / "notes.txt").write_text("mine")
    (out / "figures").mkdir()
    (out / "figures" / "a.png").write_text("mine too")
    return out


# The good end


@pytest.mark.parametrize("where", ["run", "new/deep/run"])
def test_files_appear_only_at_the_end(where: str, tmp_path: Path) -> None:
    out = tmp_path / where
    with RunFolder(out, RUN_FILES) as staging:
        fill(staging)
        assert not any((out / name).exists() for name in RUN_FILES)
        assert staging.parent == out  # the same disk: moving is renaming
    assert contents(out) == dict.fromkeys(sorted(RUN_FILES), "new")


def test_metrics_appear_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        moved.append(Path(target).name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    with RunFolder(tmp_path / "run", RUN_FILES) as staging:
        fill(staging)
    assert sorted(moved) == sorted(RUN_FILES)
    assert moved[-1] == "metrics.json"


def test_an_empty_folder_and_a_foreign_one_are_welcome(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with RunFolder(tmp_path / "run", RUN_FILES) as staging:
        fill(staging, names=("model.safetensors",))
    assert contents(tmp_path / "run") == {"model.safetensors": "new", "notes.txt": "mine"}


def test_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RunFolder(Path("runs/a"), RUN_FILES) as staging:
        fill(staging, names=("metrics.json",))
    assert contents(tmp_path) == {"runs": "/", "runs/a": "/", "runs/a/metrics.json": "new"}


# The bad end


@pytest.mark.parametrize("wrong", [ValueError("diverged"), KeyboardInterrupt(), SystemExit(2), OutputError("no")])
@pytest.mark.parametrize("where", ["run", "new/deep/run"])
def test_nothing_is_left_when_it_goes_wrong(where: str, wrong: BaseException, tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text("here")
    with pytest.raises(type(wrong)) as caught, RunFolder(tmp_path / where, RUN_FILES) as staging:
        fill(staging)
        raise wrong
    assert caught.value is wrong
    assert contents(tmp_path) == {"before.txt": "here"}


@pytest.mark.parametrize("wrong", [ValueError, KeyboardInterrupt])
def test_a_folder_that_was_there_stays(wrong: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(wrong), RunFolder(tmp_path / "run", RUN_FILES) as staging:
        fill(staging)
        raise wrong
    assert contents(tmp_path) == {"run": "/"}


def test_what_others_put_there_meanwhile_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="diverged"), RunFolder(tmp_path / "new" / "run", RUN_FILES) as staging:
        fill(staging)
        (tmp_path / "new" / "notes.txt").write_text("mine")
        raise ValueError("diverged")
    assert contents(tmp_path) == {"new": "/", "new/notes.txt": "mine"}


@pytest.mark.parametrize("wrong", [ValueError, KeyboardInterrupt])
def test_force_changes_nothing_when_it_goes_wrong(wrong: type[BaseException], older: Path) -> None:
    before = contents(older)
    with pytest.raises(wrong), RunFolder(older, RUN_FILES, force=True) as staging:
        fill(staging)
        raise wrong
    assert contents(older) == before


@pytest.fixture
def breaks_at_the_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails while files are moved to their final names, once."""
    calls = iter(range(1000))
    replace = Path.replace

    def failing(path: Path, target: Path) -> Path:
        if next(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", failing)


@pytest.mark.usefixtures("breaks_at_the_third")
def test_nothing_is_left_when_showing_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="Input/output error"),
        RunFolder(tmp_path / "new" / "run", RUN_FILES) as staging,
    ):
        fill(staging)
    assert contents(tmp_path) == {}


@pytest.mark.usefixtures("breaks_at_the_third")
def test_the_older_run_is_back_when_showing_fails(older: Path) -> None:
    before = contents(older)
    with pytest.raises(OutputError, match="Input/output error"), RunFolder(older, RUN_FILES, force=True) as staging:
        fill(staging, names=("model.safetensors", "history.csv", "map.tif", "metrics.json"))
    assert contents(older) == before


# An older run


@pytest.mark.parametrize("name", RUN_FILES)
def test_an_older_run_is_not_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(OutputError, match=rf"already holds a run \({name}\).*--force"):
        RunFolder(tmp_path, RUN_FILES).check()
    with pytest.raises(OutputError, match="already holds a run"), RunFolder(tmp_path, RUN_FILES):
        pytest.fail("the work began")
    assert contents(tmp_path) == {name: "old"}


def test_force_replaces_the_run_and_keeps_what_is_foreign(older: Path) -> None:
    with RunFolder(older, RUN_FILES, force=True) as staging:
        fill(staging, names=("model.safetensors", "metrics.json"))
        assert (older / "map.tif").read_text() == "old"
    assert contents(older) == {
        "figures": "/",
        "figures/a.png": "mine too",
        "metrics.json": "new",
        "model.safetensors": "new",
        "notes.txt": "mine",
    }


def test_force_on_a_new_folder(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", RUN_FILES, force=True) as staging:
        fill(staging, names=("metrics.json",))
    assert contents(tmp_path) == {"run": "/", "run/metrics.json": "new"}


# Places that don't work


@pytest.mark.parametrize("force", [False, True])
def test_a_file_in_place_of_the_folder(force: bool, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(OutputError, match=r"run is a file: give a folder"):
        RunFolder(tmp_path / "run", RUN_FILES, force=force).check()
    with pytest.raises(OutputError, match="is a file"), RunFolder(tmp_path / "run", RUN_FILES, force=force):
        pytest.fail("the work began")
    assert contents(tmp_path) == {"run": "a file"}


def test_links_in_place_of_the_folder_or_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match=r"run is a link to nothing: give a folder"):
        RunFolder(tmp_path / "run", RUN_FILES, force=True).check()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / CHECKPOINT).symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match=r"checkpoint.safetensors can't be written: it is a link"):
        RunFolder(tmp_path / "out", RUN_FILES, force=True).check()
    assert (tmp_path / "out" / CHECKPOINT).is_symlink() and not (tmp_path / "nowhere").exists()


def test_a_file_on_the_way_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(OutputError, match="can't be written"), RunFolder(tmp_path / "runs" / "first", RUN_FILES):
        pytest.fail("the work began")
    assert contents(tmp_path) == {"runs": "a file"}


@pytest.mark.parametrize("where", ["", "run", "new/deep/run"])
def test_a_disk_without_room(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 2_000_000))
    with pytest.raises(OutputError, match=r"about 2\.5 MB are needed and 2\.0 MB are free, the disk is full"):
        RunFolder(tmp_path / where, RUN_FILES, needs_bytes=2_500_000).check()
    with (
        pytest.raises(OutputError, match="disk is full"),
        RunFolder(tmp_path / where, RUN_FILES, needs_bytes=2_500_000),
    ):
        pytest.fail("the work began")
    assert contents(tmp_path) == {}
    with RunFolder(tmp_path / where, RUN_FILES, needs_bytes=2_000_000) as staging:
        fill(staging, names=("metrics.json",))


def test_the_disk_that_counts_is_the_folders_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Usage:
        asked.append(Path(path))
        return Usage(10**9, 0, 10**9)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    RunFolder(tmp_path / "new" / "run", RUN_FILES).check()
    (tmp_path / "run").mkdir()
    RunFolder(tmp_path / "run", RUN_FILES).check()
    assert asked == [tmp_path, tmp_path / "run"]


def test_a_disk_that_fills_up_while_making_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Path.mkdir

    def full(path: Path, **options: Any) -> None:
        if path.name.startswith(".partial-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mkdir(path, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OutputError, match="disk is full"), RunFolder(tmp_path / "new" / "run", RUN_FILES):
        pytest.fail("the work began")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("where", ["", "run", "new/deep/run"])
def test_a_place_that_may_not_be_written(where: str) -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0o500)
        with pytest.raises(OutputError, match="not writable"), RunFolder(folder / "locked" / where, RUN_FILES):
            pytest.fail("the work began")
        assert contents(folder) == {"locked": "/"}


def test_a_place_that_may_not_be_entered() -> None:
    with plain_user() as folder:
        (folder / "locked").mkdir(mode=0)
        with pytest.raises(OutputError, match="locked"):
            RunFolder(folder / "locked" / "run", RUN_FILES).check()
        with pytest.raises(OutputError, match="locked"), RunFolder(folder / "locked" / "run", RUN_FILES):
            pytest.fail("the work began")


def test_a_folder_belongs_to_one_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with RunFolder(out, RUN_FILES) as staging:
        (staging / "metrics.json").write_text("first")
        with pytest.raises(OutputError, match="out is being written by another"), RunFolder(out, RUN_FILES):
            pytest.fail("the work began")
    assert contents(out) == {"metrics.json": "first"}


def test_a_run_that_ended_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """By a program that does not lock the folder, such as another version."""
    out = tmp_path / "out"
    with pytest.raises(OutputError, match="already holds a run"), RunFolder(out, RUN_FILES) as staging:
        (staging / "metrics.json").write_text("second")
        (out / "metrics.json").write_text("first")
    assert contents(out) == {"metrics.json": "first"}


def test_a_checkpoint_is_replaced_by_the_finished_run_and_by_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="stopped"), RunFolder(out, RUN_FILES):
        (out / CHECKPOINT).write_text("half")
        raise ValueError("stopped")
    assert contents(out) == {CHECKPOINT: "half"}
    with pytest.raises(OutputError, match=r"not finished: continue it with 'hypercaps train --resume .*out'"):
        RunFolder(out, RUN_FILES).check()
    for options in ({"resume": True}, {"force": True}):
        (out / CHECKPOINT).write_text("half")
        (out / ".partial-killed").mkdir(exist_ok=True)  # left by a process that was killed
        with RunFolder(out, RUN_FILES, **options) as staging:
            (staging / "metrics.json").write_text("whole")
        assert contents(out) == {"metrics.json": "whole"}
        (out / "metrics.json").unlink()
