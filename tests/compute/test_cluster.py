"""Maps and studies by the workers of a dask cluster: the same results, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hypercaps.compute.cluster import pool as pool_room
from hypercaps.compute.cluster import start
from hypercaps.compute.cluster.pool import PER_THREAD, Cluster
from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.data.labels import Legend
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE
from hypercaps.data.window import tile_windows
from hypercaps.errors import ClusterError, DataWarning, SceneError
from hypercaps.inference.calibration import Calibration
from hypercaps.inference.class_map import ClassMap
from hypercaps.inference.familiarity import Familiarity
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model, write_model
from hypercaps.inference.predict import WindowOutputs, map_familiarity, map_scene, map_scores, map_window
from hypercaps.io.open import Opening, open_scene
from hypercaps.io.paths import absolute
from hypercaps.models.registry import get_method
from hypercaps.pipeline.cluster_map import MapJob, _classify, _Task, map_windows_on
from hypercaps.study.cluster_runs import do_runs_on
from hypercaps.study.folder import StudyFolder
from hypercaps.study.plan import Study
from hypercaps.study.records import FailedRun, Record
from hypercaps.study.study import StudyCallbacks, run_study
from hypercaps.study.study_file import open_study
from hypercaps.training.preprocessing import PREPROCESSINGS
from support.cluster_work import die, double, double_or_work, fail, wait_and_return
from support.command import hypercaps
from support.processes import worker_processes
from support.scenes import make_cube
from support.vectors import write_scene_and_labels

pytestmark = pytest.mark.xdist_group("processes")
dask = pytest.importorskip("dask", reason="dask is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two worker processes, for all tests that leave them as they were."""
    with Cluster(workers=2, threads=1) as pool:
        yield pool


@pytest.fixture
def address(cluster: Cluster) -> str:
    return str(cluster._client.scheduler.address)


class Made:
    """A scene in a file, some of it without data, and models with random weights: as good a test as any."""

    def __init__(self, folder: Path) -> None:
        cube = make_cube(rows=70, cols=90)[0]
        self.path, self.whole_path = folder / "cube.npy", folder / "whole.npy"
        np.save(self.whole_path, cube)
        cube[40:44, 10:30] = np.nan
        np.save(self.path, cube)
        self.scene, self.whole = open_scene(self.path), open_scene(self.whole_path)
        self.folder = folder

    def model(self, method: str) -> Path:
        path = self.folder / f"{method}.safetensors"
        chosen = get_method(method)
        preprocessing = PREPROCESSINGS[chosen.preprocessing](self.whole)
        network = chosen.network(self.scene.bands, 3, patch=chosen.patch, seed=0).eval()
        model = TrainedModel(method, chosen.patch, {}, network, preprocessing, Legend.of([2, 5, 7]))
        calibration = Calibration(0.5, 9, conformity=np.linspace(0.3, 0.5, 9))
        spectra = np.random.default_rng(0).normal(size=(9, self.scene.bands))
        mean, distances = np.full(self.scene.bands, 1000.0), np.arange(1e4, 1e6, 1e3)
        familiarity = Familiarity(11, mean, np.eye(self.scene.bands), spectra, distances)
        write_model(path, replace(model, calibration=calibration, familiarity=familiarity))
        return path

    def job(self, method: str = "convcapsnet") -> tuple[TrainedModel, MapJob]:
        path = self.model(method)
        return read_model(path), MapJob.of(path, Opening.of(str(self.path)), self.scene)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


# Maps


def map_on(
    cluster: Cluster,
    job: MapJob,
    scene: Scene,
    *,
    only: np.ndarray | None = None,
    window: int = 32,
    on_window: Callable[[], None] | None = None,
) -> ClassMap:
    classes = np.zeros(scene.shape[:2], dtype=np.int16)
    confidence = np.full(scene.shape[:2], np.nan, dtype=np.float32)
    for part in map_windows_on(cluster, job, tile_windows(scene.whole, window), only=only):
        classes[part.at.rows, part.at.cols] = part.classes
        confidence[part.at.rows, part.at.cols] = part.confidence
        if on_window is not None:
            on_window()
    return ClassMap(classes, confidence)


