"""The workbench's page in a real browser: looking, labelling and saving. Training is in test_loop.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hypercaps.workbench.overviews import Overviews
from support.rasters import GRID, write
from support.scenes import make_fields
from support.workbench import Served, served
from support.workbench_page import DESKTOP, PHONE, Workbench

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROWS, COLS, BANDS = 40, 50, 12
AXE = Path(__file__).parents[3] / "src/hypercaps/workbench/frontend/node_modules/axe-core/axe.min.js"


pytestmark = pytest.mark.xdist_group("workbench page")  # tests share a browser


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene without coordinates."""
    file = tmp_path_factory.mktemp("scene") / "fields.npy"
    np.save(file, make_fields(ROWS, COLS, BANDS, noise=5.0)[0])
    return file


@pytest.fixture
def bench(scene: Path, tmp_path: Path) -> Iterator[Served]:
    with served(scene, tmp_path / "project") as found:
        yield found


def test_a_newcomer_is_told_what_to_do(tab: Workbench) -> None:
    assert "Add a class, paint a few pixels of each, then Train." in tab.text("aside")
    assert (
        tab.page.is_disabled("text=Train >> nth=0")
        or tab.page.get_by_role("button", name="Train", exact=True).is_disabled()
    )
    assert "token" not in tab.page.url


