"""How the workbench's page feels: python benchmarks/workbench_browser.py [--suggestions]

Starts 'hypercaps serve' on Indian Pines, opens its page in chromium without a GPU, and uses it with mouse and keys.
Prints one line for each figure, with what it must reach on two cores. With --suggestions it also labels 40 suggested
points and 40 random ones by keys, three times each, and compares the accuracy of both on the other pixels (minutes).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps import open_labels

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.workbench_page import DESKTOP, Workbench, open_browser  # type: ignore[import-not-found]

Labels = npt.NDArray[np.int16]
MORE = 40  # labels
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
def serve(project: Path, scene: str = "indian-pines") -> Iterator[str]:
    """The address of a server that runs as the user would start it."""
    command = [sys.executable, "-m", "hypercaps", "serve", scene, "--project", str(project), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@contextmanager
def open_page(project: Path, **context: Any) -> Iterator[Workbench]:
    """The page of a new server in a new browser."""
    options = {"viewport": DESKTOP, **context}
    with serve(project) as address, open_browser() as (browser, _), browser.new_context(**options) as opened:
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


def show(what: str, found: str, must: str) -> None:
    print(f"{what:60} {found:>12}   (must: {must})", flush=True)


def measure_frames(folder: Path, truth: Labels) -> None:
    """Frame times during a stroke, while a training runs."""
    started = time.monotonic()
    with open_page(folder / "frames") as tab:
        show("server, browser and first picture of S", f"{time.monotonic() - started:.1f} s", "-")
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
        show(
            f"frames while painting, training {'running' if busy else 'ended'}, p95",
            f"{np.percentile(times, 95):.0f} ms",
            "33 ms",
        )
        show(f"  median and longest of {len(times)}", f"{np.median(times):.0f}, {times.max():.0f} ms", "-")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suggestions", action="store_true")
    chosen = parser.parse_args()
    truth = open_labels("indian-pines").array
    with tempfile.TemporaryDirectory() as own:
        measure_frames(Path(own), truth)
        if chosen.suggestions:
            gains = []
            for seed in range(3):
                suggested, random = measure_suggestions(Path(own), truth, seed)
                gains.append(100 * (suggested - random))
                show(f"40 suggested labels, 40 random ones, seed {seed}", f"{suggested:.3f}, {random:.3f}", "-")
            show("points of OA that suggested labels give more, mean", f"{np.mean(gains):.1f}", "3")


if __name__ == "__main__":
    main()