@pytest.mark.parametrize("method", ["convcapsnet", "c-cnn"])
def test_a_map_is_the_same_to_the_bit_as_in_one_process(cluster: Cluster, made: Made, method: str) -> None:
    model, job = made.job(method)
    only = np.random.default_rng(0).random(made.scene.shape[:2]) < 0.7
    only[:32] = True
    only[48:64, :48] = False
    for mask in (None, only):
        with pytest.warns(DataWarning, match="get no class"):
            expected = map_scene(model, made.scene, only=mask)
        found = map_on(cluster, job, made.scene, only=mask)
        np.testing.assert_array_equal(found.classes, expected.classes)
        np.testing.assert_array_equal(found.confidence, expected.confidence)
    with pytest.warns(DataWarning, match="get no class"):
        expected_scores = map_scores(model, made.scene)
    windows = list(tile_windows(made.scene.whole, 2 * TILE))
    found_windows = []
    outputs = WindowOutputs(with_scores=True, coverage=0.9, with_familiarity=True)
    expected_familiarity = map_familiarity(model, made.scene)
    for mapped in map_windows_on(cluster, job, iter(windows), outputs):
        found_windows.append(mapped.at)
        np.testing.assert_array_equal(mapped.scores, expected_scores[mapped.at.rows, mapped.at.cols])
        np.testing.assert_array_equal(mapped.familiarity, expected_familiarity[mapped.at.rows, mapped.at.cols])
        np.testing.assert_array_equal(mapped.sets, map_window(model, made.scene, mapped.at, outputs=outputs).sets)
    assert found_windows == windows


def test_a_killed_workers_windows_are_done_again(cluster: Cluster, made: Made) -> None:
    model, job = made.job()
    with pytest.warns(DataWarning, match="get no class"):
        expected = map_scene(model, made.scene)
    killed = []

    def kill_one() -> None:
        if not killed:
            killed.append(worker_processes()[0])
            killed[0].kill()
            deadline = time.monotonic() + 60
            while not cluster._deaths and time.monotonic() < deadline:  # the other one may do the rest meanwhile
                time.sleep(0.01)

    with pytest.warns(DataWarning) as said:
        found = map_on(cluster, job, made.scene, window=TILE, on_window=kill_one)
    assert any("died: what it was doing is done again" in str(warning.message) for warning in said)
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.confidence, expected.confidence)


def test_a_worker_that_sees_another_scene_or_model_is_refused(cluster: Cluster, made: Made) -> None:
    _, job = made.job()

    def refused(job: MapJob) -> str:
        with pytest.raises(ClusterError) as error:
            map_on(cluster, job, made.scene)
        assert "worker tcp://127.0.0.1:" in str(error.value) and "shared file system" in str(error.value)
        return str(error.value)

    np.save(made.path, np.load(made.path) + 1)
    assert f"finds another scene at {made.path} than this machine" in refused(job)
    made.path.unlink()
    assert f"can't open the scene {made.path} (there is no file" in refused(replace(job, token="second"))
    made.model("c-cnn").rename(job.model)
    assert "finds another model" in refused(replace(job, token="third"))
    Path(job.model).unlink()
    assert "can't open the model" in refused(replace(job, token="fourth"))


