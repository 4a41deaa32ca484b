"""The workbench's page in Debian's chromium, used with mouse and keys."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import hypercaps.workbench
from support.browser import QUIET, chromium, recording_proxy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

BUNDLE = Path(hypercaps.workbench.__file__).parent / "static" / "app.js"
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


@contextmanager
def open_browser() -> Iterator[tuple[Browser, set[str]]]:
    """Chromium, and the hosts beside this one that its pages asked for; without what it needs the test is skipped."""
    command = chromium()
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("the package playwright is not installed")
    if not BUNDLE.exists():
        pytest.skip("the page was not bundled when hypercaps was installed")
    from playwright.sync_api import sync_playwright

    with recording_proxy() as (port, hosts), sync_playwright() as playwright:
        arguments = [*QUIET, f"--proxy-server=127.0.0.1:{port}"]  # loopback itself is not sent to a proxy
        browser = playwright.chromium.launch(executable_path=command, args=arguments)
        try:
            yield browser, hosts
        finally:
            browser.close()


@dataclass
class Workbench:
    """A tab of the workbench."""

    page: Page
    problems: list[str] = field(default_factory=list)  # errors of scripts, requests to other hosts
    requests: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, context: BrowserContext, address: str) -> Workbench:
        """Open an address in a new tab, and wait for the first picture."""
        bench = cls(context.new_page())
        bench.page.set_default_timeout(60_000)  # of a busy machine
        bench._listen(urlsplit(address).netloc)
        bench.page.goto(address + "#test")
        bench.page.wait_for_selector("#map canvas")
        bench.until("() => window.workbench !== undefined")
        bench.until("() => window.workbench.labelling.raster.keys().next().done === false")
        return bench

    def _listen(self, host: str) -> None:
        def requested(request: Any) -> None:
            self.requests.append(urlsplit(request.url).path)
            if urlsplit(request.url).netloc != host and not request.url.startswith(("data:", "blob:")):
                self.problems.append(f"request to {request.url}")

        self.page.on("request", requested)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda told: told.type == "error" and self.problems.append(told.text))

    # ---- looking -----------------------------------------------------------------------------------------------------

    def until(self, condition: str, *values: Any, seconds: float = 60.0) -> None:
        """Wait for a condition in the page; its policy forbids playwright's own way, which is eval."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition, values[0] if values else None):
            if time.monotonic() > end:
                told = [notice["text"] for notice in self.state("notices")]
                raise AssertionError(f"not within {seconds} s: {condition} {values}; {self.problems} {told}")
            time.sleep(0.02)

    def state(self, name: str) -> Any:
        return self.page.evaluate("name => window.workbench.store.get()[name]", name)

    def saved(self) -> None:
        self.until("() => window.workbench.labelling.queue.waiting === 0")

    def labels(self) -> np.ndarray:
        """The label raster as the page has it."""
        self.saved()
        self.until(
            """() => {
              const { raster } = window.workbench.labelling;
              return raster.get(0, 0, 0) && raster.stale.size === 0;
            }"""
        )
        size = self.state("scene")
        flat = self.page.evaluate(
            """([rows, cols]) => Array.from({length: rows * cols}, (_, i) =>
                 window.workbench.labelling.raster.valueAt(Math.floor(i / cols), i % cols))""",
            [size["rows"], size["cols"]],
        )
        return np.array(flat, dtype=np.uint8).reshape(size["rows"], size["cols"])

    def map_classes(self) -> np.ndarray:
        """The class map as the page has it; 0 where it has none."""
        size = self.state("scene")
        flat = self.page.evaluate(
            """([rows, cols]) => Array.from({length: rows * cols}, (_, i) =>
                 window.workbench.view.classMap.valueAt(Math.floor(i / cols), i % cols)?.id ?? 0)""",
            [size["rows"], size["cols"]],
        )
        return np.array(flat, dtype=np.uint8).reshape(size["rows"], size["cols"])

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    # ---- doing -------------------------------------------------------------------------------------------------------

    def place(self, row: float, col: float) -> tuple[float, float]:
        """Where the middle of a pixel is in the window, when the map has come to rest."""
        self.until("() => !window.workbench.view.map.getView().getAnimating()")
        box = self.page.locator("#map").bounding_box()
        assert box is not None
        at = self.page.evaluate(
            "at => { const { map } = window.workbench.view; map.renderSync(); return map.getPixelFromCoordinate(at); }",
            [col + 0.5, -row - 0.5],
        )
        return box["x"] + at[0], box["y"] + at[1]

    def add_class(self, name: str) -> None:
        count = len(self.state("classes"))
        self.page.keyboard.press("c")
        self.until("count => window.workbench.store.get().classes.length === count", count + 1)
        self.page.wait_for_selector(".editor input")
        self.page.keyboard.type(name)
        self.page.keyboard.press("Enter")
        self.until("name => window.workbench.store.get().classes.at(-1).name === name", name)

    def drag(self, *pixels: tuple[float, float]) -> None:
        """Press at the first pixel and move over the others."""
        self.page.mouse.move(*self.place(*pixels[0]))
        self.page.mouse.down()
        for pixel in pixels[1:]:
            self.page.mouse.move(*self.place(*pixel), steps=3)
        self.page.mouse.up()

    def click(self, row: float, col: float) -> None:
        self.page.mouse.click(*self.place(row, col))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def train(self, *, seconds: float = 120.0) -> str:
        """Train by key; the training's name when its map is whole and scored."""
        known = self.state("current")
        self.press("Control+Enter")
        self.until("known => ![known, null].includes(window.workbench.store.get().current)", known, seconds=seconds)
        self.until("() => window.workbench.store.get().training === null", seconds=seconds)
        self.until("() => window.workbench.store.get().map?.done >= 1", seconds=seconds)
        self.until("() => window.workbench.view.classMap.isIdle")
        return str(self.state("current"))
