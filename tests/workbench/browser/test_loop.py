"""The loop in a real browser: label, train, look, label what is suggested, compare, export; one story."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.rasters import GRID, write
from support.scenes import make_fields
from support.workbench import Served, served
from support.workbench_page import DESKTOP, Workbench, open_browser

ROWS = COLS = 40
CUBE, FIELDS = make_fields(ROWS, COLS, 12, noise=100.0)
STEP = 10  # pixels from field to field
TRUTH = np.repeat(np.repeat(FIELDS[::STEP, ::STEP], STEP, axis=0), STEP, axis=1)
NAMES = ("Water", "Soil", "Tree")


pytestmark = pytest.mark.xdist_group("workbench loop")  # each test goes on where the one before it has ended


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("loop")
    scene = write(folder / "fields.tif", CUBE, "float32", crs="EPSG:32633", transform=GRID)
    with served(scene, folder / "project") as found:
        yield found


@pytest.fixture(scope="module")
def tab(bench: Served) -> Iterator[Workbench]:
    """One tab for all tests of this module, with a first map."""
    with open_browser() as (browser, hosts), browser.new_context(viewport=DESKTOP) as context:
        opened = Workbench.open(context, bench.access.address)
        _label_and_train(opened)
        yield opened
        assert opened.problems == [] and hosts == set()


def _label_and_train(tab: Workbench) -> None:
    for name in NAMES:
        tab.add_class(name)
    tab.press("b")
    for number in (1, 2, 3):
        tab.press(str(number))
        for row, col in np.argwhere(FIELDS[::STEP, ::STEP] == number)[:4] * STEP:
            tab.drag((row + 1, col + 1), (row + 1, col + 4))
    assert {one["name"]: one["count"] > 40 for one in tab.state("classes")} == dict.fromkeys(NAMES, True)
    tab.page.click("summary:text('Options')")
    _choose(tab, "Method", "lda")
    assert tab.train() == tab.state("trainings")[0]["id"]
    found = tab.map_classes()
    assert (found > 0).all() and (found == TRUTH).mean() > 0.8


def test_label_and_train(tab: Workbench) -> None:
    assert tab.state("current") is not None and (tab.map_classes() > 0).all()


def _choose(tab: Workbench, name: str, value: str) -> None:
    tab.page.select_option(f"label:has-text('{name}') select", value)
    tab.until("value => Object.values(window.workbench.store.get().options.chosen).includes(value)", value)


def test_the_score_says_what_it_stands_on(tab: Workbench) -> None:
    score = tab.state("trainings")[0]["score"]
    shown = tab.text(".scores")
    assert f"{score['oa']['value']:.1f} %" in shown and f"{score['oa']['low']:.1f}–" in shown
    assert f"{score['test_pixels']} held-out pixels" in shown and score["split"] in shown
    tested = {one["id"]: one["tested"] for one in score["classes"]}
    assert sum(tested.values()) == score["test_pixels"]
    assert shown.count("not tested") == sum(count == 0 for count in tested.values())


def test_cells_of_the_matrix_show_their_pixels(tab: Workbench) -> None:
    cell = tab.page.locator(".matrix td button").first
    count = int(cell.inner_text())
    cell.click()
    tab.until("() => window.workbench.store.get().highlight !== null")
    spans = tab.state("highlight")["spans"]
    assert sum(end - first for _, first, end in spans) == count
    assert f"{count} held-out pixels" in tab.text(".cards")
    tab.page.click("text=Labels that the model contradicts")
    tab.page.wait_for_selector(".doubtful h3")
    tab.page.locator("#map").focus()
    tab.press("Escape")
    assert tab.state("highlight") is None


def test_sliders_and_layers_need_no_request(tab: Workbench) -> None:
    tab.tab("Layers")
    tab.until("() => window.workbench.view.classMap.isIdle")
    tab.page.mouse.move(5, 5)
    tab.page.wait_for_timeout(300)
    whole = _opaque(tab)
    opacity = "() => Number(document.querySelector('canvas.chunk-layer').style.opacity)"
    tab.requests.clear()
    confidence = tab.page.get_by_label("Confidence at least")
    confidence.fill("100")
    part = _opaque(tab)
    confidence.fill("0")
    tab.page.select_option(".layers select", "confidence")
    ramp = _opaque(tab)
    assert tab.page.evaluate(opacity) == 1  # its colours are those of the scale below the list
    tab.page.select_option(".layers select", "classes")
    assert part < whole == ramp and tab.requests == []
    tab.page.get_by_label("Map opacity").fill("40")
    _opaque(tab)
    assert tab.page.evaluate(opacity) == pytest.approx(0.4)
    tab.tab("Scores")


def _opaque(tab: Workbench) -> int:
    """Pixels of the class map's canvas that are not transparent."""
    return tab.page.evaluate(
        """() => {
          window.workbench.view.map.renderSync();
          const canvas = document.querySelector('canvas.chunk-layer');
          const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          let count = 0;
          for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
          return count;
        }"""
    )


def test_suggestions_are_labelled_by_keys(tab: Workbench) -> None:
    before = tab.labels()
    tab.page.locator("#map").focus()
    tab.press("n")
    tab.until("() => window.workbench.store.get().suggesting !== null")
    points = tab.state("suggesting")["points"]
    assert "Suggestion 1 of" in tab.text(".suggestion")
    assert tab.text(".suggestion").count("%") == 1  # of the first guess: that of the second is not known
    tab.press(str(TRUTH[points[0]["row"], points[0]["col"]]), "x", "Space")
    tab.until("() => window.workbench.store.get().suggesting.index === 3")
    tab.press("Escape")
    changed = np.argwhere(tab.labels() != before)
    assert changed.tolist() == [[points[0]["row"], points[0]["col"]]]
    assert tab.state("suggesting") is None


