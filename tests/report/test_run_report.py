"""report.html: the whole run on one page that opens offline, with any class names."""

from __future__ import annotations

import html
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
from matplotlib.image import imread
from typer.testing import CliRunner

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.cli import app
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, SplitError
from hypercaps.pipeline.requests import MapRequest, TrainRequest, run_files
from hypercaps.pipeline.run_files import LAYER_FILES
from hypercaps.pipeline.train import train_run
from hypercaps.report.quicklook import quicklook, rgb_bands
from hypercaps.report.run_report import make_report
from hypercaps.report.signatures import signatures
from support.browser import look_at
from support.html_page import Page
from support.scenes import QUICK, make_cube

NASTY = ["<script>alert('corn')</script>", 'wheat" onerror="x', "oats & rye https://elsewhere.test/x"]
WAVES = np.linspace(400, 1000, 26)


def scene_and_labels() -> tuple[Scene, Labels]:
    cube, truth = make_cube()
    legend = Legend.of([1, 2, 3], NASTY)
    return Scene.from_array(cube, name="<b>scene</b>", wavelengths=WAVES), Labels(truth, legend, "gt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a block split, --both, --reject, --unknown and --coverage."""
    out = tmp_path_factory.mktemp("report") / "run"
    classifier = ConvCapsClassifier(**QUICK, split_by="blocks", block=7, val=0.2)
    scene, labels = scene_and_labels()
    command = "hypercaps train '<i>cube</i>.npy'"
    options = MapRequest(run_files(["sets"]), reject=0.9, unknown=0.1, coverage=0.9)
    train_run(classifier, scene, labels, out, TrainRequest(map=options, both=True, command=command))
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_loads_nothing_from_elsewhere(folder: Path, page: Page) -> None:
    assert page.addresses and all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(?i)https?:|url\(|@import", text)
    assert "default-src 'none'" in text


def test_names_are_escaped(page: Page) -> None:
    assert "<script>alert('corn')</script>" in page.text and 'wheat" onerror="x' in page.text
    assert "<b>scene</b>" in page.text and "<i>cube</i>.npy" in page.text
    assert "i" not in page.tags and not page.handlers


def test_every_number_is_that_of_the_run(folder: Path, page: Page) -> None:
    metrics = json.loads((folder / "metrics.json").read_text())
    for key in ("oa", "aa", "kappa"):
        assert f"{metrics[key]:.1f} %" in page.text
        low, high = metrics["both"]["random"][f"{key}_interval"]
        assert f"{metrics['both']['random'][key]:.1f} % {low:.1f} to {high:.1f}" in page.text
    assert "Split: blocks (blocks of 7 x 7 pixels), leakage 0.0 %" in page.text
    assert metrics["both"]["random"]["leakage"] > 0.05 and metrics["both"]["blocks"]["oa"] == metrics["oa"]
    assert page.text.count("trained on unlabelled pixels") == 1  # beside both splits
    assert page.text.count("Split: blocks") == 1
    assert "exchangeable" in page.text and "different areas" in page.text
    assert metrics["model_sha256"] in page.text and metrics["versions"]["torch"] in page.text
    cells = page.tables
    classes = json.loads((folder / "classes.json").read_text())["classes"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(folder / "map.tif") as raster:
            mapped = np.bincount(raster.read(1).ravel(), minlength=6)
    table = cells["Class"]
    for row, entry, score in zip(table, classes, metrics["per_class"], strict=False):
        assert row[1:4] == [f"{entry[key]:,}" for key in ("train", "val", "test")]
        low, high = score["interval"]
        assert row[4:6] == [f"{score['accuracy']:.1f}", f"{low:.1f} to {high:.1f}"]
        low, high = score["users_interval"]
        assert row[7] == f"{low:.1f} to {high:.1f}" and low <= float(row[6]) + 0.05 and float(row[6]) <= high + 0.05
        assert row[8] == f"{mapped[entry['label']]:,}"
    for row, name, label in zip(table[-2:], ("unsure", "unknown"), (4, 5), strict=True):
        assert row[0] == name and row[8] == f"{mapped[label]:,}"
    assert mapped.sum() == 36 * 36
    assert sum(float(row[9]) for row in table) == pytest.approx(100, abs=0.05)
    assert [[int(cell) for cell in row[1:]] for row in cells["true class"]] == metrics["confusion"]
    kept, right = cells["threshold"]
    assert kept[1:] == [f"{100 * row['kept']:.1f}" for row in metrics["rejection"]]
    assert right[1:] == [f"{100 * row['accuracy']:.1f}" for row in metrics["rejection"]]
    held, sizes = cells["chosen coverage, %"]
    assert held[1:] == [f"{100 * row['held']:.1f}" for row in metrics["sets"]]
    assert sizes[1:] == [f"{row['size']:.2f}" for row in metrics["sets"]]
    assert "split_by='blocks'" in page.text and "block=7" in page.text and "train=" in page.text
    assert "unsure: confidence below 0.9" in page.text and "unknown: familiarity below 0.1" in page.text


def test_the_report_is_made_from_the_folder_alone(folder: Path) -> None:
    assert make_report(folder, LAYER_FILES) == (folder / "report.html").read_text(encoding="utf-8")


def test_classes_and_their_pixels_are_counted(folder: Path) -> None:
    classes = json.loads((folder / "classes.json").read_text())
    metrics = json.loads((folder / "metrics.json").read_text())
    for which in ("train", "val", "test"):
        assert sum(entry[which] for entry in classes["classes"]) == metrics[f"n_{which}"]
    assert [entry["name"] for entry in classes["classes"]] == NASTY
    assert all(sum(map(abs, entry["share"])) == pytest.approx(1) for entry in classes["classes"])


def test_labels_and_scene_pictures_have_the_right_pixels(folder: Path) -> None:
    scene, labels = scene_and_labels()
    truth = np.round(255 * imread(folder / "labels.png")[..., :3]).astype(int)
    for entry in labels.legend:
        assert (truth[labels.array == entry.label] == entry.color).all()
    assert imread(folder / "scene.png").shape[:2] == scene.shape[:2]


def test_a_browser_opens_it_without_errors(folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="http://elsewhere.test/x.png"><script>fails()</script>')
    control = look_at(bad)  # shows that failing scripts and remote pictures would be noticed
    assert "elsewhere.test" in control.hosts and "fails is not defined" in control.errors[0]
    own_requests = control.hosts - {"elsewhere.test"}  # of the browser itself
    seen = look_at(folder / "report.html", height=7000)
    assert not seen.errors and seen.hosts <= own_requests
    # Something is drawn from the top to the last lines and nothing below: the screenshot has the whole page.
    drawn = [part.std() > 0.02 for part in np.array_split(seen.picture, 35)]
    assert all(drawn[:18]) and not drawn[-1]
    assert len(np.unique((seen.picture[::4, ::4] * 15).astype(int) @ [256, 16, 1])) > 50  # colours


@pytest.mark.parametrize("classes", ["few", "many"])
def test_a_phone_shows_it_without_cutting_anything_off(folder: Path, tmp_path: Path, classes: str) -> None:
    """Wide tables scroll inside their own box: the right margin of the page is empty."""
    page = folder / "report.html"
    if classes == "many":
        page = tmp_path / "many.html"
        tall = re.sub(r"(<th scope=\"col\" title=[^>]*>)", r"\1" * 30, (folder / "report.html").read_text())
        page.write_text(tall)
    frame = tmp_path / "phone.html"  # chromium's windows are wider than a phone
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.as_uri()}" style="width:360px;height:6000px;border:0">'
    )
    seen = look_at(frame, width=500, height=6000).picture
    assert seen[:, 20:340].std() > 0.1
    assert seen[:, 348:360].std() < 0.01


def test_the_report_mentions_a_missing_map_and_missing_validation(tmp_path: Path) -> None:
    scene, labels = scene_and_labels()
    options = {key: value for key, value in QUICK.items() if key not in ("epochs", "batch_size")}
    classifier = ConvCapsClassifier(**options, method="rbf-svm", val=0.0)
    train_run(classifier, scene, labels, tmp_path / "run", TrainRequest(with_map=False))
    text = Page((tmp_path / "run" / "report.html").read_text()).text
    assert "This run has no map" in text and "it is the raw score" in text
    assert "has no capsules, so there is no band attribution" in text


def test_a_georeferenced_map_has_areas_in_hectares(tmp_path: Path) -> None:
    cube, truth = make_cube()
    plain = Scene.from_array(cube)
    scene = Scene(plain.shape, plain.dtype, plain.reader, crs="EPSG:32633", transform=(30.0, 0, 5e5, 0, -30.0, 5e6))
    classifier = ConvCapsClassifier(**QUICK, recipe="paper")
    train_run(classifier, scene, Labels.from_array(truth), tmp_path / "run")
    page = Page((tmp_path / "run" / "report.html").read_text())
    # The scores of a random split are never shown without its leakage.
    assert "leakage 100.0 %" in page.text and "expect a lower accuracy" in page.text
    counts = np.bincount(classifier.predict(scene).ravel(), minlength=4)[1:]
    assert [row[-1] for row in page.tables["Class"]] == [f"{0.09 * n:.1f}" for n in counts.tolist()]
    assert counts.sum() == truth.size


# ---- parts of the report --------------------------------------------------------------------------------------------


def test_the_picture_shows_red_green_and_blue_bands() -> None:
    cube = np.zeros((3, 4, 25), dtype=np.float32)
    (red, green, blue), natural = rgb_bands(Scene.from_array(cube, wavelengths=np.linspace(400, 1000, 25)))
    waves = np.linspace(400, 1000, 25)
    assert natural and (waves[red], waves[green], waves[blue]) == (650, 550, 475)
    for infrared in (np.linspace(1000, 2500, 25), None):
        bands, natural = rgb_bands(Scene.from_array(cube, wavelengths=infrared))
        assert not natural and len(set(bands)) == 3 and max(bands) < 25


def test_a_large_scene_is_thinned_on_one_grid() -> None:
    """Every step-th pixel of the whole scene is shown, independent of the tiles that are read."""
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
        assert signature.explanation is not None and len(signature.explanation.pixels) == 8
        assert (labels.array[tuple(signature.explanation.pixels.T)] == signature.entry.label).all()


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
    for one in both.values():
        low, high = one["oa_interval"]
        assert f"{one['oa']:.1f} % ({low:.1f} to {high:.1f})" in done.output
    assert "Random split and block split" in html.unescape((tmp_path / "run" / "report.html").read_text())


def test_both_is_refused_for_splits_without_a_counterpart(tmp_path: Path) -> None:
    scene, labels = scene_and_labels()
    with pytest.raises(SplitError, match="no counterpart"):
        train_run(ConvCapsClassifier(split_by="polygons"), scene, labels, tmp_path / "run", TrainRequest(both=True))
    assert not (tmp_path / "run").exists()


def test_ctrl_c_in_the_second_training_keeps_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, labels = scene_and_labels()
    fit, fitted = ConvCapsClassifier.fit, []

    def once(self: ConvCapsClassifier, *args: object, **options: object) -> ConvCapsClassifier:
        fitted.append(self)
        if len(fitted) > 1:
            raise KeyboardInterrupt
        return fit(self, *args, **options)

    monkeypatch.setattr(ConvCapsClassifier, "fit", once)
    classifier = ConvCapsClassifier(**QUICK, recipe="paper", block=7)
    result = train_run(classifier, scene, labels, tmp_path / "run", TrainRequest(both=True, with_map=False))
    assert len(fitted) == 2 and result.metrics.both is None and (tmp_path / "run" / "model.safetensors").exists()
    assert "Random split and block split" not in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("option", ["reject", "coverage"])
def test_a_split_without_validation_pixels_is_refused_before_training(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small share of few labels is no pixel at all."""
    scene, labels = scene_and_labels()
    few = labels.array.copy()
    few[6:] = 0
    monkeypatch.setattr(ConvCapsClassifier, "fit", lambda *args, **options: pytest.fail("it was trained"))
    classifier = ConvCapsClassifier(**QUICK, val=0.02)
    options = MapRequest(run_files(["sets"] if option == "coverage" else []), **{option: 0.8})
    warned = pytest.warns(DataWarning, match="takes no pixel of")
    with warned, pytest.raises(SplitError, match=f"--{option} needs validation pixels"):
        train_run(classifier, scene, Labels.from_array(few), tmp_path / "run", TrainRequest(map=options))
    assert not (tmp_path / "run").exists()
