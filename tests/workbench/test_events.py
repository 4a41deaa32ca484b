"""Streams of events, and which page may write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from hypercaps.errors import OutputError
from hypercaps.workbench import events as events_module
from support.workbench import Served, next_event, served


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Served]:
    np.save(tmp_path / "scene.npy", np.random.default_rng(0).random((40, 40, 6)).astype(np.float32))
    with served(tmp_path / "scene.npy", tmp_path / "project") as found:
        yield found


def test_other_pages_see_what_is_painted(running: Served) -> None:
    with running.stream("a") as first, running.stream("b") as second:
        assert next_event(first, "state")["writer"] is True
        assert next_event(second, "state")["writer"] is False
        page = running.page("a")
        page.add_classes("water")
        page.paint(1, (3, 4, 9))
        event = next_event(second, "labels")
        assert event["spans"] == {"1": [[3, 4, 9]]} and event["origin"] == "a"
        while (state := next_event(second, "state")).get("labels", {}).get("count") != 5:
            pass
        assert state["classes"][0]["count"] == 5


def test_classes_and_their_version_belong_together(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = running.bench
    rows, adding = bench.class_rows, threading.Thread(target=lambda: bench.labels.add_class("water", None))

    def slow_rows() -> list[dict]:
        found = rows()
        adding.start()
        adding.join(0.3)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(bench, "class_rows", slow_rows)
        state = bench.state("a")
    adding.join()
    assert (state["labels"]["version"], state["classes"]) == (0, []) and bench.labels.version == 1


def test_a_second_page_is_told_and_can_only_look(running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "_GRACE", 0.2)
    with running.stream("b") as second:
        assert next_event(second, "state")["writer"] is True
        with running.stream("a") as first:
            assert next_event(first, "state")["writer"] is False
            refused = running.page("a").post("/api/classes", {"action": "add"})
            assert refused.status_code == 403 and "another tab" in refused.json()["error"]
            assert running.page("a").state()["classes"] == []
            running.page("b").add_classes("water")
    with running.stream("c") as third:  # the writer is gone: after a moment another one takes over
        end = time.monotonic() + 10
        while not running.bench.hub.is_writer("c") and time.monotonic() < end:
            time.sleep(0.02)
        while next_event(third, "state").get("writer") is not True:
            pass
        running.page("c").add_classes("soil")


def test_a_page_that_is_loaded_again_stays_the_writer(running: Served) -> None:
    with running.stream("a"):
        pass
    with running.stream("b") as other, running.stream("a"):
        assert next_event(other, "state")["writer"] is False
        running.page("a").add_classes("water")


def test_a_second_server_is_refused(running: Served, tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="open in another"),
        served(tmp_path / "scene.npy", tmp_path / "project"),
    ):
        pass


def test_a_project_of_another_scene_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((20, 20, 4), dtype=np.float32))
    np.save(tmp_path / "other.npy", np.full((20, 20, 4), 2, dtype=np.float32))
    with served(tmp_path / "one.npy", tmp_path / "project") as running:
        running.page().add_classes("water")
    before = (tmp_path / "project" / "journal.jsonl").read_bytes()
    with pytest.raises(OutputError, match="another scene"), served(tmp_path / "other.npy", tmp_path / "project"):
        pass
    assert (tmp_path / "project" / "journal.jsonl").read_bytes() == before
    with served(tmp_path / "one.npy", tmp_path / "project") as running:
        assert [one["name"] for one in running.page().state()["classes"]] == ["water"]


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((20, 20, 4), dtype=np.float32))
    with pytest.raises(OutputError, match="other files"), served(tmp_path / "one.npy", tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["one.npy"]


def test_a_page_that_does_not_read_loses_its_stream_and_no_memory(running: Served) -> None:
    with running.stream("a") as stream:
        hub = running.bench.hub
        with hub._lock:
            tab = hub._tabs[0]
        filled = threading.Event()

        def fill() -> None:  # in the loop's thread, which sends nothing meanwhile
            for number in range(3000):
                tab.put(events_module.Event("message", {"number": number}))
            filled.set()

        tab.loop.call_soon_threadsafe(fill)
        assert filled.wait(10)
        assert tab.queue.qsize() <= 1001
        assert next_event(stream, "end") == {}


def test_many_clients_at_once(running: Served) -> None:
    """A short form of a minute with 32 clients, which ``make bench-serve`` has."""
    running.page("w").add_classes("water")
    before = psutil.Process().memory_info().rss
    problems: list[str] = []

    def work(number: int) -> None:
        page = running.page("w")
        for turn in range(6):
            row = (number + turn) % 40
            for path in (
                f"/api/tiles/scene/{number % 6}-1-2/auto/0/0/0",
                f"/api/spectrum?row={row}&col=3",
                "/api/state",
            ):
                answer = page.get(path)
                if answer.status_code != 200:
                    problems.append(f"{path}: {answer.status_code} {answer.text[:80]}")
            try:
                page.paint(1, (row, number % 30, number % 30 + 5))
            except AssertionError as error:
                problems.append(str(error))
        page.http.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert psutil.Process().memory_info().rss - before < 300e6
