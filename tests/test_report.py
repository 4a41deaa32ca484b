"""report.html: all of a run on one page that opens offline, whatever the classes are called."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from browser import look_at
from conftest import QUICK, make_cube
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.cli import app
from hypercaps.errors import SplitError
from hypercaps.quicklook import bands_to_see, quicklook
from hypercaps.report import make_report
from hypercaps.run import train_run
from hypercaps.scene import Labels, Legend, Scene
from hypercaps.signatures import signatures

NASTY = ["<script>alert('corn')</script>", 'wheat" onerror="x', "oats & rye https://elsewhere.test/x"]
WAVES = np.linspace(400, 1000, 26)


def scene_and_labels() -> tuple[Scene, Labels]:
    cube, truth = make_cube()
    legend = Legend.of([1, 2, 3], NASTY)
    return Scene.from_array(cube, name="<b>scene</b>", wavelengths=WAVES), Labels(truth, legend, "gt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run by blocks, with both splits, unsure pixels and sets."""
    out = tmp_path_factory.mktemp("report") / "run"
    classifier = ConvCapsClassifier(**QUICK, recipe="paper", split_by="blocks", block=7, val=0.2)
    scene, labels = scene_and_labels()
    command = "hypercaps train '<i>cube</i>.npy'"
    train_run(classifier, scene, labels, out, both=True, reject=0.9, coverage=0.9, command=command)
    return out


