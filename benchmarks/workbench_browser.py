"""What of the workbench is measured in a real browser, as a part of serve.py: python benchmarks/workbench_browser.py

Starts 'hypercaps serve', opens its page in chromium without a GPU, and uses it with mouse and keys. Prints one line for
each figure, with what it must reach on two cores. With --suggestions it also labels 40 suggested points and 40 random
ones by keys, three times each, and compares the accuracy of both on the other pixels (minutes).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps import open_labels
from hypercaps.workbench.label_store import LabelStore

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.workbench_page import DESKTOP, Workbench, open_browser  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Response

Labels = npt.NDArray[np.int16]
MORE = 40  # labels
AXE = Path(__file__).parents[1] / "src/hypercaps/workbench/frontend/node_modules/axe-core/axe.min.js"
_PICTURE = """() => new Promise(done => {
  const { map } = window.workbench.view;
  map.once('rendercomplete', () => done(performance.now()));
  map.render();
})"""
_OTHER_POINT = """known => {
  const now = window.workbench.store.get().suggesting;
  const point = now && now.points[now.index];
  return point && !(known && point.row === known[0] && point.col === known[1]);
}"""
_FRAMES = """() => {
  window.frameTimes = [];
  let last = performance.now();
  const next = now => {
    if (!window.frameTimes) return;
    window.frameTimes.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""


@contextmanager
def serving(scene: str, project: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that runs as the user would start it, and its address."""
    command = [sys.executable, "-m", "hypercaps", "serve", scene, "--project", str(project), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(20)
        process.stdout.close()


@contextmanager
def open_page(project: Path, **context: Any) -> Iterator[Workbench]:
    """The page of a new server in a new browser."""
    options = {"viewport": DESKTOP, **context}
    with (
        serving("indian-pines", project) as (_, address),
        open_browser() as (browser, _),
        browser.new_context(**options) as opened,
    ):
        yield Workbench.open(opened, address)


def runs_of(truth: Labels, number: int, length: int = 7, count: int = 2) -> list[tuple[int, int]]:
    """Where rows of ``length`` pixels of a class begin, far apart: strokes that a user would make."""
    inside = truth == number
    whole = np.lib.stride_tricks.sliding_window_view(np.pad(inside, ((1, 1), (0, 0))), (3, length)).all(axis=(2, 3))
    places = np.argwhere(whole)
    chosen: list[tuple[int, int]] = []
    for place in places[np.random.default_rng(number).permutation(len(places))]:
        if all(np.hypot(*(place - other)) > 12 for other in chosen):
            chosen.append((int(place[0]), int(place[1])))
    return chosen[:count]


def paint_classes(tab: Workbench, names: dict[int, str], truth: Labels) -> None:
    """Paint two short strokes of each class with the mouse."""
    for number, name in names.items():
        tab.add_class(name)
        for row, col in runs_of(truth, number):
            tab.drag((row, col), (row, col + 6))
    tab.saved()


def show(what: str, found: str, must: str = "") -> None:
    """A row of the table."""
    print(f"| {what} | {found} | {must} |", flush=True)


def measure_first_picture(browser: Browser, scene: str, project: Path, name: str, must: str) -> None:
    """From the address to the whole picture of the view: page, state and tiles."""
    with serving(scene, project) as (_, address), browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.goto(address + "#test", wait_until="commit")
        page.wait_for_selector("#map canvas")
        tab = Workbench(page)
        tab.until("() => window.workbench !== undefined")
        show(f"first picture of {name} in the page", f"{tab.page.evaluate(_PICTURE) / 1000:.2f} s", must)


def measure_frames(browser: Browser, project: Path, truth: Labels) -> None:
    """Frame times during strokes, while a training runs; and what axe-core says of the page then."""
    with serving("indian-pines", project) as (_, address), browser.new_context(viewport=DESKTOP) as context:
        tab = Workbench.open(context, address)
        paint_classes(tab, {2: "Corn", 11: "Soybean", 14: "Woods"}, truth)
        tab.press("Control+Enter", "b", "]", "]")
        tab.until("() => window.workbench.store.get().training?.state === 'running'")
        tab.page.evaluate(_FRAMES)
        for row in range(10, 130, 12):
            tab.drag((row, 10), (row + 6, 70), (row, 130))
        times = np.array(
            tab.page.evaluate("() => { const t = window.frameTimes; window.frameTimes = null; return t; }")
        )
        busy = tab.page.evaluate("() => window.workbench.store.get().training !== null")
        when = "training running" if busy else "training ended too early"
        show(f"frames while painting, {when}, p95", f"{np.percentile(times, 95):.0f} ms", "33 ms")
        show(f"their median and the longest of {len(times)}", f"{np.median(times):.0f}, {times.max():.0f} ms")
        tab.until("() => window.workbench.store.get().current !== null", seconds=600)
        measure_axe(tab)


def measure_axe(tab: Workbench) -> None:
    if not AXE.exists():
        show("axe-core: serious problems", "not measured: npm is not here", "0")
        return
    serious = 0
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        found = tab.page.evaluate("() => axe.run()")["violations"]
        serious += sum(len(one["nodes"]) for one in found if one["impact"] in ("serious", "critical"))
    show("axe-core: serious problems, light and dark", str(serious), "0")


def measure_killed_pages(browser: Browser, folder: Path, kills: int) -> None:
    """Kill the process of the page while the mouse paints, again and again; what was answered must be on disk."""
    scene, project = folder / "painted.npy", folder / "painted"
    np.save(scene, np.ones((200, 200, 3), dtype=np.float32))
    answered: set[tuple[int, int, int]] = set()
    rng = np.random.default_rng(0)

    def note(answer: Response) -> None:
        if answer.url.endswith("/api/strokes") and answer.status == 200:
            answered.update(tuple(span) for span in (answer.request.post_data_json or {})["spans"])

    with serving(str(scene), project) as (_, address), browser.new_context(viewport=DESKTOP) as context:
        for number in range(kills):
            paint_until_killed(browser, context, address.partition("?")[0] if number else address, note, rng)
    store = LabelStore(project, (200, 200))
    store.close()
    lost = sum(not store.raster.classes[row, first:end].all() for row, first, end in answered)
    show(f"{kills} x kill -9 of the page while painting: answered strokes lost", f"{lost} of {len(answered):,}", "0")


def paint_until_killed(
    browser: Browser, context: BrowserContext, address: str, note: Callable[[Response], None], rng: np.random.Generator
) -> None:
    from playwright.sync_api import Error

    tab = Workbench.open(context, address)
    tab.page.on("response", note)
    tab.until("() => window.workbench.store.get().writer")  # the page that was killed is given up after seconds
    if not tab.state("classes"):
        tab.add_class("water")
    tab.press("b", "1")
    listed = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    pages = [one["id"] for one in listed if one["type"] == "renderer"]
    timer = threading.Timer(float(rng.uniform(0.3, 1.5)), _kill, (pages,))
    timer.start()
    with suppress(Error, AssertionError):  # as soon as the page is gone
        for _ in range(1000):
            row, col = rng.integers(5, 190, 2).tolist()
            tab.drag((row, col), (row, col + 5))
    timer.join()
    with suppress(Error):
        tab.page.close()


def _kill(processes: list[int]) -> None:
    for number in processes:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def measure_suggestions(folder: Path, truth: Labels, seed: int) -> tuple[float, float]:
    """Accuracy on other pixels after 40 suggested labels, and after 40 random ones."""
    return accuracy_after(label_suggested, folder / f"suggested-{seed}", truth, seed), accuracy_after(
        label_random, folder / f"random-{seed}", truth, seed
    )


def accuracy_after(
    label: Callable[[Workbench, Labels, np.random.Generator], None], project: Path, truth: Labels, seed: int
) -> float:
    """Train on three pixels of each class, label more, train again."""
    rng = np.random.default_rng(seed)
    with open_page(project) as tab:
        tab.page.click("summary:text('Options')")
        tab.page.select_option("label:has-text('Held-out pixels') select", "none")  # the score is of no use here
        for number in np.unique(truth[truth > 0]).tolist():
            tab.add_class(f"Class {number}")
            tab.press("d")
            for row, col in rng.choice(np.argwhere(truth == number), 3, replace=False):
                tab.click(row, col)
        tab.train(seconds=900)
        label(tab, truth, rng)
        tab.press("Escape", "Home")
        tab.train(seconds=900)
        left = (truth > 0) & (tab.labels() == 0)
        return float((tab.map_classes()[left] == truth[left]).mean())


def label_suggested(tab: Workbench, truth: Labels, _: np.random.Generator) -> None:
    """Label what is suggested: by the key of its class, or, for classes without one, by its button."""
    tab.press("n")
    known = None
    for _count in range(MORE):
        while True:
            tab.until(_OTHER_POINT, known)
            suggesting = tab.state("suggesting")
            point = suggesting["points"][suggesting["index"]]
            known = [point["row"], point["col"]]
            number = int(truth[*known])
            if number > 0:
                break
            tab.press("x")
        key = next(one["key"] for one in tab.state("classes") if one["id"] == number)
        if key:
            tab.press(key)
        else:
            tab.page.get_by_role("region", name="Suggestion").get_by_text(f"Class {number}", exact=True).click()
        tab.saved()


def label_random(tab: Workbench, truth: Labels, rng: np.random.Generator) -> None:
    """Label random pixels, classes chosen by keys."""
    for row, col in rng.choice(np.argwhere((truth > 0) & (tab.labels() == 0)), MORE, replace=False):
        while tab.state("selected") != truth[row, col]:
            tab.press(".")
        tab.click(row, col)
    tab.saved()


def measure_gain(folder: Path, truth: Labels) -> None:
    gains = []
    for seed in range(3):
        suggested, random = measure_suggestions(folder, truth, seed)
        gains.append(100 * (suggested - random))
        show(f"OA after 40 suggested labels, and after 40 random ones, seed {seed}", f"{suggested:.3f}, {random:.3f}")
    show("points of OA that 40 suggested labels give more, mean of 3 seeds", f"{np.mean(gains):.1f}", "3")


def measure_page(folder: Path, large: Path | None, *, kills: int, with_suggestions: bool) -> None:
    """Everything that needs a browser; ``large`` is the scene L."""
    truth = open_labels("indian-pines").array
    with open_browser() as (browser, hosts):
        measure_first_picture(browser, "indian-pines", folder / "first-s", "S", "1.5 s")
        if large is not None:
            measure_first_picture(browser, str(large), folder / "first-l", "L", "3 s")
        measure_frames(browser, folder / "frames", truth)
        measure_killed_pages(browser, folder, kills)
        show("requests to other hosts", str(len(hosts)), "0")
    if with_suggestions:
        measure_gain(folder, truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suggestions", action="store_true")
    parser.add_argument("--large", type=Path, help="a scene for the first picture of L")
    parser.add_argument("--kills", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hypercaps-browser-") as own:
        measure_page(Path(own), chosen.large, kills=chosen.kills, with_suggestions=chosen.suggestions)


if __name__ == "__main__":
    main()