def test_a_worker_opens_the_scene_once_for_each_map(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    open_again = Opening.open
    monkeypatch.setattr(Opening, "open", lambda self: opened.append(self) or open_again(self))
    for expected in (1, 2):
        _, job = made.job()
        for at in tile_windows(made.scene.whole, 2 * TILE):
            _classify(_Task(job, at, None, WindowOutputs()))
        assert len(opened) == expected


def test_paths_hold_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("a/cube.mat:key") == str(tmp_path / "a/cube.mat:key")
    assert absolute(str(tmp_path / "cube.tif")) == str(tmp_path / "cube.tif")
    assert absolute("~/cube.tif") == str(Path.home() / "cube.tif")
    assert absolute("indian-pines") == "indian-pines"
    assert absolute("https://example.org/cube.tif") == "https://example.org/cube.tif"


# The pool itself


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(delays=st.lists(st.sampled_from([0.0, 0.01, 0.05]), max_size=12), most=st.integers(1, 5))
def test_results_come_in_order_and_items_are_taken_as_there_is_room(
    cluster: Cluster, delays: list[float], most: int
) -> None:
    taken = 0

    def items() -> Iterator[float]:
        nonlocal taken
        for delay in delays:
            taken += 1
            yield delay

    given_back = []
    for result in cluster.map_in_order(wait_and_return, items(), most_in_flight=most):
        assert taken - len(given_back) <= most
        given_back.append(result)
    assert given_back == delays
    both = list(cluster.map_as_done(double, range(len(delays)), most_in_flight=most))
    assert sorted(both) == [(number, 2 * number) for number in range(len(delays))]


def test_without_a_limit_there_are_three_for_every_thread(cluster: Cluster) -> None:
    while cluster.slots < 2:  # on a busy machine, a worker can be late
        time.sleep(0.1)
    taken = []
    results = cluster.map_in_order(double, (taken.append(number) or number for number in range(10**9)))
    assert next(results) == 0 and len(taken) == PER_THREAD * 2
    results.close()


@pytest.mark.parametrize("error", [SceneError("the cube is damaged"), ValueError("a bug"), OSError(5, "a bad disk")])
def test_an_exception_of_a_task_is_raised_here(cluster: Cluster, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        list(cluster.map_in_order(fail, [error] * 5))
    assert raised.value.args == error.args
    assert list(cluster.map_in_order(double, [4])) == [8]


def test_cancelled_tasks_stop(cluster: Cluster, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    results = cluster.map_as_done(double_or_work, [3, str(sign)])
    assert next(results) == (3, 6)
    while not sign.exists():
        time.sleep(0.05)
    results.close()
    until = time.monotonic() + 20
    while sign.read_text() != "stopped" and time.monotonic() < until:
        time.sleep(0.05)
    assert sign.read_text() == "stopped"


def test_another_environment_is_refused(cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_room, "_environment", lambda: {"hypercaps": "9.9.9", "torch": "1.0"})
    with pytest.raises(ClusterError, match=r"worker tcp://\S+ has hypercaps .* this machine hypercaps 9.9.9 and torch"):
        list(cluster.map_in_order(double, [1]))
    monkeypatch.undo()
    monkeypatch.setattr(start, "__version__", "9.9.9")
    with pytest.raises(ClusterError, match=r"has hypercaps \S+ and this machine 9.9.9"), Cluster(address):
        pass


def test_another_processor_is_reported_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_room, "arithmetic_here", lambda: "other kernels")
    with pytest.warns(DataWarning, match="this machine with other kernels: the last digits can differ") as said:
        assert list(cluster.map_in_order(double, range(5))) == [0, 2, 4, 6, 8]
    assert len(said) == 1


def test_a_missing_dask_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = hypercaps("map", made.model("mlp"), made.path, "--out", made.folder / "map.tif", "--workers", 2)
    assert result.exit_code == 2 and "pip install 'hypercaps[cluster]'" in " ".join(result.output.split())


def test_a_cluster_is_one_or_the_other() -> None:
    for options in ({}, {"address": "127.0.0.1:1", "workers": 2}, {"workers": 0}):
        with pytest.raises(ClusterError, match="give"):
            Cluster(**options)


def test_a_cluster_leaves_nothing_behind_and_is_alone_on_its_machine(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, threads = {child.pid for child in worker_processes()}, threading.active_count()
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), Cluster(workers=1) as own:
        assert list(own.map_in_order(double, range(3))) == [0, 2, 4]
        ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
        heard = [c.laddr.ip for p in ours for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert len(heard) > 4 and set(heard) == {"127.0.0.1"}
        with pytest.warns(DataWarning, match="died"):
            [(item, outcome)] = own.map_as_done(die, [7])
        assert item == 7 and isinstance(outcome, ClusterError) and "1 workers died one after" in str(outcome)
        scratch = list(tmp_path.iterdir())
        assert len(scratch) == 1
    assert {child.pid for child in worker_processes()} <= before
    assert not list(tmp_path.iterdir())
    assert threading.active_count() <= threads + 1  # dask keeps one to offload work to


def test_a_scheduler_without_workers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr(pool_room, "_POLL", 0.2)
    with LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as later:
        threading.Timer(2, later.scale, [1]).start()
        with Cluster(later.scheduler_address) as pool, pytest.warns(DataWarning, match="has no workers now") as said:
            assert list(pool.map_in_order(double, range(6))) == [0, 2, 4, 6, 8, 10]
        assert len(said) == 1


# The command line


def test_map_by_workers_and_by_a_cluster(made: Made, address: str) -> None:
    model = made.model("convcapsnet")

    def mapped(name: str, *options: object) -> tuple[bytes, bytes]:
        files = made.folder / f"{name}.tif", made.folder / f"{name}-confidence.tif"
        result = hypercaps("map", model, made.whole_path, "--out", files[0], "--confidence", files[1], *options)
        assert result.exit_code == 0, result.output
        return files[0].read_bytes(), files[1].read_bytes()

    one = mapped("one")
    assert mapped("workers", "--workers", 2) == one
    assert mapped("cluster", "--cluster", address) == one
    both = hypercaps("map", model, made.path, "--out", made.folder / "x.tif", "--cluster", address, "--workers", 2)
    assert both.exit_code == 2 and "--cluster and --workers were both given" in both.output


def test_an_address_without_a_scheduler_is_refused(made: Made) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    model, out = made.model("convcapsnet"), made.folder / "map.tif"
    begun = time.monotonic()
    result = hypercaps("map", model, made.path, "--out", out, "--cluster", f"tcp://127.0.0.1:{port}")
    assert result.exit_code == 2 and time.monotonic() - begun < 20
    assert f"no dask scheduler answers at 'tcp://127.0.0.1:{port}'" in " ".join(result.output.split())
    assert not out.exists()
    result = hypercaps("study", "quick", "--out", made.folder / "study", "--cluster", "nonsense")
    assert result.exit_code == 2 and "no dask scheduler answers at 'nonsense'" in " ".join(result.output.split())
    assert not (made.folder / "study").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_the_workers_silently(number: int, made: Made) -> None:
    """A real signal, which reaches every process of the terminal."""
    command = [sys.executable, "-m", "hypercaps", "map", made.model("convcapsnet"), made.whole_path, "--workers", "2"]
    with subprocess.Popen(
        [*map(str, command), "--out", str(made.folder / "map.tif")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        while len(workers := worker_processes(process.pid)) < 2:
            assert process.poll() is None
            time.sleep(0.02)
        if number == signal.SIGTERM:
            process.terminate()  # dask's processes take it as a loss of workers
        else:
            os.killpg(process.pid, number)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and said.startswith("Stopped. ") and said.count("\n") == 1
    assert not (made.folder / "map.tif").exists()
    assert not any(worker.is_running() for worker in workers)


# Studies


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Two methods that work and one that the scene has too few bands for."""
    cube, labels = make_cube(rows=30, cols=30)
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "labels.npy", labels)
    (tmp_path / "made.toml").write_text(
        'scenes = [{ name = "made", cube = "cube.npy", labels = "labels.npy" }]\ntrain_shares = [0.4]\n'
        "[methods.rbf-svm]\n[methods.convcapsnet]\nepochs = 2\nbatch_size = 16\n[methods.3d-cnn]\n"
    )
    return open_study(str(tmp_path / "made.toml"))


def test_a_study_by_a_cluster_has_the_same_results(
    cluster: Cluster, address: str, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    threads = threads_in_use()
    use_threads(1)
    try:
        run_study(study, tmp_path / "one")
    finally:
        use_threads(threads)
    done: list[Record] = []
    result = run_study(study, tmp_path / "many", cluster=cluster, callbacks=StudyCallbacks(on_done=done.append))
    assert (result.planned, result.done_now, result.failed, result.left) == (3, 3, 1, 0) and len(done) == 3
    one, many = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("one", "many"))
    for record in (*one, *many):
        assert record.pop("train_seconds") is None or record["error"] is None
    assert many == one
    for path in (tmp_path / "one" / "runs").glob("*.npz"):
        with np.load(path) as ours, np.load(tmp_path / "many" / "runs" / path.name) as theirs:
            assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
    again = hypercaps(
        "study", "made.toml", "--out", tmp_path / "many", "--cluster", address, "--methods", "rbf-svm,3d-cnn"
    )
    assert again.exit_code == 0 and "2 runs, 1 of them done before" in again.output, again.output
    both = hypercaps("study", "made.toml", "--out", tmp_path / "x", "--cluster", address, "--workers", 2)
    assert both.exit_code == 2 and "--cluster and --workers were both given" in both.output


def test_a_cluster_opens_a_studys_labels_as_this_machine_does(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_scene_and_labels(tmp_path)
    (tmp_path / "made.toml").write_text(
        'scenes = [{ name = "polygons", cube = "scene.tif", labels = "fields.gpkg", class_field = "kind" },'
        ' { name = "coarse", cube = "scene.tif", labels = "coarse.tif" }]\ntrain_shares = [0.1]\n[methods.rbf-svm]\n'
    )
    monkeypatch.chdir(tmp_path)
    with pytest.warns(DataWarning, match="the nearest label of a pixel is taken"):
        result = run_study(open_study("made.toml"), tmp_path / "out", cluster=cluster)
    assert (result.done_now, result.failed, result.left, result.missing) == (2, 0, 0, {})
    records = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {record["scene"]: record["error"] for record in records} == {"polygons": None, "coarse": None}
    assert all(record["oa"] > 90 for record in records)


def test_a_study_by_a_cluster_keeps_to_its_budget(cluster: Cluster, study: Study, tmp_path: Path) -> None:
    result = run_study(study.only(methods=["convcapsnet"]), tmp_path / "out", cluster=cluster, budget_minutes=1e-9)
    assert (result.done_now, result.left) == (0, 1)


def test_a_study_by_a_cluster_that_is_stopped_goes_on_later(cluster: Cluster, study: Study, tmp_path: Path) -> None:
    part = study.only(methods=["rbf-svm"], repeats=4)

    def stop(record: Record) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(part, tmp_path / "out", cluster=cluster, callbacks=StudyCallbacks(on_done=stop))
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 1
    result = run_study(part, tmp_path / "out", cluster=cluster)
    assert (result.done_before, result.done_now, result.left) == (1, 3, 0)


def test_a_worker_with_other_data_fails_its_run_alone(cluster: Cluster, study: Study, tmp_path: Path) -> None:
    settings = study.only(methods=["rbf-svm"]).settings()
    (tmp_path / "out" / "runs").mkdir(parents=True)
    folder = StudyFolder(tmp_path / "out")
    records: list[Record] = []
    do_runs_on(cluster, settings, folder, data={"made": "other"}, on_done=records.append)
    (tmp_path / "cube.npy").unlink()
    do_runs_on(cluster, settings, folder, data={"made": "other"}, on_done=records.append)
    other, missing = records
    assert isinstance(other, FailedRun) and "has other data than this machine for scene 'made'" in other.error
    assert isinstance(missing, FailedRun) and "can't open scene 'made': there is no file" in missing.error
    assert folder.record(settings[0].key) == missing