class Page(HTMLParser):
    """What is in a page: tags, addresses, and the text a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text += "\n" if tag == "td" else ""
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_nothing_in_it_points_outside(folder: Path, page: Page) -> None:
    assert page.addresses and all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(?i)https?:|url\(|@import", text)
    assert "default-src 'none'" in text


def test_names_are_text_and_nothing_else(page: Page) -> None:
    assert "<script>alert('corn')</script>" in page.text and 'wheat" onerror="x' in page.text
    assert "<b>scene</b>" in page.text and "<i>cube</i>.npy" in page.text
    assert "i" not in page.tags and not page.handlers


def test_every_figure_is_that_of_the_run(folder: Path, page: Page) -> None:
    metrics = json.loads((folder / "metrics.json").read_text())
    for key in ("oa", "aa", "kappa"):
        assert f"{metrics[key]:.2f} %" in page.text
        assert f"{metrics['both']['random'][key]:.2f} %" in page.text
    assert "Split: blocks (blocks of 7 x 7 pixels), leakage 0.0 %" in page.text
    assert metrics["both"]["random"]["leakage"] > 0.05 and metrics["both"]["blocks"]["oa"] == metrics["oa"]
    assert f"hold it in {100 * metrics['coverage_90']:.1f} % of the test pixels" in page.text
    assert "exchangeable" in page.text and "different ground" in page.text
    assert metrics["model_sha256"] in page.text and metrics["versions"]["torch"] in page.text
    assert "split_by='blocks'" in page.text and "block=7" in page.text and "train=" in page.text
    assert "unsure: confidence below 0.9" in page.text


def test_it_is_made_from_the_folder_alone(folder: Path) -> None:
    assert make_report(folder) == (folder / "report.html").read_text(encoding="utf-8")


def test_classes_and_their_pixels_are_counted(folder: Path) -> None:
    classes = json.loads((folder / "classes.json").read_text())
    metrics = json.loads((folder / "metrics.json").read_text())
    for which in ("train", "val", "test"):
        assert sum(entry[which] for entry in classes["classes"]) == metrics[f"n_{which}"]
    assert [entry["name"] for entry in classes["classes"]] == NASTY
    assert all(sum(map(abs, entry["share"])) == pytest.approx(1) for entry in classes["classes"])


def test_the_pictures_show_what_they_say(folder: Path) -> None:
    scene, labels = scene_and_labels()
    truth = np.round(255 * imread(folder / "labels.png")[..., :3]).astype(int)
    for entry in labels.legend:
        assert (truth[labels.array == entry.label] == entry.color).all()
    assert imread(folder / "scene.png").shape[:2] == scene.shape[:2]


def test_a_browser_opens_it_without_a_complaint(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.html"
    empty.write_text("<!doctype html><title>nothing</title>")
    errands = look_at(empty).hosts  # what the browser asks for itself
    seen = look_at(folder / "report.html")
    assert not seen.complaints and seen.hosts <= errands
    # Something is drawn from top to bottom: headings, the green and orange of the confusion, the classes' colours.
    assert min(band.std() for band in np.array_split(seen.picture, 8)) > 0.02
    assert len(np.unique((seen.picture * 15).astype(int).reshape(-1, 3), axis=0)) > 50
    # The same eyes do see a script that fails and a picture from elsewhere.
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://elsewhere.test/x.png"><script>fails()</script>')
    control = look_at(bad)
    assert "elsewhere.test" in control.hosts and "fails is not defined" in control.complaints[0]


def test_a_phone_shows_it_without_cutting_anything_off(folder: Path) -> None:
    """What is wider than the screen scrolls inside a box of its own: right of the margin the page is empty."""
    seen = look_at(folder / "report.html", width=500, height=3000)  # chromium makes no narrower window
    assert seen.picture.shape[1] == 500
    edge = seen.picture[:, -8:]
    assert edge.std() < 0.01


def test_without_a_map_and_without_validation_it_says_so(tmp_path: Path) -> None:
    scene, labels = scene_and_labels()
    options = {key: value for key, value in QUICK.items() if key not in ("epochs", "batch_size")}
    classifier = ConvCapsClassifier(**options, method="rbf-svm", val=0.0)
    train_run(classifier, scene, labels, tmp_path / "run", with_map=False)
    text = Page((tmp_path / "run" / "report.html").read_text()).text
    assert "This run has no map" in text and "confidence is the raw score" in text
    assert "has no capsules that could be asked" in text


def test_a_georeferenced_map_has_areas(tmp_path: Path) -> None:
    cube, truth = make_cube()
    plain = Scene.from_array(cube)
    scene = Scene(plain.shape, plain.dtype, plain.reader, crs="EPSG:32633", transform=(30.0, 0, 5e5, 0, -30.0, 5e6))
    classifier = ConvCapsClassifier(**QUICK, recipe="paper")
    train_run(classifier, scene, Labels.from_array(truth), tmp_path / "run")
    text = Page((tmp_path / "run" / "report.html").read_text()).text
    assert "hectares" in text
    assert "leakage 100.0 %" in text and "expect less" in text  # a random split is never shown without it
    found = [float(cell) for cell in re.findall(r"^(\d+\.\d)\s*$", text, flags=re.MULTILINE)]
    counts = np.bincount(classifier.predict(scene).ravel(), minlength=4)[1:]
    assert {round(0.09 * n, 1) for n in counts.tolist()} <= set(found)
    assert sum(counts) == truth.size


# ---- what it is made of ----------------------------------------------------------------------------------------------


def test_bands_are_those_the_eye_sees() -> None:
    cube = np.zeros((3, 4, 25), dtype=np.float32)
    (red, green, blue), natural = bands_to_see(Scene.from_array(cube, wavelengths=np.linspace(400, 1000, 25)))
    waves = np.linspace(400, 1000, 25)
    assert natural and (waves[red], waves[green], waves[blue]) == (650, 550, 475)
    for infrared in (np.linspace(1000, 2500, 25), None):
        bands, natural = bands_to_see(Scene.from_array(cube, wavelengths=infrared))
        assert not natural and len(set(bands)) == 3 and max(bands) < 25


def test_a_large_scene_is_thinned_on_one_grid() -> None:
    """Tiles of what is read must not show: every step-th pixel of the whole, wherever tiles begin."""
    rng = np.random.default_rng(0)
    cube = rng.random((300, 530, 3)).astype(np.float32)
    cube[::7, 10] = np.nan
    scene = Scene.from_array(cube)
    whole, small = quicklook(scene, 1000), quicklook(scene, 180)
    assert whole.step == 1 and small.step == 3 and small.picture.shape == (100, 177, 3)
    valid = np.isfinite(cube).all(axis=2)
    assert (whole.picture[~valid] == 245).all() and whole.picture[valid].std() > 50
    low, high = np.percentile(cube[::3, ::3][valid[::3, ::3]], [2, 98], axis=0)
    bands = list(small.bands)
    expected = np.clip(255 * (cube[::3, ::3][:, :, bands] - low[bands]) / (high - low)[bands], 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(small.picture[valid[::3, ::3]], expected[valid[::3, ::3]])


def test_spectra_are_means_of_the_labelled_pixels(trained: ConvCapsClassifier, made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    cube = scene.read(slice(0, scene.rows), slice(0, scene.cols)).values
    for signature in signatures(trained.model_, scene, labels):
        own = cube[labels.array == signature.entry.label]
        chosen = np.unique(np.linspace(0, len(own) - 1, min(200, len(own))).round().astype(int))
        np.testing.assert_allclose(signature.mean, own[chosen].mean(axis=0, dtype=np.float64), rtol=1e-6)
        assert signature.heard is not None and len(signature.heard.pixels) == 8
        assert (labels.array[tuple(signature.heard.pixels.T)] == signature.entry.label).all()


# ---- both splits -----------------------------------------------------------------------------------------------------


def test_train_both_from_the_command_line(tmp_path: Path) -> None:
    cube, truth = make_cube()
    np.save(tmp_path / "cube.npy", cube)
    np.save(tmp_path / "gt.npy", truth)
    typed = [
        "train", tmp_path / "cube.npy", tmp_path / "gt.npy", "--out", tmp_path / "run", "--both", "--block", 7,
        "--recipe", "paper", "--epochs", 4, "--train", 0.3, "--val", 0.2, "--no-map",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [str(arg) for arg in typed])
    assert done.exit_code == 0, done.output
    both = json.loads((tmp_path / "run" / "metrics.json").read_text())["both"]
    assert list(both) == ["random", "blocks"] and both["blocks"]["block"] == 7 and both["blocks"]["leakage"] == 0
    assert f"{both['blocks']['oa']:.2f} %" in done.output and f"{both['random']['oa']:.2f} %" in done.output
    assert "By both splits" in html.unescape((tmp_path / "run" / "report.html").read_text())


def test_both_is_refused_where_there_is_no_counterpart(tmp_path: Path) -> None:
    scene, labels = scene_and_labels()
    with pytest.raises(SplitError, match="no counterpart"):
        train_run(ConvCapsClassifier(split_by="polygons"), scene, labels, tmp_path / "run", both=True)
    assert not (tmp_path / "run").exists()