def test_skipped_points_come_again_only_after_the_others(tab: Workbench) -> None:
    tab.press("n")
    tab.until("() => window.workbench.store.get().suggesting !== null")
    first = _points(tab)
    for _ in first:
        before = tab.state("suggesting")
        tab.press("Space")
        tab.until("known => JSON.stringify(window.workbench.store.get().suggesting) !== JSON.stringify(known)", before)
    assert _points(tab).isdisjoint(first)
    tab.press("Escape")


def _points(tab: Workbench) -> set[tuple[int, int]]:
    return {(one["row"], one["col"]) for one in tab.state("suggesting")["points"]}


def test_two_maps_are_compared_and_labels_restored(tab: Workbench) -> None:
    first = tab.state("current")
    kept = tab.labels()
    tab.press("Home", "3", "b")
    tab.drag((1, 1), (1, 4))  # water that is called tree now
    tab.drag((31, 11), (31, 14))
    changed = tab.labels()
    _choose(tab, "Method", "convcapsnet")
    _choose(tab, "Held-out pixels", "none")
    second = tab.train()
    assert "nothing was held out" in tab.text(".scores")
    tab.tab("History")
    assert "1D-ConvCapsNet" in tab.text(".history li >> nth=0")
    tab.page.click(f"[aria-label='Compare {first}']")
    tab.page.wait_for_selector(".comparison >> text=pixels differ")
    count = tab.state("comparing")["result"]["changed"]
    assert f"{count} pixels differ" in tab.text(".comparison").replace("\u202f", "")
    swipe = tab.page.get_by_role("slider", name="Line between the two maps")
    swipe.focus()
    tab.press("ArrowRight", "ArrowRight")
    assert tab.state("comparing")["share"] == pytest.approx(0.54)
    tab.page.click(".comparison >> text=End")
    tab.page.click(f"[aria-label='Restore {first}']")
    tab.until("first => window.workbench.store.get().current === first", first)
    tab.until("() => window.workbench.labelling.raster.valueAt(1, 1) === 1")
    restored = tab.labels()
    assert (restored != changed).any() and (restored[1, 1:5] == 1).all()
    tab.page.locator("#map").focus()
    tab.press("Control+z")
    tab.saved()
    tab.until("() => window.workbench.labelling.raster.valueAt(1, 2) === 3")
    assert (tab.labels() == changed).all() and (kept != changed).any()
    tab.page.click(f"[aria-label='Show {second}']")
    tab.until("second => window.workbench.store.get().current === second", second)
    tab.until("() => window.workbench.view.classMap.valueAt(0, 0) !== null")


def test_a_class_is_explained_by_its_bands(tab: Workbench) -> None:
    tab.page.mouse.move(*tab.place(12, 12))
    tab.press("e")
    tab.until("() => window.workbench.store.get().explained !== null")
    assert len(tab.state("explained")["result"]["bands"]) == 12
    assert "row 12, column 12" in tab.text(".explanation")
    tab.page.click("[aria-label='Close the explanation']")


def test_a_click_explains_a_class_and_paints_nothing(tab: Workbench) -> None:
    before = tab.labels()
    tab.page.get_by_role("button", name="Explain (E)").click()
    tab.click(25, 7)
    tab.until("() => window.workbench.store.get().explained !== null")
    explained = tab.state("explained")
    assert explained["pixel"] == {"row": 25, "col": 7} and explained["result"]["class"] == tab.map_classes()[25, 7]
    assert (tab.labels() == before).all()
    tab.press("Escape", "b")
    assert tab.state("explained") is None


def test_cancel_keeps_the_old_map(tab: Workbench) -> None:
    known, before = tab.state("current"), tab.map_classes()
    _choose(tab, "Method", "convcapsnet")  # takes long enough
    tab.press("Control+Enter")
    tab.page.click(".progress >> text=Cancel")
    tab.until("() => window.workbench.store.get().training === null")
    assert tab.state("current") == known and (tab.map_classes() == before).all()
    _choose(tab, "Method", "lda")


def test_a_reload_shows_the_same(tab: Workbench) -> None:
    labels, classes, current = tab.labels(), tab.map_classes(), tab.state("current")
    tab.page.reload()
    tab.until("() => window.workbench?.labelling.raster.valueAt(0, 0) != null")
    tab.until("() => window.workbench.view.classMap.valueAt(0, 0) != null")
    assert tab.state("writer") and tab.state("current") == current
    assert (tab.labels() == labels).all() and (tab.map_classes() == classes).all()


def test_what_is_exported_is_what_was_painted(tab: Workbench, bench: Served) -> None:
    tab.tab("Files")
    with tab.page.expect_download() as download:
        tab.page.click("a:text('NumPy')")
    assert (np.load(Path(download.value.path())) == tab.labels()).all()
    tab.page.click("text=Export run")
    tab.page.wait_for_selector(".command code", timeout=90_000)
    assert tab.text(".command code").startswith("hypercaps train ")
    with tab.page.expect_download() as download:
        tab.page.click(".exported a >> nth=0")
    name = download.value.suggested_filename
    written = next((bench.bench.folder / "runs").rglob(name))
    assert Path(download.value.path()).read_bytes() == written.read_bytes()
