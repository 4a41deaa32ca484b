"""Outputs never replace inputs, and are complete or absent: full disks, interruptions."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from hypercaps.classifier import ConvCapsClassifier
from support.command import MAPS, RUN_FILES, hypercaps, refused
from support.scenes import make_cube


def test_impossible_outputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, _, out, _ = run
    model = out / "model.safetensors"
    refused(hypercaps("map", model, cube, "--out", tmp_path / "m.doc"), "must end in")
    for nameless in (".", "/"):
        refused(hypercaps("map", model, cube, "--out", nameless), "it is a folder; give a file name")
        refused(hypercaps("train", cube, "--out", nameless), "give the results a folder with a name")
    (tmp_path / "file").write_text("no folder")
    refused(hypercaps("map", model, cube, "--out", tmp_path / "file" / "m.tif"), "there is no folder")
    refused(
        hypercaps("map", model, cube, "--out", tmp_path / "m.tif", "--confidence", tmp_path / "m.tif"), "of its own"
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("map", "MODEL", "CUBE", "--out", ""), "the value of --out is empty"),
        (("map", "", "CUBE", "--out", "m.tif"), "an argument is empty"),
        (("train", "CUBE", "--out="), "the value of --out is empty"),
        (("study", "quick", "--out", ""), "the value of --out is empty"),
        (("evaluate", "MODEL", "CUBE", "--json", ""), "the value of --json is empty"),
    ],
)
def test_a_variable_of_the_shell_that_is_not_set(
    command: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read as a path, nothing is the current folder, into which a study would write its results."""
    monkeypatch.chdir(tmp_path)
    refused(hypercaps(*command), said, "perhaps a variable of the shell is not set")
    assert list(tmp_path.iterdir()) == []


