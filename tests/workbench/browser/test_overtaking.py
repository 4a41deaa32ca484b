"""Answers and events that overtake each other, as on a busy machine: the page shows the newest of what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hypercaps.workbench.bench import Stroke
from support.scenes import make_fields
from support.workbench import Served, served
from support.workbench_page import Workbench

if TYPE_CHECKING:
    from playwright.sync_api import Route

ROWS, COLS = 40, 50

pytestmark = pytest.mark.xdist_group("workbench page")  # tests share a browser


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Served]:
    np.save(tmp_path / "fields.npy", make_fields(ROWS, COLS, 6)[0])
    with served(tmp_path / "fields.npy", tmp_path / "project") as found:
        yield found


class Held:
    """Requests for an address that are held back; their answers can be fetched earlier."""

    def __init__(self, tab: Workbench, address: str) -> None:
        self.routes: list[Route] = []
        self._tab, self._is_open = tab, False
        tab.page.route(address, self._hold)

    def _hold(self, route: Route) -> None:
        self.routes.append(route)
        if self._is_open and len(self.routes) > 1:
            route.continue_()

    def first(self) -> Route:
        while not self.routes:
            self._tab.page.wait_for_timeout(20)
        return self.routes[0]

    def release(self) -> None:
        """Let all but the first through, those that wait and those that come."""
        self._is_open = True
        for route in self.routes[1:]:
            route.continue_()


def two_classes(tab: Workbench) -> None:
    for row, name in enumerate(("Corn", "Wood")):
        tab.add_class(name)
        tab.press("d")
        tab.click(4 + 10 * row, 4)
    tab.saved()


def other_labels(bench: Served) -> None:
    """A change that the page is not told of, until a whole state comes."""
    bench.bench.labels.stroke("elsewhere", "brush", 1, np.array([[30, 20, 25]]))


def whole_state(bench: Served) -> None:
    bench.bench.hub.publish("state", bench.bench.state("other"))


def frames(tab: Workbench) -> None:
    tab.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_a_stroke_under_way_stays_when_all_labels_are_asked_for_again(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tab.press("b", "[", "[")
    tab.page.mouse.move(*tab.place(5, 5))
    tab.page.mouse.down()
    tab.page.mouse.move(*tab.place(5, 15), steps=4)
    other_labels(bench)
    bench.bench.hub.publish("state", bench.bench.state(tab.page.evaluate("() => sessionStorage.getItem('client')")))
    tab.until("() => window.workbench.labelling.raster.valueAt(30, 22) === 1")
    assert tab.page.evaluate("() => window.workbench.labelling.raster.valueAt(5, 8)") == 1
    tab.page.mouse.move(*tab.place(5, 20), steps=2)
    tab.page.mouse.up()
    found = tab.labels()
    assert np.flatnonzero(found[5]).tolist() == list(range(5, 21)) and found[30, 20:25].all()
    assert (bench.page("look").label_raster((ROWS, COLS)) == found).all()


@pytest.mark.parametrize("way", ["given up", "refused"])
def test_a_stroke_that_is_not_taken_leaves_the_labels_that_have_come_since(
    tab: Workbench, bench: Served, way: str
) -> None:
    tab.add_class("Corn")
    tab.press("b", "[", "[")
    tab.page.mouse.move(*tab.place(30, 18))
    tab.page.mouse.down()
    tab.page.mouse.move(*tab.place(30, 27), steps=4)
    other_labels(bench)
    whole_state(bench)
    tab.until("() => window.workbench.labelling.version > 0 && window.workbench.labelling.raster.stale.size === 0")
    if way == "given up":
        tab.press("Escape")
    else:
        tab.page.route("**/api/strokes", lambda route: route.fulfill(status=409, json={"error": "no"}))
    tab.page.mouse.up()
    tab.until("() => window.workbench.labelling.raster.valueAt(30, 18) === 0")
    tab.until("() => window.workbench.labelling.raster.valueAt(30, 22) === 1", seconds=10)
    tab.problems.clear()  # the browser reports an answer with an error


def test_labels_that_were_asked_for_too_early_are_asked_for_again(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tiles = Held(tab, "**/api/tiles/labels/**")
    client = tab.page.evaluate("() => sessionStorage.getItem('client')")
    bench.bench.labels.change_classes("recolor", 1, "#336699")
    bench.bench.hub.publish("state", bench.bench.state(client))
    route = tiles.first()
    old = route.fetch()
    other_labels(bench)
    bench.bench.hub.publish("state", bench.bench.state(client))
    tab.until("known => window.workbench.labelling.version === known", bench.bench.labels.version)
    tiles.release()
    route.fulfill(response=old)
    tab.until("() => window.workbench.labelling.raster.valueAt(30, 22) === 1", seconds=10)


def test_a_change_by_another_page_is_not_lost_under_an_older_tile(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tiles = Held(tab, "**/api/tiles/labels/**")
    tab.page.evaluate("() => window.workbench.labelling.reload(window.workbench.labelling.version)")
    route = tiles.first()
    old = route.fetch()
    bench.bench.paint(Stroke("other", "its-stroke", "brush", 1, np.array([[8, 3, 9]])))
    tab.until("known => window.workbench.labelling.version === known", bench.bench.labels.version)
    tiles.release()
    route.fulfill(response=old)
    assert np.flatnonzero(tab.labels()[8]).tolist() == list(range(3, 9))


def test_a_training_uses_what_was_chosen_just_before(tab: Workbench, bench: Served) -> None:
    two_classes(tab)
    tab.page.click("summary:text('Options')")
    options = Held(tab, "**/api/options")
    tab.page.select_option("label:has-text('Method') select", "lda")
    tab.press("Control+Enter")
    first = options.first()
    frames(tab)
    assert bench.bench.desk.jobs.running is None
    options.release()
    first.continue_()
    tab.until("() => window.workbench.store.get().training !== null")
    running: Any = bench.bench.desk.jobs.running
    assert running.task.settings.method == "lda"


def test_a_training_that_ends_before_its_answer_comes_is_over(tab: Workbench, bench: Served) -> None:
    two_classes(tab)
    asked = Held(tab, "**/api/train")
    tab.press("Control+Enter")
    route = asked.first()
    answer = route.fetch()
    tab.until("() => window.workbench.store.get().training !== null")
    bench.bench.hub.publish("training", None)
    tab.until("() => window.workbench.store.get().training === null")
    with tab.page.expect_request_finished(lambda request: request.url.endswith("/api/train")):
        route.fulfill(response=answer)
    frames(tab)
    assert tab.state("training") is None


def test_the_button_that_cancels_stays_while_the_training_goes_on(tab: Workbench, bench: Served) -> None:
    two_classes(tab)
    tab.press("Control+Enter")
    button = tab.page.get_by_role("button", name="Cancel")
    button.hover()
    tab.page.mouse.down()
    told = bench.bench.desk.training_state()
    bench.bench.hub.publish("training", {**told, "stage": "Further on"})
    tab.page.wait_for_selector("text=Further on")
    with tab.page.expect_request("**/api/cancel"):
        tab.page.mouse.up()


def test_points_that_come_after_escape_are_not_shown(tab: Workbench) -> None:
    two_classes(tab)
    asked = Held(tab, "**/api/suggestions*")
    tab.press("n")
    route = asked.first()
    tab.press("Escape")
    guess = {"id": 1, "confidence": 0.5}
    with tab.page.expect_request_finished(lambda request: "suggestions" in request.url):
        route.fulfill(json={"points": [{"row": 3, "col": 4, "first": guess, "second": guess}]})
    frames(tab)
    assert tab.state("suggesting") is None


def test_means_of_classes_are_those_of_the_newest_labels(tab: Workbench) -> None:
    asked = Held(tab, "**/api/spectra/classes")
    tab.add_class("Corn")
    route = asked.first()
    old = route.fetch()
    asked.release()
    tab.press("d")
    tab.click(4, 4)
    tab.saved()
    tab.page.wait_for_timeout(1000)  # longer than the page waits before it asks again
    route.fulfill(response=old)
    tab.until("() => Object.values(window.workbench.spectrumPanel.means)[0]?.count === 1", seconds=10)


def test_the_whole_scene_is_shown_although_the_map_was_moving(tab: Workbench) -> None:
    center = "() => window.workbench.view.map.getView().getCenter()"
    whole = tab.page.evaluate(center)
    tab.page.evaluate("() => { const { view } = window.workbench; view.flyTo({ row: 2, col: 5 }); view.fit(); }")
    tab.page.wait_for_timeout(400)  # longer than a flight
    assert tab.page.evaluate(center) == pytest.approx(whole)
