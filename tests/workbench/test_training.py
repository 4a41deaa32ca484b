"""Train, map, score and export by the worker process: the same as the command line, and nothing lost if it dies."""

from __future__ import annotations

import os
import shlex
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps import open_labels, open_scene
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.cli import app
from hypercaps.workbench import training_desk
from hypercaps.workbench.map_store import CLASS
from hypercaps.workbench.trainings import SUGGESTIONS
from support.scenes import make_fields
from support.workbench import Page, Served, next_event, served

pytestmark = pytest.mark.filterwarnings("ignore:neither labels.gpkg nor scene:hypercaps.errors.DataWarning")
SHAPE = (40, 40)
SLOW = {"method": "mlp", "recipe": "paper", "split": "none"}  # 500 epochs


def paint_fields(page: Page, labels: np.ndarray) -> None:
    for number in np.unique(labels[labels > 0]).tolist():
        for row in range(0, SHAPE[0], 10):
            for col in range(0, SHAPE[1], 10):
                if labels[row, col] == number:
                    page.paint(number, *((row + i, col, col + 4) for i in range(4)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("training")
    cube, labels = make_fields(*SHAPE)
    np.save(folder / "scene.npy", cube)
    with served(folder / "scene.npy", folder / "project") as found:
        page = found.page()
        page.add_classes("water", "soil", "tree")
        paint_fields(page, labels)
        page.done("/api/options", {"method": "lda", "split": "folds"})
        yield found


@pytest.fixture
def page(running: Served) -> Page:
    return running.page()


def train(page: Page, **chosen: str) -> dict:
    number = page.done("/api/train", {"view": [0, 40, 0, 40], **chosen})["id"]
    state = page.wait()
    return next(one for one in state["trainings"] if one["id"] == number)


def map_of(page: Page, number: str) -> np.ndarray:
    content = page.get(f"/api/tiles/map/{number}/0/0/0/0").content
    return np.frombuffer(content, np.uint8).reshape(256, 256, 3)[:40, :40]


def test_the_map_and_the_scores_are_those_of_the_package(running: Served, page: Page) -> None:
    with running.stream("page") as events:
        row = train(page)
        assert next_event(events, "map")["id"] == row["id"]
    assert row["complete"] and row["mapped"] and row["labels"]["count"] == page.state()["labels"]["count"]
    scene = open_scene(running.bench.folder.parent / "scene.npy")
    labels = open_labels(
        running.bench.folder / "trainings" / row["id"] / "labels.gpkg", scene=scene, class_field="class_id"
    )
    assert (labels.array == page.label_raster(SHAPE)).all()
    expected = ConvCapsClassifier(method="lda", split_by="folds").fit(scene, labels)
    score = row["score"]
    assert score["oa"]["value"] == expected.scores_.oa
    assert (score["oa"]["low"], score["oa"]["high"]) == expected.scores_.oa_interval
    assert score["kappa"]["value"] == expected.scores_.kappa
    assert score["confusion"] == {"ids": [1, 2, 3], "counts": expected.scores_.confusion.tolist()}
    assert "folds" in score["split"] and score["test_pixels"] == expected.scores_.n_test
    mapped, found = expected.map(scene), map_of(page, row["id"])
    assert (found[:, :, CLASS] == mapped.classes).all()
    assert np.abs(found[:, :, 1] / 255 - mapped.confidence).max() <= 0.5 / 255 + 1e-6
    assert np.abs(found[:, :, 2] / 255 - expected.familiarity(scene)).max() <= 0.5 / 255 + 1e-6


def test_an_export_equals_the_command_that_it_shows(
    running: Served, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = train(page)
    answer = page.done("/api/export", {"training": row["id"]})
    assert answer["folder"] == f"runs/{row['id']}"
    assert {"map.tif", "report.html", "labels.gpkg", "metrics.json"} <= set(answer["files"])
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(answer["command"])[1:])
    assert done.exit_code == 0, done.output
    again = next(tmp_path.glob("*/map.tif")).parent
    run = running.bench.folder / answer["folder"]
    for name in ("map.tif", "confidence.tif", "model.safetensors", "split.npz", "doubtful.csv"):
        assert (again / name).read_bytes() == (run / name).read_bytes(), name
    assert page.get(f"/api/runs/{row['id']}/map.tif").content == (run / "map.tif").read_bytes()
    disposition = page.get(f"/api/runs/{row['id']}/report.html").headers["content-disposition"]
    assert disposition.startswith("attachment")
    assert page.get(f"/api/runs/{row['id']}/.lock").status_code == 404
    figures = page.json(f"/api/trainings/{row['id']}")
    assert figures["command"] == answer["command"]


def test_a_network_without_held_out_pixels_is_exported(running: Served, page: Page) -> None:
    row = train(page, method="convcapsnet", split="none")
    answer = page.done("/api/export", {"training": row["id"]})
    mapped = (running.bench.folder / answer["folder"] / "map.tif").read_bytes()
    assert mapped and "--split none" in answer["command"]


def test_errors_and_doubtful_labels_are_those_of_held_out_pixels(running: Served, page: Page) -> None:
    painted = page.label_raster(SHAPE)
    row, col = np.argwhere(painted == 1)[0].tolist()
    page.paint(2, (row, col, col + 2))  # labels that the spectra contradict
    found = train(page)
    counts = np.array(found["score"]["confusion"]["counts"])
    for truth in (1, 2, 3):
        for predicted in (1, 2, 3):
            path = f"/api/trainings/{found['id']}/errors?truth={truth}&predicted={predicted}"
            assert page.json(path)["pixels"] == counts[truth - 1, predicted - 1]
    wrong = page.json(f"/api/trainings/{found['id']}/errors?truth=2")
    assert wrong["pixels"] == counts[1].sum() - counts[1, 1] > 0
    assert [row, col, col + 2] in wrong["spans"]
    doubtful = page.json(f"/api/trainings/{found['id']}/doubtful")["pixels"]
    assert {(one["row"], one["col"]) for one in doubtful} >= {(row, col), (row, col + 1)}
    assert doubtful[0]["label"] != doubtful[0]["predicted"]
    page.done("/api/undo")


def test_suggested_points_are_not_labelled_and_go_when_they_are(page: Page) -> None:
    train(page)
    points = page.json("/api/suggestions?count=5")["points"]
    raster = page.label_raster(SHAPE)
    assert len(points) == 5 and not any(raster[one["row"], one["col"]] for one in points)
    first = points[0]
    assert first["first"]["id"] != first["second"]["id"]
    page.paint(1, (first["row"], first["col"], first["col"] + 1), tool="suggestion")
    left = page.json("/api/suggestions?count=5")["points"]
    assert (first["row"], first["col"]) not in {(one["row"], one["col"]) for one in left}
    page.done("/api/undo")


def test_points_are_there_as_soon_as_a_page_is_told_of_the_map(page: Page, running: Served) -> None:
    with running.stream("page") as events:
        next_event(events, "state")
        number = page.done("/api/train", {"view": [0, 40, 0, 40]})["id"]
        while next_event(events, "state").get("current") != number:
            pass
        assert running.bench.desk.suggestions(5)
    page.wait()


def test_pages_are_told_in_the_order_of_what_happened(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, states, newer = running.bench.desk, iter(("older", "newer")), threading.Event()

    def state() -> str:
        found = next(states)
        if found == "older":
            newer.wait(0.3)  # meanwhile another thread has something to tell
        return found

    def tell_newer() -> None:
        desk.jobs._observer.on_change()
        newer.set()

    monkeypatch.setattr(desk, "training_state", state)
    told: list[str] = []
    monkeypatch.setattr(desk._hub, "publish", lambda _, data: told.append(data))
    threads = [threading.Thread(target=desk.jobs._observer.on_change), threading.Thread(target=tell_newer)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert told == ["older", "newer"]


def test_points_that_were_not_chosen_are_told(page: Page, running: Served) -> None:
    number = train(page)["id"]
    file = running.bench.desk.trainings.path(number, SUGGESTIONS)
    file.rename(file.with_name("away"))
    answer = page.get("/api/suggestions")
    assert answer.status_code == 409 and "were not chosen before it was stopped" in answer.json()["error"]
    file.with_name("away").rename(file)
    assert page.json("/api/suggestions")["points"]


def test_trainings_are_compared_and_restored(page: Page) -> None:
    before = page.label_raster(SHAPE).copy()
    first = train(page)
    page.done("/api/classes", {"action": "merge", "id": 3, "into": 2})
    second = train(page)
    one, other = map_of(page, first["id"]), map_of(page, second["id"])
    changed = one[:, :, 0] != other[:, :, 0]
    path = f"/api/trainings/{first['id']}/compare/{second['id']}"
    found = page.json(path)
    assert found["changed"] == changed.sum() > 0
    assert sum(pair["pixels"] for pair in found["pairs"]) == changed.sum()
    spans = page.json(f"{path}/spans?from=3")["spans"]
    assert sum(end - begin for _, begin, end in spans) == (changed & (one[:, :, 0] == 3)).sum()
    restored = page.done(f"/api/trainings/{first['id']}/restore")
    assert restored["current"] == first["id"]
    assert [entry["name"] for entry in restored["classes"]] == ["water", "soil", "tree"]
    assert (page.label_raster(SHAPE) == before).all()
    page.done("/api/undo")
    assert [entry["name"] for entry in page.state()["classes"]] == ["water", "soil"]
    page.done("/api/undo")
    page.done(f"/api/trainings/{second['id']}/show")
    assert page.state()["current"] == second["id"]


def test_cancelling_keeps_the_old_map_and_takes_no_second(running: Served, page: Page) -> None:
    row = train(page)
    trainings = sorted(path.name for path in (running.bench.folder / "trainings").glob("t*"))
    with running.stream("page") as events:
        page.done("/api/train", SLOW)
        while (now := next_event(events, "training")) is None or not now["epoch"]:
            pass
        page.done("/api/cancel")
        assert page.state()["training"] is None  # at once, while the worker may still be stopping

    def is_over() -> bool:  # the worker is free again, and nothing is left of the training
        folders = sorted(path.name for path in (running.bench.folder / "trainings").glob("t*"))
        return running.bench.desk.jobs.running is None and folders == trainings

    end = time.monotonic() + 30
    while not is_over() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_over()
    assert page.state()["current"] == row["id"]


def test_one_runs_one_waits_and_a_newer_one_takes_its_place(running: Served, page: Page) -> None:
    page.done("/api/train", SLOW)
    second = page.done("/api/train")["id"]
    third = page.done("/api/train")["id"]
    jobs = running.bench.desk.jobs
    assert jobs.waiting is not None and jobs.waiting.id == third
    assert not (running.bench.folder / "trainings" / second).exists()
    page.done("/api/cancel")
    page.wait()
    assert third not in {one["id"] for one in page.state()["trainings"]}


def test_a_killed_worker_costs_only_its_training(running: Served, page: Page) -> None:
    row = train(page)
    with running.stream("page") as events:
        page.done("/api/train", SLOW)
        while (now := next_event(events, "training")) is None or not now["epoch"]:
            pass
        pid = running.bench.desk.jobs.worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        message = next_event(events, "message")
        assert message["level"] == "error" and "ended unexpectedly" in message["text"]
    state = page.wait()
    assert state["current"] == row["id"]
    assert train(page)["complete"]  # another worker has taken over


def test_too_few_labels_get_a_sentence(tmp_path: Path) -> None:
    np.save(tmp_path / "scene.npy", make_fields(*SHAPE)[0])
    with served(tmp_path / "scene.npy", tmp_path / "project") as running:
        page = running.page()
        refused = page.post("/api/train", {})
        assert refused.status_code == 409 and "two classes" in refused.json()["error"]
        page.add_classes("water", "soil")
        page.paint(1, (3, 3, 9))
        refused = page.post("/api/train", {})
        assert refused.status_code == 409 and "another class" in refused.json()["error"]
        assert page.get("/api/suggestions").status_code == 409
        assert page.get("/api/explain?row=1&col=1").status_code == 409
        assert page.post("/api/export", {}).status_code == 409
        assert not list((tmp_path / "project" / "trainings").iterdir())


def test_a_training_that_fails_says_why_and_leaves_nothing(running: Served, page: Page) -> None:
    trainings = page.state()["trainings"]
    page.paint(0, *((row, 0, 40) for row in range(40)))
    page.paint(1, (3, 3, 9))
    page.paint(2, (8, 3, 4))  # one pixel: too few for blocks
    with running.stream("page") as events:
        number = page.done("/api/train", {"split": "blocks"})["id"]
        message = next_event(events, "message")
    assert message["level"] == "error" and message["text"].startswith("Training stopped:")
    state = page.wait()
    assert state["trainings"] == trainings and state["labels"]["count"] == 7
    assert not (running.bench.folder / "trainings" / number).exists()
    for _ in range(3):
        page.done("/api/undo")


def test_the_first_strokes_make_a_map_without_a_score(running: Served, page: Page) -> None:
    page.paint(0, *((row, 0, 40) for row in range(40)))
    for number in (1, 2, 3):
        page.paint(number, *((row, 10 * (number - 1), 10 * number - 6) for row in range(4)))
    with running.stream("page") as events:
        row = train(page)
        message = next_event(events, "message")
    assert message["level"] == "info" and "no score yet" in message["text"]
    assert row["complete"] and row["score"] is None
    assert set(np.unique(map_of(page, row["id"])[:, :, CLASS])) == {1, 2, 3}
    assert "--split none" in page.json(f"/api/trainings/{row['id']}")["command"]
    for _ in range(4):
        page.done("/api/undo")


def test_training_starts_by_itself_after_a_rest(running: Served, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_desk, "_REST", 0.2)
    page.done("/api/options", {"auto": True})
    try:
        with running.stream("page") as events:
            page.paint(1, (39, 0, 2))
            while (now := next_event(events, "training")) is None:
                pass
            assert now["auto"] is True
    finally:
        page.done("/api/options", {"auto": False})
        page.wait()
        page.done("/api/undo")


def test_a_capsule_network_is_explained_by_its_bands(running: Served, page: Page) -> None:
    page.done("/api/train", {"method": "convcapsnet", "recipe": "paper", "split": "none"})
    state = page.wait()
    assert state["trainings"][-1]["score"] is None  # nothing was held out
    found = page.json("/api/explain?row=3&col=3")
    assert len(found["bands"]) == 12 and found["class"] == map_of(page, state["current"])[3, 3, CLASS]
    assert 0 < found["confidence"] <= 1


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    cube, labels = make_fields(*SHAPE)
    np.save(tmp_path / "scene.npy", cube)
    with served(tmp_path / "scene.npy", tmp_path / "project") as running:
        page = running.page()
        page.add_classes("water", "soil", "tree")
        paint_fields(page, labels)
        page.done("/api/options", {"method": "lda", "split": "random"})
        row = train(page)
        before, painted, mapped = page.state(), page.label_raster(SHAPE).copy(), map_of(page, row["id"])
    with served(tmp_path / "scene.npy", tmp_path / "project") as running:
        page = running.page()
        after = page.state()
        for part in ("classes", "labels", "trainings", "current", "options"):
            assert after[part] == before[part], part
        assert (page.label_raster(SHAPE) == painted).all()
        assert (map_of(page, row["id"]) == mapped).all()
        wrong = page.json(f"/api/trainings/{row['id']}/errors")["pixels"]
        counts = np.array(row["score"]["confusion"]["counts"])
        assert wrong == counts.sum() - counts.trace()