def test_results_never_replace_inputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels = make_cube()
    np.savez(tmp_path / "both.npz", cube=cube, other=cube)
    np.save(tmp_path / "gt.npy", labels)
    shutil.copy(run[2] / "split.npz", tmp_path / "split.npz")
    scene, truth, split = f"{tmp_path / 'both.npz'}:cube", tmp_path / "gt.npy", tmp_path / "split.npz"
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    model = run[2] / "model.safetensors"
    for target in (tmp_path / "both.npz", truth, split, model):
        refused(
            hypercaps("evaluate", model, scene, truth, "--split-file", split, "--json", target), "a name of its own"
        )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_results_never_replace_the_wavelengths(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, out, _ = run
    model, waves = out / "model.safetensors", tmp_path / "w.tif"  # a map's name must end so
    waves.write_text("\n".join(str(400 + 10 * band) for band in range(26)))
    picture, points = tmp_path / "w.png", tmp_path / "w.csv"
    for other in (picture, points):
        other.write_bytes(waves.read_bytes())
    for command, option, target in (
        (("evaluate", model, cube, labels), "--json", waves),
        (("explain", model, cube, "--at", "3,3"), "--json", waves),
        (("explain", model, cube, "--at", "3,3"), "--out", picture),
        (("suggest", model, cube), "--out", points),
        (("map", model, cube), "--out", waves),
        (("map", model, cube, "--out", tmp_path / "m.tif"), "--confidence", waves),
    ):
        before = target.read_bytes()
        refused(hypercaps(*command, "--wavelengths", target, option, target), "is an input: give the result a name")
        assert target.read_bytes() == before
    assert not (tmp_path / "m.tif").exists()


def test_results_never_replace_files_that_belong_to_an_input(
    run: tuple[Path, Path, Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = run[2] / "model.safetensors"
    cube, labels = make_cube()
    cube.tofile(tmp_path / "cube.img")
    (tmp_path / "cube.hdr").write_text(
        "ENVI\nsamples = 36\nlines = 36\nbands = 26\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
    )
    (tmp_path / "tiles.txt").write_text("cube.img\n")
    np.save(tmp_path / "gt.npy", labels)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for scene, target in (
        (tmp_path / "cube.img", "cube.hdr"),
        (tmp_path / "cube.hdr", "cube.img"),
        (f"@{tmp_path / 'tiles.txt'}", "tiles.txt"),
        (f"@{tmp_path / 'tiles.txt'}", "cube.hdr"),
    ):
        result = hypercaps("evaluate", model, scene, tmp_path / "gt.npy", "--json", tmp_path / target)
        refused(result, "is an input: give the result a name")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PaviaU.mat").write_text("a public scene")
    monkeypatch.setenv("HYPERCAPS_DATA", str(tmp_path / "data"))
    public = hypercaps("evaluate", model, "pavia-university", "--json", tmp_path / "data" / "PaviaU.mat")
    refused(public, "is an input: give the result a name")


def test_a_forced_run_never_replaces_its_inputs(run: tuple[Path, Path, Path, Result], tmp_path: Path) -> None:
    cube, labels, first, _ = run
    out = tmp_path / "out"
    shutil.copytree(first, out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    train = ("train", cube, labels, "--out", out, "--force", "--epochs", 1)
    refused(hypercaps(*train, "--mask", out / "map.tif"), "map.tif is an input and would be replaced", "another folder")
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    split = out / "split.npz"  # its own run's may be used again: it is written as it was
    assert hypercaps(*train, "--split-file", split, "--no-map").exit_code == 0
    with np.load(split) as kept, np.load(first / "split.npz") as original:
        assert all(np.array_equal(kept[name], original[name]) for name in ("train", "val", "test"))


def test_map_and_confidence_are_both_written_or_neither(
    run: tuple[Path, Path, Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def full_at_the_third(descriptor: int) -> None:  # after the window itself and the map
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_at_the_third)
    target = tmp_path / "maps"
    target.mkdir()
    model = run[2] / "model.safetensors"
    result = hypercaps("map", model, run[0], "--out", target / "m.tif", "--confidence", target / "c.tif")
    refused(result, "c.tif can't be written", "disk is full")
    assert list(target.iterdir()) == []


def test_an_existing_run_is_left_alone_without_force(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "metrics.json").write_text("mine")
    (out / "notes.txt").write_text("keep")
    refused(hypercaps("train", *files, "--out", out), "already holds a run", "--force")
    assert {path.name for path in out.iterdir()} == {"metrics.json", "notes.txt"}
    assert (out / "metrics.json").read_text() == "mine"
    forced = hypercaps("train", *files, "--out", out, "--force", "--split", "random", "--epochs", 1, "--no-map")
    assert forced.exit_code == 0, forced.output
    assert json.loads((out / "metrics.json").read_text())["epochs"] == 2  # one of each stage
    assert (out / "notes.txt").read_text() == "keep"


def test_a_full_disk(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    refused(hypercaps("train", *files, "--out", tmp_path / "a" / "b"), "disk is full", nothing_at=tmp_path / "a")


def test_a_disk_that_fills_up_while_writing(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    result = hypercaps("train", *files, "--out", tmp_path / "a" / "b", "--method", "lda")
    assert result.exit_code == 2 and "disk is full" in result.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_keeps_the_best_model_so_far(number: int, files: tuple[Path, Path], tmp_path: Path) -> None:
    """A real signal in a real process, after the first epochs."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "hypercaps", "train", *map(str, files), "--out", str(out), "--split", "random"]
    command += ["--epochs", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # without a terminal, the first epoch is a line
            if "epoch 1/" in line:
                break
        time.sleep(0.5)
        process.send_signal(number)
        said, wrong = process.communicate(timeout=120)
    assert process.returncode == 130, wrong
    assert "Interrupted" in wrong and "best model so far" in wrong and "OA" in said
    assert {path.name for path in out.iterdir()} == RUN_FILES
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["interrupted"] is True and metrics["best_epoch"] <= metrics["epochs"] < 100_000


def test_ctrl_c_while_mapping_gives_up_only_the_map(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ConvCapsClassifier, "map_windows", stop)
    result = hypercaps("train", *files, "--out", tmp_path / "out", "--split", "random", "--epochs", 1)
    assert result.exit_code == 130 and "the run has no map" in result.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == RUN_FILES - MAPS
