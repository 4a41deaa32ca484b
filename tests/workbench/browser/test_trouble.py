"""What goes wrong, as the page shows it: a sentence, nothing lost, and the server stays up."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from support.rasters import write
from support.scenes import make_fields
from support.workbench import Served, served
from support.workbench_page import DESKTOP, Workbench

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

ROWS, COLS = 40, 50
CUBE = make_fields(ROWS, COLS, 6)[0]
MEMORY = 1_500_000_000  # bytes that the server and its worker may allocate each
LIMITED = f"""
import functools, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))
from hypercaps.cli import app
from hypercaps.workbench import training_desk
# On a busy machine a worker of low priority hardly computes, and the test waits for it.
training_desk.Computing = functools.partial(training_desk.Computing, niceness=0)
app(["serve", *sys.argv[1:]])
"""

pytestmark = pytest.mark.xdist_group("workbench page")  # tests share a browser


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    return write(tmp_path / "fields.tif", CUBE, "float32")


def painted(browser: Browser, bench: Served) -> Workbench:
    """A page with one class and one labelled pixel."""
    tab = Workbench.open(browser.new_context(viewport=DESKTOP), bench.access.address)
    tab.add_class("Corn")
    tab.press("d")
    tab.click(4, 4)
    tab.saved()
    return tab


def told(tab: Workbench, text: str) -> None:
    """Wait for a sentence."""
    tab.until("text => document.querySelector('.notices').innerText.includes(text)", text)


def test_a_state_that_arrives_late_takes_nothing_back(browser: Browser, scene: Path, tmp_path: Path) -> None:
    with served(scene, tmp_path / "project") as bench, browser.new_context(viewport=DESKTOP) as context:
        streams: list[Route] = []
        context.route("**/api/events*", lambda route: streams.append(route))  # held back
        tab = Workbench.open(context, bench.access.address)
        early = json.dumps(bench.bench.state(""))
        tab.page.keyboard.press("c")
        tab.page.wait_for_selector(".editor input")
        tab.page.keyboard.type("Co")
        message = json.dumps({"level": "info", "text": "This came late."})
        body = f"event: state\ndata: {early}\n\nevent: message\ndata: {message}\n\n"
        streams[0].fulfill(content_type="text/event-stream", body=body)
        told(tab, "This came late.")
        tab.page.keyboard.type("rn")
        tab.press("Enter")
        tab.until("() => window.workbench.store.get().classes[0]?.name === 'Corn'", seconds=10)
        assert [one["name"] for one in bench.bench.class_rows()] == ["Corn"]


def test_on_a_full_disk_strokes_wait_until_there_is_space(
    browser: Browser, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with served(scene, tmp_path / "project") as bench:
        tab = painted(browser, bench)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            tab.click(6, 6)
            told(tab, "full")
            assert tab.text(".saved") == "Not saved: 1"
            assert tab.page.evaluate("() => window.workbench.labelling.raster.valueAt(6, 6)") == 1  # still painted
        tab.saved()
        assert bench.page("look").label_raster((ROWS, COLS))[6, 6] == 1
        tab.page.context.close()


def test_a_server_that_was_started_again_gets_what_was_painted_meanwhile(
    browser: Browser, scene: Path, tmp_path: Path
) -> None:
    with served(scene, tmp_path / "project") as bench:
        tab = painted(browser, bench)
        port = int(bench.base.rpartition(":")[2])
    tab.until("() => !window.workbench.store.get().connected")
    tab.click(6, 6)
    tab.until("() => document.querySelector('.saved').textContent === 'Not saved: 1'")
    assert "is hypercaps serve still running? What you paint is kept in this page" in tab.text(".cards")
    with served(scene, tmp_path / "project", port) as again:
        told(tab, "needs the address that 'hypercaps serve' has printed")
        other = tab.page.context.new_page()
        other.goto(again.access.address)
        other.wait_for_selector("#map canvas")
        other.close()  # as the writer, it would be waited for
        tab.until("() => window.workbench.labelling.queue.waiting === 0", seconds=60)
        labels = again.page("look").label_raster((ROWS, COLS))
        assert labels[4, 4] == labels[6, 6] == 1 and labels.sum() == 2
        tab.page.context.close()


def test_a_damaged_journal_costs_what_follows_and_the_page_says_so(
    browser: Browser, scene: Path, tmp_path: Path
) -> None:
    with served(scene, tmp_path / "project") as bench:
        tab = painted(browser, bench)
        for row in (10, 12, 14):
            tab.click(row, 4)
        tab.saved()
        tab.page.context.close()
    journal = tmp_path / "project" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b"stroke", b"strike")
    journal.write_bytes(b"".join(lines))
    with served(scene, tmp_path / "project") as bench:
        tab = Workbench.open(browser.new_context(viewport=DESKTOP), bench.access.address)
        told(tab, "The journal of labels was damaged")
        told(tab, "2 after it were lost")
        assert np.flatnonzero(tab.labels()[:, 4]).tolist() == [4, 10]
        tab.page.context.close()


def test_a_scene_that_can_not_be_read_any_more_is_told(browser: Browser, scene: Path, tmp_path: Path) -> None:
    with served(scene, tmp_path / "project") as bench:
        tab = painted(browser, bench)
        scene.write_bytes(scene.read_bytes()[:2000])
        tab.page.select_option("[aria-label='Bands shown']", "pca")
        tab.page.mouse.move(*tab.place(20, 20))
        told(tab, "fields.tif")
        tab.click(8, 8)
        told(tab, "fields.tif")
        assert bench.page("look").state()["labels"]["count"] == 1  # the server is up
        tab.page.context.close()


def test_a_killed_worker_is_told_and_the_next_training_works(browser: Browser, scene: Path, tmp_path: Path) -> None:
    with served(scene, tmp_path / "project") as bench:
        bench.bench.desk.start()
        tab = painted(browser, bench)
        tab.add_class("Soil")
        tab.click(30, 40)
        tab.saved()
        tab.press("Control+Enter")
        jobs = bench.bench.desk.jobs
        while jobs.running is None or not jobs.running.progress.get("epoch"):  # the page knows later, perhaps too late
            time.sleep(0.005)
        os.kill(jobs.worker.pid, signal.SIGKILL)
        told(tab, "the worker process ended unexpectedly")
        tab.until("() => window.workbench.store.get().training === null")
        tab.page.click("summary:text('Options')")
        tab.page.select_option("label:has-text('Method') select", "lda")
        tab.train()
        assert (tab.map_classes() > 0).all()
        tab.page.context.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of memory is that of Linux")
@pytest.mark.timeout(900)  # all of it is read, which takes minutes where other programs compute
def test_a_scene_larger_than_memory_is_shown_labelled_and_mapped(browser: Browser, tmp_path: Path) -> None:
    shape = (3000, 2500, 150)  # 2.3 GB, of which the file system stores what is written here
    cube = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.uint16, shape=shape)
    cube[1480:1500, 1000:1500], cube[1500:1520, 1000:1500] = 500, np.arange(150) * 10
    cube.flush()
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "large.npy"), "--no-browser", "--memory", "300MB"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        context = browser.new_context(viewport=DESKTOP)
        tab = Workbench.open(context, server.stdout.readline().strip())
        tab.page.evaluate("() => window.workbench.view.flyTo({row: 1500, col: 1250})")
        tab.until("() => !window.workbench.view.map.getView().getAnimating()")
        for number, row in ((1, 1490), (2, 1510)):
            tab.add_class(f"Class {number}")
            tab.drag((row, 1240), (row, 1260))
        tab.saved()
        tab.page.mouse.move(*tab.place(1505, 1250))
        tab.until("() => window.workbench.store.get().spectrum?.values?.[149] === 1490")
        tab.page.click("summary:text('Options')")
        tab.page.select_option("label:has-text('Method') select", "lda")
        tab.press("Control+Enter")
        tab.until("() => window.workbench.view.classMap.valueAt(1485, 1250)?.id === 1", seconds=400)
        tab.until("() => window.workbench.view.classMap.valueAt(1515, 1250)?.id === 2", seconds=400)
        assert server.poll() is None and tab.problems == []
        context.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
        server.stdout.close()
