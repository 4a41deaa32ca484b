"""Maps of any size: what is finished is kept, and going on gives the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from matplotlib.image import imread

from hypercaps import ConvCapsClassifier
from hypercaps.data.grid import Lookup
from hypercaps.data.labels import Legend
from hypercaps.data.pixels import Pixels
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window
from hypercaps.errors import DataWarning, OutputError, SceneError
from hypercaps.inference.predict import MappedWindow
from hypercaps.inference.scene_shift import PreparedScene, SceneShift
from hypercaps.io.writers.partial_map import PartialLayer, PartialMap
from hypercaps.io.writers.window_log import RECORD
from hypercaps.pipeline.map import make_map, pixels_within
from hypercaps.pipeline.map_context import map_legend, unknown_label, unsure_label
from hypercaps.pipeline.requests import MEMORY, MapRequest
from support.scenes import make_cube

pytestmark = pytest.mark.xdist_group("processes")

SCENE = replace(
    Scene.from_array(make_cube(rows=70, cols=52)[0], name="made"),
    crs="EPSG:32633",
    transform=(30.0, 0.0, 500_000.0, 0.0, -30.0, 4_000_000.0),
)


LAYERS = [PartialLayer("classes", np.dtype("<i2"), 1, 0), PartialLayer("confidence", np.dtype("<f4"), 1, np.nan)]


def all_files(folder: Path, **options: Any) -> MapRequest:
    folder.mkdir(exist_ok=True)
    names = {"classes": "m.tif", "confidence": "c.tif", "familiarity": "f.tif", "probabilities": "p.tif"}
    files = {name: folder / file for name, file in names.items()}
    return MapRequest(files, folder / "m.png", **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(trained: ConvCapsClassifier, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a map that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    make_map(trained, SCENE, all_files(folder), model_sha256="abc")
    return contents(folder)


def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hypercaps.pipeline.map.pixels_within", lambda *_: 23 * 80)  # a strip of one tile


def test_the_files_say_what_the_classifier_says(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    make_map(trained, SCENE, all_files(tmp_path), model_sha256="abc")
    found, scores = trained.map(SCENE), trained.predict_proba(SCENE)
    with rasterio.open(tmp_path / "m.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), found.classes)
        assert raster.crs == rasterio.CRS.from_epsg(32633) and tuple(raster.transform)[:6] == SCENE.transform
        assert raster.tags()["HYPERCAPS_MODEL_SHA256"] == "abc" and raster.tags()["HYPERCAPS_SCENE"] == "made"
    with rasterio.open(tmp_path / "c.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), found.confidence)
    with rasterio.open(tmp_path / "f.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), trained.familiarity(SCENE))
        assert raster.dtypes == ("float32",) and np.isnan(raster.nodata) and raster.descriptions == ("familiarity",)
    with rasterio.open(tmp_path / "p.tif") as raster:
        np.testing.assert_array_equal(np.moveaxis(raster.read(), 0, 2), scores)
        assert raster.descriptions == tuple(entry.name for entry in trained.legend_)


def test_confidence_in_a_byte(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    only = np.zeros((70, 52), dtype=bool)
    only[:40] = True
    request = MapRequest({"confidence": tmp_path / "c.tif"}, mask=only, confidence_dtype="uint8")
    make_map(trained, SCENE, request, model_sha256="abc")
    expected = trained.map(SCENE).confidence
    with rasterio.open(tmp_path / "c.tif") as raster:
        stored, (scale,) = raster.read(1), raster.scales
        assert raster.nodata == 255 and raster.dtypes == ("uint8",)
    np.testing.assert_array_equal(stored == 255, ~only)
    np.testing.assert_allclose(stored[only] * scale, expected[only], atol=scale / 2 + 1e-6)


def with_sets(folder: Path, reject: float, **options: Any) -> MapRequest:
    request = all_files(folder)
    files = {**request.files, "sets": folder / "s.tif"}
    return replace(request, files=files, coverage=0.9, reject=reject, **options)


def test_unsure_pixels_and_sets_of_classes(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)
    only = np.ones((70, 52), dtype=bool)
    only[:20] = False
    found, likely = trained.map(SCENE), trained.predict_proba(SCENE)
    reject = float(np.median(found.confidence))
    make_map(trained, SCENE, with_sets(tmp_path, reject, mask=only), model_sha256="abc")
    unsure = only & (found.confidence < reject)
    assert unsure.any() and trained.model_.calibration is not None
    with rasterio.open(tmp_path / "m.tif") as raster:
        expected = np.where(unsure, 4, np.where(only, found.classes, 0))
        np.testing.assert_array_equal(raster.read(1), expected)
        assert raster.colormap(1)[4] == (128, 128, 128, 255) and raster.tags(1)["CLASS_4"] == "unsure"
        assert raster.tags()["HYPERCAPS_REJECT"] == str(reject)
    assert "<Category>unsure</Category>" in (tmp_path / "m.tif.aux.xml").read_text()
    assert 'value="4" label="unsure" color="#808080"' in (tmp_path / "m.qml").read_text()
    with rasterio.open(tmp_path / "s.tif") as raster:
        sizes = trained.model_.calibration.sets(likely.reshape(-1, 3), 0.9).reshape(70, 52)
        np.testing.assert_array_equal(raster.read(1), np.where(only, sizes, 0))
        assert raster.dtypes == ("uint8",) and raster.nodata == 0 and raster.tags()["HYPERCAPS_COVERAGE"] == "0.9"
    with rasterio.open(tmp_path / "p.tif") as raster:
        assert raster.count == 3


def test_unknown_ground_wins_over_unsure_pixels(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    found, familiarity = trained.map(SCENE), trained.familiarity(SCENE)
    reject, unknown = float(np.median(found.confidence)), float(np.median(familiarity))
    unsure, strange = found.confidence < reject, familiarity < unknown
    assert (unsure & strange).any() and (unsure & ~strange).any() and (strange & ~unsure).any()
    for name, chosen in (("both", {"reject": reject, "unknown": unknown}), ("alone", {"unknown": unknown})):
        file = tmp_path / f"{name}.tif"
        make_map(trained, SCENE, MapRequest({"classes": file}, **chosen), model_sha256="abc")
        with rasterio.open(file) as raster:
            marked = np.where(unsure, 4, found.classes) if name == "both" else found.classes
            np.testing.assert_array_equal(raster.read(1), np.where(strange, 5, marked))
            assert raster.colormap(1)[5] == (40, 40, 40, 255) and raster.tags(1)["CLASS_5"] == "unknown"
            assert raster.tags()["HYPERCAPS_UNKNOWN"] == str(unknown)
            assert ("CLASS_4" in raster.tags(1)) == (name == "both")
        assert "<Category>unknown</Category>" in (tmp_path / f"{name}.tif.aux.xml").read_text()


def test_the_picture_shows_ground_that_is_unlike_any_label(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    cube = make_cube(rows=70, cols=52)[0]
    cube[40:, 30:] = cube[40:, 30:, ::-1]  # of no class
    scene = replace(Scene.from_array(cube), crs=SCENE.crs, transform=SCENE.transform)
    strange = trained.familiarity(scene) < 0.02
    assert strange[45:, 35:].mean() > 0.9 and strange[:30].mean() < 0.1
    for name, files in (("with", ("classes", "familiarity")), ("without", ("classes",))):
        request = MapRequest({file: tmp_path / f"{name}-{file}.tif" for file in files}, tmp_path / f"{name}.png")
        make_map(trained, PreparedScene(scene, shift=SceneShift()), request, model_sha256="abc")
        with rasterio.open(tmp_path / f"{name}-classes.tif") as raster:
            assert raster.read(1).max() <= 3  # the map itself keeps its classes
        dark = (imread(tmp_path / f"{name}.png")[..., :3] * 255 == 40).all(axis=2).mean()
        assert dark > 0.1 if name == "with" else dark < 0.001  # letters have some


def test_going_on_needs_the_same_promises(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_map(trained, SCENE, with_sets(tmp_path / "whole", 0.9), model_sha256="abc")
    small_windows(monkeypatch)
    files = with_sets(tmp_path / "parts", 0.9)
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_map(trained, SCENE, files, model_sha256="abc", on_progress=stop)
    changed = {"reject": (replace(files, reject=0.8), replace(files, reject=None))}
    changed["unknown"] = (replace(files, unknown=0.1),)
    changed["coverage"] = (replace(files, coverage=0.8),)
    for name, others in changed.items():
        for other in others:
            with pytest.raises(OutputError, match=f"was begun with another {name}"):
                make_map(trained, SCENE, replace(other, resume=True), model_sha256="abc")
    make_map(trained, SCENE, replace(files, resume=True), model_sha256="abc")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_the_numbers_of_unsure_and_unknown_pixels() -> None:
    assert unsure_label(Legend.of([1, 7])) == 8 and unknown_label(Legend.of([1, 7])) == 9
    assert unsure_label(Legend.of([1, 32766])) == 32767 and unknown_label(Legend.of([1, 32766])) == 32765
    assert unsure_label(Legend.of([1, 32767])) == 32766 and unknown_label(Legend.of([1, 32767])) == 32765
    both = map_legend(Legend.of([1, 32767]), MapRequest(reject=0.5, unknown=0.1))
    assert [(entry.label, entry.name) for entry in both][1:3] == [(32765, "unknown"), (32766, "unsure")]
    assert [entry.name for entry in map_legend(Legend.of([1, 7]), MapRequest(unknown=0.1))][2:] == ["unknown"]
    assert map_legend(Legend.of([1, 7]), MapRequest()) == Legend.of([1, 7])


def test_only_what_is_wanted_is_mapped(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)
    only = np.zeros((70, 52), dtype=bool)
    only[20:30, 5:50] = True  # windows before and after hold nothing of it
    steps: list[tuple[int, int]] = []
    request = all_files(tmp_path, mask=only)
    make_map(trained, SCENE, request, model_sha256="a", on_progress=lambda *at: steps.append(at))
    with rasterio.open(tmp_path / "m.tif") as raster:
        np.testing.assert_array_equal(raster.read(1), np.where(only, trained.map(SCENE).classes, 0))
    assert steps[0] == (0, 70 * 52) and steps[-1] == (70 * 52, 70 * 52) and steps == sorted(steps)


def test_small_windows_give_the_same_bytes(
    trained: ConvCapsClassifier, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)
    make_map(trained, SCENE, all_files(tmp_path), model_sha256="abc")
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_map_that_was_stopped_goes_on(
    after: int,
    trained: ConvCapsClassifier,
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_windows(monkeypatch)
    files, seen = all_files(tmp_path), []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == after + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_map(trained, SCENE, files, model_sha256="abc", on_progress=stop)
    assert list(contents(tmp_path)) == ["m.tif.partial"]
    with pytest.raises(OutputError, match=r"m\.tif\.partial holds an unfinished map: .* --resume"):
        make_map(trained, SCENE, files, model_sha256="abc")
    with pytest.raises(OutputError, match="another model"):
        make_map(trained, SCENE, replace(files, resume=True), model_sha256="abd")
    other = Scene.from_array(make_cube(rows=70, cols=52, seed=1)[0], name="made")
    with pytest.raises(OutputError, match="another scene"):
        make_map(trained, other, replace(files, resume=True), model_sha256="abc")
    starts: list[int] = []
    make_map(
        trained, SCENE, replace(files, resume=True), model_sha256="abc", on_progress=lambda done, _: starts.append(done)
    )
    assert starts[0] == seen[-1] and (after == 0) == (seen[-1] == 0)  # nothing is done again
    assert contents(tmp_path) == whole


def test_going_on_with_other_windows_is_the_same(
    trained: ConvCapsClassifier, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_map(trained, SCENE, all_files(tmp_path), model_sha256="abc", on_progress=stop)
    monkeypatch.undo()
    make_map(trained, SCENE, all_files(tmp_path, resume=True), model_sha256="abc")
    assert contents(tmp_path) == whole


def stopped(trained: ConvCapsClassifier, scene: Scene, files: MapRequest, windows: int = 3) -> None:
    """Map the first windows, and stop."""
    calls: list[int] = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == windows + 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_map(trained, scene, files, model_sha256="abc", on_progress=stop)


@pytest.mark.parametrize(("at", "value"), [("classes", 1), ("classes", 259), ("confidence", 0.5)])
def test_damaged_windows_are_mapped_again(
    at: str,
    value: float,
    trained: ConvCapsClassifier,
    whole: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_windows(monkeypatch)
    files = all_files(tmp_path)
    stopped(trained, SCENE, files)
    content = bytearray(files.partial.read_bytes())
    layer = {"classes": 0, "confidence": 2 * 70 * 52}[at]
    item = np.array(value, "<i2" if at == "classes" else "<f4").tobytes()
    start = 4096 + 5 * 4 * RECORD + layer + 60 * len(item)
    content[start : start + len(item)] = item
    if content == files.partial.read_bytes():  # it has this class already
        content[start] += 1
    files.partial.write_bytes(content)
    with pytest.warns(DataWarning, match=r"m\.tif\.partial is damaged: 1 of its finished windows is mapped again"):
        make_map(trained, SCENE, replace(files, resume=True), model_sha256="abc")
    assert contents(tmp_path) == whole


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
def test_any_flipped_bit_is_noticed(
    trained: ConvCapsClassifier, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)
    files = all_files(tmp_path)
    stopped(trained, SCENE, files)
    begun, rng = files.partial.read_bytes(), np.random.default_rng(0)
    for start, stop in ((0, 300), (4096, 4096 + 3 * RECORD), (4096 + 20 * RECORD, len(begun))):
        for place in rng.integers(start, stop, 8):
            damaged = bytearray(begun)
            damaged[place] ^= 1 << int(rng.integers(8))
            files.partial.write_bytes(damaged)
            try:
                make_map(trained, SCENE, replace(files, resume=True), model_sha256="abc")
            except OutputError:
                assert contents(tmp_path) == {"m.tif.partial": bytes(damaged)}
            else:
                assert contents(tmp_path) == whole
            for path in tmp_path.iterdir():
                path.unlink()


def test_a_class_of_no_legend_is_never_written(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    def damaging(windows: list[Window]) -> Iterator[MappedWindow]:
        for window in trained.map_windows(SCENE, windows, with_scores=True, with_familiarity=True):
            window.classes[3, 3] = 259
            yield window

    with pytest.raises(OutputError, match=r"m\.tif\.partial was damaged while the map was made"):
        make_map(trained, SCENE, all_files(tmp_path), model_sha256="abc", mapper=damaging)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("place", [(slice(20, 25), slice(9, 14)), (slice(50, 51), slice(0, 9))])
def test_a_scene_that_has_changed_is_not_mapped_on(
    place: tuple[slice, slice], trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes in finished windows, and beside them in a patch of one of their pixels."""
    small_windows(monkeypatch)
    monkeypatch.setattr(Scene, "fingerprint", lambda _: "")  # samples that miss the change
    files, cube = all_files(tmp_path), make_cube(rows=70, cols=52)[0]
    stopped(trained, Scene.from_array(cube, name="made"), files)
    begun, changed = contents(tmp_path), cube.copy()
    changed[place] += 1
    with pytest.raises(OutputError, match=r"scene 'made' has changed since .*\.partial was begun \(in rows \d+ to"):
        make_map(trained, Scene.from_array(changed, name="made"), replace(files, resume=True), model_sha256="abc")
    assert contents(tmp_path) == begun
    make_map(trained, Scene.from_array(cube, name="made"), replace(files, resume=True), model_sha256="abc")


