"""Labels and classes: undo, redo, locks, and the same after a restart."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest

from hypercaps.workbench.journal import Journal
from hypercaps.workbench.label_store import MOST_STEPS, LabelStore
from hypercaps.workbench.refusals import RefusedError

SHAPE = (12, 20)


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


def spans(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def state_of(store: LabelStore) -> tuple[object, ...]:
    raster = store.raster
    lists = raster.classes.tolist(), raster.strokes.tolist(), raster.counts.tolist()
    return (*lists, store.classes, store.version, store.undo_title, store.redo_title)


def reopened(store: LabelStore) -> LabelStore:
    store.close()
    return LabelStore(store.folder, SHAPE)


@pytest.fixture
def store(tmp_path: Path) -> LabelStore:
    store = LabelStore(tmp_path, SHAPE)
    for name in ("water", "soil", "tree"):
        store.add_class(name, None)
    return store


def change_at_random(store: LabelStore, rng: np.random.Generator, number: int) -> None:
    kind = int(rng.integers(0, 12))
    classes = [one.id for one in store.classes]
    try:
        if kind < 6:
            rows = [(int(r), int(c), int(c + n)) for r, c, n in zip(*rng.integers(1, 8, (3, 3)), strict=True)]
            choice = int(rng.choice([0, *classes]))
            store.stroke(f"s{number}", "brush", choice, spans(*rows))
        elif kind < 8:
            store.undo()
        elif kind == 8:
            store.redo()
        elif kind == 9:
            store.change_classes(str(rng.choice(["lock", "unlock"])), int(rng.choice(classes)), "")
        elif kind == 10:
            store.add_class(None, None)
        elif len(classes) > 2:
            store.merge_class(classes[-1], int(rng.choice([0, classes[0]])))
    except RefusedError:
        pass


@pytest.mark.parametrize("seed", range(5))
def test_a_restart_changes_nothing(store: LabelStore, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(80):
        change_at_random(store, rng, number)
    before = state_of(store)
    again = reopened(store)
    assert state_of(again) == before
    counts = np.bincount(again.raster.classes.ravel(), minlength=256)
    assert (counts == again.raster.counts).all()
    again.close()


def test_every_change_is_kept_with_its_time(store: LabelStore) -> None:
    started = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    known = store.version
    store.add_class("Corn", None)
    store.stroke("a", "point", 1, spans((0, 0, 1)))
    store.undo()
    store.close()
    again = Journal(store.folder / "journal.jsonl")
    times = [datetime.datetime.fromisoformat(entry["time"]) for entry in again.entries[known:]]
    again.close()
    assert len(times) == 3 and started <= times[0] <= times[1] <= times[2] <= datetime.datetime.now(datetime.UTC)


@pytest.mark.parametrize("seed", range(3))
def test_undo_leads_back_to_the_beginning_and_redo_to_the_end(store: LabelStore, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(40):
        change_at_random(store, rng, number)
    while store.redo_title is not None:
        store.redo()
    end = state_of(store)[:4]
    steps = 0
    while store.undo_title is not None:
        store.undo()
        steps += 1
    assert not store.raster.classes.any() and not store.raster.strokes.any() and store.classes == ()
    store = reopened(store)
    for _ in range(steps):
        store.redo()
    assert state_of(store)[:4] == end
    assert store.redo_title is None
    store.close()


def test_a_thousand_steps_can_be_undone(store: LabelStore) -> None:
    for number in range(MOST_STEPS + 50):
        store.stroke(f"s{number}", "point", 1 + number // 60 % 2, spans((number % 12, number % 20, number % 20 + 1)))
    store = reopened(store)
    for _ in range(MOST_STEPS):
        store.undo()
    with pytest.raises(RefusedError, match="nothing to undo"):
        store.undo()
    store.close()


def test_a_stroke_that_is_repeated_has_no_effect(store: LabelStore) -> None:
    first = store.stroke("one", "brush", 1, spans((1, 2, 5)))
    assert len(first.change) == 3
    store.undo()
    again = store.stroke("one", "brush", 1, spans((1, 2, 5)))
    assert len(again.change.runs) == 0 and again.version == store.version
    store = reopened(store)
    store.stroke("one", "brush", 1, spans((1, 2, 5)))
    assert store.raster.labelled == 0
    store.close()


def test_locked_classes_keep_their_pixels(store: LabelStore) -> None:
    store.stroke("a", "brush", 1, spans((1, 2, 5)))
    store.change_classes("lock", 1, "")
    store.stroke("b", "brush", 2, spans((1, 0, 10)))
    assert store.count(1) == 3 and store.count(2) == 7
    store.stroke("c", "eraser", 0, spans((1, 0, 10)))
    assert store.count(1) == 3 and store.count(2) == 0
    with pytest.raises(RefusedError, match="locked"):
        store.stroke("d", "brush", 1, spans((2, 0, 4)))
    store.close()


def test_merging_classes_can_be_undone(store: LabelStore) -> None:
    store.stroke("a", "brush", 1, spans((1, 2, 5)))
    store.stroke("b", "brush", 2, spans((3, 2, 4)))
    before = state_of(store)[:4]
    store.merge_class(2, 1)
    assert store.count(1) == 5 and [one.id for one in store.classes] == [1, 3]
    store.undo()
    assert state_of(store)[:4] == before
    store.close()


@pytest.mark.parametrize(
    ("action", "number", "value", "sentence"),
    [
        ("rename", 1, "soil", "already"),
        ("rename", 1, " ", "name of 1 to"),
        ("recolor", 1, "red", "no colour"),
        ("recolor", 1, "#12345g", "no colour"),
        ("key", 1, "ab", "single character"),
        ("rename", 9, "x", "no class 9"),
    ],
)
def test_changes_that_make_no_sense_are_refused(
    store: LabelStore, action: str, number: int, value: str, sentence: str
) -> None:
    version = store.version
    with pytest.raises(RefusedError, match=sentence):
        store.change_classes(action, number, value)
    assert store.version == version
    store.close()


def test_there_are_at_most_254_classes(tmp_path: Path) -> None:
    store = LabelStore(tmp_path, SHAPE)
    for _ in range(254):
        store.add_class(None, None)
    with pytest.raises(RefusedError, match="254 classes"):
        store.add_class(None, None)
    assert len({one.color for one in store.classes}) == 254
    store.close()


def test_a_damaged_journal_gives_no_version_twice(store: LabelStore) -> None:
    for number in range(4):
        store.stroke(f"s{number}", "brush", 1, spans((number, 0, 5)))
    last = store.version
    store.close()
    path = store.folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b"stroke", b"strike")
    path.write_bytes(b"".join(lines))
    store = LabelStore(store.folder, SHAPE)
    assert store.count(1) == 10  # the first two strokes
    assert store.version > last
    assert store.journal.lost is not None and "2 after it were lost" in store.journal.lost
    store.close()