def test_what_is_painted_is_what_the_server_has(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tab.add_class("Wood")
    tab.press("1", "b", "[", "[")  # a brush of one pixel
    tab.drag((5, 5), (5, 15))
    tab.press("2", "]", "]")  # of three
    tab.drag((20, 20), (20, 30))
    painted = np.zeros((ROWS, COLS), np.uint8)
    painted[5, 5:16] = 1
    painted[19:22, 19:32] = 2
    painted[[19, 19, 21, 21], [19, 31, 19, 31]] = 0  # its corners are round
    painted[19:22, 20:31] = 2
    found = tab.labels()
    assert (found[5] == painted[5]).all()
    assert (found[20] == painted[20]).all() and (found > 0).sum() >= 11 + 3 * 11
    assert (bench.page("look").label_raster((ROWS, COLS)) == found).all()
    assert tab.state("classes")[0]["count"] == 11
    assert "Saved" in tab.text(".saved")


def test_every_tool_paints_its_shape(tab: Workbench) -> None:
    tab.add_class("Corn")
    tab.press("d")
    tab.click(2, 3)
    tab.press("l", "[", "[")
    tab.drag((10, 5), (10, 12))
    tab.press("g")
    for corner in ((20, 5), (20, 15), (26, 15), (26, 5)):
        tab.click(*corner)
    tab.page.mouse.dblclick(*tab.place(26, 5))
    tab.press("f")
    tab.drag((30, 20), (30, 30), (36, 30), (36, 20), (31, 20))
    found = tab.labels()
    assert found[2, 3] == 1 and found[10, 5:13].all() and found[10, 13] == 0
    assert found[21:26, 6:15].all() and not found[18:28, 17:].any()
    assert found[30:37, 20:31].all() and not found[38].any()
    tab.press("r", "]", "]", "]", "]")
    tab.drag((23, 10), (33, 25))
    tab.saved()
    assert tab.labels()[23, 10] == 0 and tab.labels()[33, 25] == 0


def test_the_wand_takes_what_has_the_same_spectrum(tab: Workbench) -> None:
    truth = make_fields(ROWS, COLS, BANDS, noise=5.0)[0]
    tab.add_class("Corn")
    tab.press("w")
    tab.page.mouse.move(*tab.place(3, 3))
    tolerance = tab.state("tolerance")
    tab.page.mouse.wheel(0, -100)
    tab.until("known => window.workbench.store.get().tolerance > known", tolerance)
    tab.click(3, 3)
    tab.until("() => window.workbench.store.get().classes[0].count > 0")
    found = tab.labels() > 0
    like = np.abs(truth - truth[3, 3]).max(axis=2) < 60
    assert found[3, 3] and found.sum() > 50 and (like[found]).all()


def test_keys_alone_are_enough(tab: Workbench) -> None:
    tab.add_class("Corn")
    tab.press("b", "[", "[")
    tab.page.locator("#map").focus()
    tab.press("ArrowRight")
    start = tab.state("cursor")
    tab.press("Enter", "Shift+ArrowDown", "ArrowLeft", "Enter")
    found = tab.labels()
    assert found[start["row"], start["col"]] == 1 and found[start["row"] + 10, start["col"] - 1] == 1
    assert (found > 0).sum() == 2


def test_undo_and_redo_go_through_everything_also_after_a_reload(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tab.press("d")
    tab.click(4, 4)
    tab.click(6, 6)
    tab.saved()
    tab.press("Control+z")
    assert tab.labels()[6, 6] == 0 and tab.labels()[4, 4] == 1
    tab.press("Control+Shift+z")
    assert tab.labels()[6, 6] == 1
    tab.page.reload()
    tab.until("() => window.workbench?.labelling.raster.valueAt(0, 0) === 0")
    assert tab.state("writer")
    assert tab.labels()[6, 6] == 1
    tab.press("Control+z", "Control+z", "Control+z", "Control+z")
    tab.saved()
    assert tab.labels().sum() == 0
    tab.until("() => window.workbench.store.get().classes.length === 0")
    assert bench.page("look").state()["classes"] == []


def test_classes_are_renamed_hidden_locked_merged_and_removed(tab: Workbench) -> None:
    for name in ("Corn", "Wood", "Lake"):
        tab.add_class(name)
    tab.press("d", "1")
    tab.click(4, 4)
    tab.press("2")
    tab.click(6, 6)
    tab.saved()
    tab.page.click("[aria-label='Lock Corn']")
    tab.until("() => window.workbench.store.get().classes[0].locked")
    tab.click(4, 4)  # is Corn's, and stays
    assert tab.labels()[4, 4] == 1
    tab.page.click("[aria-label='Hide Wood']")
    tab.until("() => window.workbench.store.get().classes[1].hidden")
    tab.page.click("[aria-label='Edit Lake']")
    tab.page.select_option("[aria-label='Key']", "7")
    tab.until("() => window.workbench.store.get().classes[2].key === '7'")
    tab.page.click("[aria-label='Edit Wood']")
    tab.page.select_option("[aria-label='Merge into']", label="Lake")
    tab.until("() => window.workbench.labelling.raster.valueAt(6, 6) === 3")
    tab.page.click("[aria-label='Edit Lake']")
    tab.page.click(".editor >> text=Remove")
    tab.until("() => window.workbench.store.get().classes.length === 1")
    tab.until("() => window.workbench.labelling.raster.valueAt(6, 6) === 0")


def test_a_name_is_typed_in_peace_while_events_come(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    told = tab.requests.count("/api/classes")
    tab.page.click("[aria-label='Edit Corn']")
    tab.page.locator(".editor input[type=text]").select_text()
    for part in ("Winter", " ", "wheat"):
        tab.page.keyboard.type(part)
        tab.page.evaluate("() => { window.known = window.workbench.store.get().classes; }")
        bench.bench.hub.publish("state", bench.bench.label_state())
        tab.until("() => window.workbench.store.get().classes !== window.known")
    assert tab.page.input_value(".editor input[type=text]") == "Winter wheat"
    tab.press("Enter")
    tab.until("() => window.workbench.store.get().classes[0].name === 'Winter wheat'")
    assert tab.requests.count("/api/classes") == told + 1  # no name that was half typed
    assert tab.page.locator(".editor").count() == 0


def test_what_is_older_than_what_the_page_knows_changes_nothing(tab: Workbench, bench: Served) -> None:
    older = bench.bench.label_state()
    tab.add_class("Corn")
    bench.bench.hub.publish("state", older)
    bench.bench.say("info", "the older state was sent")
    tab.page.wait_for_selector("text=The older state was sent")
    assert [one["name"] for one in tab.state("classes")] == ["Corn"]


def test_names_with_markup_stay_text(tab: Workbench) -> None:
    name = "<img src=x onerror=alert(1)><b>Wood</b>"
    tab.add_class(name)
    assert name in tab.text(".classes")
    assert tab.page.locator(".classes img, .classes b").count() == 0
    tab.press("d")
    tab.click(3, 3)
    tab.page.mouse.move(*tab.place(3, 4))
    tab.page.mouse.move(*tab.place(3, 3))
    tab.until("name => document.querySelector('.readout').innerText.includes(name)", name)


def test_bands_are_chosen_in_the_spectrum_and_by_name(tab: Workbench) -> None:
    tab.page.mouse.move(*tab.place(3, 3))
    tab.until("() => window.workbench.store.get().spectrum !== null")
    values = np.array(list(tab.page.evaluate("() => [...window.workbench.store.get().spectrum.values]")))
    assert np.allclose(values, make_fields(ROWS, COLS, BANDS, noise=5.0)[0][3, 3])
    red = tab.page.get_by_role("slider", name="Red band")
    before = int(red.get_attribute("aria-valuenow") or -1)
    red.focus()
    tab.press("ArrowRight")
    assert tab.state("bands").split("-")[0] == str(before + 1)
    box = red.bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + 7, box["y"] + 40)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 90, box["y"] + 40, steps=4)
    tab.page.mouse.up()
    assert int(tab.state("bands").split("-")[0]) > before + 1
    tab.until(
        "bands => performance.getEntriesByType('resource').some(({name}) => name.includes(`tiles/scene/${bands}/`))",
        tab.state("bands"),
    )
    tab.page.select_option("[aria-label='Bands shown']", "pca")
    assert tab.state("bands") == "pca" and red.is_hidden()
    tab.press("s")
    assert tab.page.locator(".pins li").count() == 1
    with tab.page.expect_download() as download:
        tab.page.click("text=CSV")
    table = Path(download.value.path()).read_text().splitlines()
    assert table[0].startswith("band,row 3 column 3") and len(table) == BANDS + 1


def test_a_table_has_the_spectra_that_are_shown(tab: Workbench) -> None:
    tab.add_class("Corn")
    tab.press("d")
    tab.click(4, 4)
    tab.saved()
    tab.page.mouse.move(*tab.place(3, 3))
    tab.until("() => window.workbench.store.get().spectrum?.pixel.row === 3")
    tab.until("() => Object.keys(window.workbench.spectrumPanel.means).length === 1")
    assert _saved_columns(tab) == ["band", "row 3 column 3", "Corn mean", "Corn standard deviation"]
    tab.page.uncheck("text=Class means")
    assert _saved_columns(tab) == ["band", "row 3 column 3"]


def _saved_columns(tab: Workbench) -> list[str]:
    with tab.page.expect_download() as download:
        tab.page.click("text=CSV >> nth=0")
    return Path(download.value.path()).read_text().splitlines()[0].split(",")


def test_pixels_without_data_stay_unlabelled_and_the_page_says_so(browser: Browser, tmp_path: Path) -> None:
    cube = make_fields(ROWS, COLS, BANDS)[0]
    cube[:, 20:] = np.nan
    np.save(tmp_path / "half.npy", cube)
    with served(tmp_path / "half.npy", tmp_path / "project") as bench, browser.new_context(viewport=DESKTOP) as context:
        tab = Workbench.open(context, bench.access.address)
        tab.add_class("Corn")
        tab.press("b", "[", "[")
        tab.drag((5, 15), (5, 24))
        tab.page.wait_for_selector("text=5 of 10 pixels have no data and stay unlabelled.")
        tab.until("() => window.workbench.labelling.raster.valueAt(5, 24) === 0")
        tab.until("() => !document.querySelector('.readout').innerText.includes('label Corn')")  # without a move
        assert np.flatnonzero(tab.labels()[5]).tolist() == [15, 16, 17, 18, 19]
        assert tab.problems == []


def test_a_file_with_several_fields_is_opened_when_one_is_named(tab: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("row,col,level_1,level_2\n3,4,field,corn\n9,8,field,wheat\n")
    tab.tab("Files")
    tab.page.locator("input[type=file]").set_input_files(file)
    tab.page.wait_for_selector("text=/Which field of points.csv holds the class.*type one into the box below the file/")
    tab.page.get_by_label("Field of the class").fill("level_2")
    tab.press("Enter")
    tab.until("() => window.workbench.labelling.raster.valueAt(9, 8) > 0")
    assert sorted(one["name"] for one in tab.state("classes")) == ["corn", "wheat"]
    assert tab.page.input_value("input[type=file]") == ""
    tab.problems[:] = [told for told in tab.problems if "400" not in told]


def test_every_choice_of_contrast_is_another_one(tab: Workbench, bench: Served) -> None:
    stretches = tab.page.eval_on_selector_all("[aria-label='Stretch'] option", "all => all.map(({value}) => value)")
    pictures = {bench.bench.view.picture("pca", stretch, 0, 0, 0) for stretch in stretches}
    assert len(pictures) == len(stretches) >= 4


def test_the_picture_shows_the_scene_and_one_key_shows_the_scene_alone(tab: Workbench) -> None:
    tab.add_class("Corn")
    tab.press("b", "]", "]", "]")
    tab.drag((10, 10), (30, 40))
    tab.saved()
    color = tab.state("classes")[0]["color"]
    painted, alone = _share_of(tab, color), 0.0
    tab.press("o")
    alone = _share_of(tab, color)
    assert painted > 0.02 > alone
    tab.press("o")
    assert _share_of(tab, color) == pytest.approx(painted, abs=0.01)


def _share_of(tab: Workbench, color: str) -> float:
    """Share of the map's picture that is close to a colour."""
    from io import BytesIO

    from matplotlib.image import imread

    tab.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    picture = imread(BytesIO(tab.page.locator("#map").screenshot()))[..., :3]
    wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    assert picture.std() > 0.02  # not blank
    return float((np.abs(picture - wanted).max(axis=2) < 0.2).mean())


def test_a_second_tab_is_told_and_can_only_look(browser: Browser, bench: Served) -> None:
    with browser.new_context(viewport=DESKTOP) as context:
        first = Workbench.open(context, bench.access.address)
        first.add_class("Corn")
        second = Workbench.open(context, bench.base + "/")
        second.until("() => !window.workbench.store.get().writer")
        assert first.state("writer")
        assert "can only be viewed" in second.text(".cards")
        assert second.page.get_by_role("button", name="Brush").is_disabled()
        first.press("d")
        first.click(7, 7)
        second.until("() => window.workbench.labelling.raster.valueAt(7, 7) === 1")
        first.add_class("Wood")
        first.click(17, 17)
        second.until("() => window.workbench.store.get().classes.every(({count}) => count > 0)")
        assert "needs labelled pixels" not in second.text("aside")
        first.page.close()
        second.until("() => window.workbench.store.get().writer", seconds=20)
        assert second.page.locator(".cards").inner_text() == ""
        second.press("1", "d")
        second.click(9, 9)
        assert second.labels()[9, 9] == 1
        assert first.problems == second.problems == []


def test_strokes_wait_while_the_server_is_away_and_are_sent_once(tab: Workbench, bench: Served) -> None:
    tab.add_class("Corn")
    tab.press("d")
    bodies: list[Any] = []

    def lose(route: Any) -> None:
        bodies.append(route.request.post_data_json)
        if len(bodies) == 1:
            route.fetch()  # arrives, but the answer is lost
        route.abort()

    tab.page.route("**/api/strokes", lose)
    tab.click(4, 4)
    tab.click(5, 5)
    tab.until("() => document.querySelector('.saved').textContent.startsWith('Not saved')")
    while len(bodies) < 2:
        tab.page.wait_for_timeout(20)
    tab.page.unroute("**/api/strokes")
    tab.saved()
    assert len({body["stroke"] for body in bodies}) == 1 and len(bodies) >= 2
    assert (bench.page("look").label_raster((ROWS, COLS)) == tab.labels()).all()
    tab.press("Control+z", "Control+z")
    assert tab.labels().sum() == 0  # two steps, not three
    tab.problems[:] = [told for told in tab.problems if "ERR_FAILED" not in told]


def test_a_georeferenced_scene_shows_coordinates(browser: Browser, tmp_path: Path) -> None:
    cube = make_fields(ROWS, COLS, BANDS)[0]
    file = write(tmp_path / "geo.tif", cube, "float32", crs="EPSG:32633", transform=GRID)
    with served(file, tmp_path / "project") as bench, browser.new_context(viewport=DESKTOP) as context:
        tab = Workbench.open(context, bench.access.address)
        tab.page.mouse.move(*tab.place(2, 10))
        x, y = GRID.c + 10.5 * GRID.a, GRID.f + 2.5 * GRID.e
        tab.until("text => document.querySelector('.readout').innerText.includes(text)", f"{x:.0f}, {y:.0f} EPSG:32633")
        assert tab.problems == []


def test_a_scene_of_many_tiles_is_painted_at_every_scale(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "large.npy", rng.integers(0, 1000, (600, 1300, 3)).astype(np.uint16))
    with (
        served(tmp_path / "large.npy", tmp_path / "project") as bench,
        browser.new_context(viewport=DESKTOP) as context,
    ):
        tab = Workbench.open(context, bench.access.address)
        tab.add_class("Corn")
        tab.press("b", *["]"] * 12)
        tab.drag((100, 100), (500, 1200))  # the whole scene is in view: coarse tiles
        tab.saved()
        expected = bench.page("look").state()["classes"][0]["count"]
        assert expected > 10_000
        tab.page.evaluate("() => window.workbench.view.flyTo({row: 300, col: 650})")
        tab.until("() => window.workbench.labelling.raster.valueAt(300, 650) === 1")
        tab.press("r")
        tab.until("() => !window.workbench.view.map.getView().getAnimating()")
        tab.click(300, 650)
        tab.saved()
        tab.page.evaluate("() => window.workbench.view.fit()")
        tab.until("() => window.workbench.labelling.raster.stale.size === 0")
        assert tab.page.evaluate("() => window.workbench.labelling.raster.valueAt(300, 650)") == 0
        assert bench.page("look").state()["classes"][0]["count"] < expected
        assert tab.problems == []


def test_a_coarse_picture_comes_first_and_is_drawn_again_with_overviews(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "large.npy", np.random.default_rng(0).integers(0, 1000, (600, 1300, 3)).astype(np.uint16))
    start = Overviews.start
    monkeypatch.setattr(Overviews, "start", lambda *_: None)
    asked = """() => performance.getEntriesByType('resource').map(({name}) => name)
      .filter(name => name.includes('/scene/')).map(name => name.slice(name.indexOf('/2-98/')))"""
    with (
        served(tmp_path / "large.npy", tmp_path / "project") as bench,
        browser.new_context(viewport=DESKTOP) as context,
    ):
        tab = Workbench.open(context, bench.access.address)
        tab.until("() => window.workbench.view.map.getLayers().item(1).getVisible()")
        assert tab.page.evaluate(asked)[0] == "/2-98/3/0/0?overviews=none"
        start(bench.bench.view.overviews)
        tab.until(f"() => ({asked})().includes('/2-98/3/0/0')")
        assert tab.problems == []


def test_after_a_click_in_the_panels_keys_are_those_of_the_map(tab: Workbench) -> None:
    resolution = "() => window.workbench.view.map.getView().getResolution()"
    whole = tab.page.evaluate(resolution)
    tab.page.evaluate("to => window.workbench.view.map.getView().setResolution(to)", whole / 2)
    tab.tab("Layers")
    tab.press("Home")
    assert tab.page.evaluate(resolution) == pytest.approx(whole)
    tab.page.mouse.move(*tab.place(7, 9))
    tab.press("s")  # at once: its spectrum may still be on the way
    tab.until("() => window.workbench.store.get().pins.length === 1")
    assert tab.state("pins")[0]["pixel"] == {"row": 7, "col": 9}


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light", "dark-phone"])
def test_nothing_serious_is_found_by_axe(browser: Browser, bench: Served, scheme: Any, size: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (make check installs it)")
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        tab = Workbench.open(context, bench.access.address)
        tab.add_class("Corn")
        tab.press("d")
        tab.click(4, 4)
        tab.press("s")
        found = []
        for name in ("Scores", "Layers", "History", "Files"):
            tab.tab(name)
            found += _violations(tab)
        tab.press("?")
        found += _violations(tab)
        assert found == []
        assert tab.problems == []


def _violations(tab: Workbench) -> list[str]:
    source = AXE.read_text() + "; axe.run(document, {resultTypes: ['violations']})"
    result = tab.page.evaluate(source)
    serious = [one for one in result["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0]['failureSummary']}" for one in serious]


def test_in_a_window_of_medium_width_the_map_and_the_readout_keep_their_place(browser: Browser, bench: Served) -> None:
    with browser.new_context(viewport={"width": 900, "height": 700}) as context:
        tab = Workbench.open(context, bench.access.address)
        tab.add_class("A class with a name that is long enough")
        tab.press("d")
        tab.click(8, 9)
        tab.saved()
        width = tab.page.locator("#map").bounding_box()["width"]
        assert width > 500
        tab.until("() => document.querySelector('.readout').innerText.includes('long enough')")
        last = tab.page.locator(".readout span").last.bounding_box()
        assert last["x"] + last["width"] <= 900 - tab.page.locator("aside").bounding_box()["width"]


def test_on_a_phone_all_tools_and_the_suggested_point_are_seen(browser: Browser, bench: Served) -> None:
    for number in range(24):
        bench.bench.labels.add_class(f"Class number {number}, with a rather long name for a kind of ground", None)
    with browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True) as context:
        tab = Workbench.open(context, bench.access.address)
        for button in tab.page.locator(".tools button:visible").all():
            box = button.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
        tab.page.evaluate(
            """() => {
              const guess = id => ({ id, confidence: 0.4 });
              const points = [{ row: 20, col: 25, first: guess(1), second: guess(2) }];
              window.workbench.store.set({ suggesting: { points, index: 0 } });
              window.workbench.view.map.getView().setCenter([25.5, -20.5]);
            }"""
        )
        card = tab.page.locator(".suggestion").bounding_box()
        assert card["y"] + card["height"] < tab.place(20, 25)[1] - 15
        assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_the_map_is_seen_and_painted(browser: Browser, bench: Served) -> None:
    with browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True) as context:
        tab = Workbench.open(context, bench.access.address)
        box = tab.page.locator("#map").bounding_box()
        assert box is not None and box["width"] >= 380 and box["height"] > 350 and box["y"] < 120
        assert tab.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        tab.add_class("Corn")
        tab.page.get_by_role("button", name="Point").click()
        tab.page.touchscreen.tap(*tab.place(8, 9))
        tab.until("() => window.workbench.labelling.raster.valueAt(8, 9) === 1")
        assert tab.problems == []


def test_dark_is_dark_and_can_be_changed(browser: Browser, bench: Served) -> None:
    with browser.new_context(viewport=DESKTOP, color_scheme="dark") as context:
        tab = Workbench.open(context, bench.access.address)
        assert _brightness(tab) < 150
        tab.page.click("[aria-label='Light or dark']")
        assert _brightness(tab) > 600
        tab.page.reload()
        tab.until("() => window.workbench !== undefined")
        assert _brightness(tab) > 600


def _brightness(tab: Workbench) -> int:
    color = tab.page.evaluate("() => getComputedStyle(document.querySelector('aside')).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", color))


def test_painting_touches_only_what_it_must(tab: Workbench) -> None:
    """Lag comes back unseen: a dab must not draw the whole map again."""
    tab.add_class("Corn")
    frames = "() => Number(document.querySelector('#map').dataset.frames)"
    coloured = tab.page.evaluate(
        """() => {
          const pen = CanvasRenderingContext2D.prototype, put = pen.putImageData;
          let pixels = 0;
          pen.putImageData = function (data, ...at) {
            pixels += data.width * data.height;
            put.call(this, data, ...at);
          };
          const live = window.workbench.labelling.begin(1, 'brush');
          for (let i = 0; i < 200; i++) live.add([[10 + i % 20, 5, 35], [11 + i % 20, 5, 35]]);
          pen.putImageData = put;
          live.cancel();
          return pixels;
        }"""
    )
    assert coloured == 200 * 2 * 30
    before = tab.page.evaluate(
        "() => window.workbench.view.map.getRenderer() && window.workbench.view.map.frameState_?.index"
    )
    tab.press("b")
    tab.drag((5, 5), (30, 30), (5, 40))
    after = tab.page.evaluate("() => window.workbench.view.map.frameState_?.index")
    assert after - before < 20 and tab.page.evaluate(frames) > 0