def test_a_file_that_is_no_partial_map_is_left_alone(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    files = all_files(tmp_path, resume=True)
    for content in (b"mine", b"hypercaps partial map 1\n" + bytes(5000), b"hypercaps partial map 2\n[1]"):
        files.partial.write_bytes(content)
        with pytest.raises(OutputError, match="is not an unfinished map of this hypercaps: move or delete it"):
            make_map(trained, SCENE, files, model_sha256="abc")
        assert contents(tmp_path) == {"m.tif.partial": content}


def test_a_map_that_was_killed_goes_on(tmp_path: Path, trained: ConvCapsClassifier) -> None:
    """The command line, killed hard in the middle."""
    cube = np.tile(make_cube(rows=64, cols=64)[0], (4, 2, 1))  # 256 x 128: 128 tiles
    np.save(tmp_path / "cube.npy", cube)
    trained.save(tmp_path / "model.safetensors")
    command = [
        sys.executable, "-m", "hypercaps", "map", "model.safetensors", "cube.npy", "--memory", "1MB",
        "--threads", "1", "--confidence",
    ]  # fmt: skip
    subprocess.run([*command, "b.tif", "--out", "a.tif"], cwd=tmp_path, check=True, timeout=200, capture_output=True)
    resumed = [*command, "d.tif", "--out", "c.tif", "--resume"]
    process = subprocess.Popen(resumed, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flags = tmp_path / "c.tif.partial"
    finished, deadline = 0, time.monotonic() + 100
    while finished < 4 and process.poll() is None and time.monotonic() < deadline:
        if flags.exists() and flags.stat().st_size > 4096:
            with flags.open("rb") as file:
                file.seek(4096)
                finished = np.frombuffer(file.read(128 * RECORD), np.uint8).reshape(-1, RECORD).any(axis=1).sum()
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert finished >= 4 and flags.exists() and not (tmp_path / "c.tif").exists()
    done = subprocess.run(resumed, cwd=tmp_path, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for one, two in (("a.tif", "c.tif"), ("b.tif", "d.tif"), ("a.qml", "c.qml")):
        assert (tmp_path / one).read_bytes() == (tmp_path / two).read_bytes()
    assert not flags.exists()


def test_a_scene_that_breaks_in_the_middle_leaves_nothing(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_windows(monkeypatch)

    def broken(rows: slice, cols: slice) -> Pixels:
        if rows.stop > 65:
            raise SceneError("made.tif is damaged")
        return SCENE.reader(rows, cols)

    monkeypatch.setattr(Scene, "fingerprint", lambda _: "")  # reads pixels too
    with pytest.raises(SceneError, match="damaged"):
        make_map(trained, replace(SCENE, reader=broken), all_files(tmp_path), model_sha256="abc")
    assert contents(tmp_path) == {}


def test_a_scene_without_data_leaves_nothing(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    empty = Scene.from_array(np.full((40, 40, 26), np.nan, dtype=np.float32))
    with pytest.raises(SceneError, match="no valid pixel"):
        make_map(trained, empty, all_files(tmp_path), model_sha256="abc")
    assert contents(tmp_path) == {}


def test_nodata_stays_nodata(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    cube = make_cube(rows=40, cols=40)[0]
    cube[5:9, :20] = np.nan
    with pytest.warns(DataWarning, match="80 of 1600 pixels .* get no class"):
        make_map(trained, Scene.from_array(cube), all_files(tmp_path), model_sha256="abc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(tmp_path / "m.tif") as raster:
            assert (raster.read(1)[5:9, :20] == 0).all() and (raster.read(1) == 0).sum() == 80
        with rasterio.open(tmp_path / "p.tif") as raster:
            assert np.isnan(raster.read()[:, 5:9, :20]).all()


def test_two_programs_do_not_write_one_map(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    files = all_files(tmp_path)
    about = {"a": 1}
    with PartialMap(files.partial, about, (70, 52), LAYERS) as first:
        first.write(Window(0, 70, 0, 52), {"classes": np.ones((70, 52)), "confidence": np.ones((70, 52))})
        with pytest.raises(OutputError, match="by another hypercaps"):
            make_map(trained, SCENE, replace(files, resume=True), model_sha256="abc")


def test_a_disk_that_is_too_small_is_noticed_first(
    trained: ConvCapsClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10_000}))
    with pytest.raises(OutputError, match=r"m\.tif\.partial can't be written: about .* MB are needed"):
        make_map(trained, SCENE, all_files(tmp_path), model_sha256="abc")
    assert contents(tmp_path) == {}


def test_a_scene_as_its_sensor_flew_is_mapped_onto_the_ground(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-1, 70, (90, 80)).astype(np.int32)
    cols = np.where(rows < 0, -1, rng.integers(0, 52, (90, 80))).astype(np.int32)
    lookup = Lookup(rows, cols, "EPSG:4326", (0.1, 0.0, 10.0, 0.0, -0.1, 50.0))
    swath = replace(SCENE, crs=None, transform=None, lookup=lookup)
    make_map(trained, swath, all_files(tmp_path), model_sha256="abc")
    expected, seen = trained.map(SCENE), rows >= 0
    with rasterio.open(tmp_path / "m.tif") as raster:
        classes = raster.read(1)
        assert raster.crs.to_epsg() == 4326 and tuple(raster.transform)[:6] == lookup.transform
    with rasterio.open(tmp_path / "c.tif") as raster:
        confidence = raster.read(1)
    np.testing.assert_array_equal(classes, np.where(seen, expected.classes[rows, cols], 0))
    np.testing.assert_array_equal(confidence, np.where(seen, expected.confidence[rows, cols], np.nan))


def test_the_memory_is_shared_between_the_program_and_its_windows(trained: ConvCapsClassifier) -> None:
    assert pixels_within(1, trained, SCENE) == 64 * 64  # a little is always taken
    more = pixels_within(MEMORY + 10**8, trained, SCENE) - pixels_within(MEMORY, trained, SCENE)
    assert 0 < more < 10**8 / (26 * 4)


def test_the_partial_file_survives_being_cut_off_before_its_header(tmp_path: Path) -> None:
    path = tmp_path / "m.tif.partial"
    path.write_bytes(bytes(100))
    with PartialMap(path, {}, (20, 20), LAYERS, resume=True) as partial:
        assert partial.unfinished([Window(0, 16, 0, 20), Window(16, 20, 0, 20)]) == [(0, 16, 0, 20), (16, 20, 0, 20)]
        partial.write(Window(16, 20, 0, 20), {"classes": np.full((4, 20), 3), "confidence": np.ones((4, 20))})
    with PartialMap(path, {}, (20, 20), LAYERS, resume=True) as partial:
        assert partial.unfinished([Window(0, 16, 0, 20), Window(16, 20, 0, 20)]) == [(0, 16, 0, 20)]
        assert (partial.read("classes", 16, 20) == 3).all() and path.stat().st_size == partial.size


def test_too_little_memory_is_said(trained: ConvCapsClassifier, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="hypercaps itself holds 300 MB, so a map can't be made within 200 MB"):
        make_map(trained, SCENE, all_files(tmp_path, memory=200_000_000), model_sha256="abc")
