"""report.html of runs with folds, compared methods, areas and doubtful labels, and of runs without scores."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.pipeline.run_files import LAYER_FILES, RUN_FILES
from hypercaps.pipeline.train import train_run
from hypercaps.report.run_report import RunFolder, make_report
from hypercaps.report.split_picture import split_picture
from support.browser import look_at
from support.html_page import Page
from support.run_records import AREAS, CANDIDATES, DISTANCES, folds_metrics, lda_baseline, unscored_metrics
from support.scenes import make_cube

NASTY = 'oats & <b>rye</b> https://elsewhere.test/"x'
AVERAGE = "average of lda, logistic and random-forest"


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose metrics and split the tests replace."""
    out = tmp_path_factory.mktemp("plain") / "run"
    cube, truth = make_cube()
    labels = Labels(truth, Legend.of([1, 2, 3], ["corn", "wheat", NASTY]), "gt")
    scene = Scene.from_array(cube, wavelengths=np.linspace(400, 1000, 26))
    train_run(ConvCapsClassifier(method="lda"), scene, labels, out)
    return out


def named(metrics: RunMetrics) -> RunMetrics:
    """The same with the name of the third class of the run."""
    return replace(
        metrics,
        per_class=tuple(replace(row, name=NASTY) if row.name == "oats" else row for row in metrics.per_class),
        untested=tuple(NASTY if name == "oats" else name for name in metrics.untested),
        areas=tuple(replace(row, name=NASTY) if row.name == "oats" else row for row in metrics.areas),
    )


def rewritten(plain_run: Path, out: Path, metrics: RunMetrics, without: tuple[str, ...] = ()) -> Path:
    """A copy of the run with other metrics, and its report."""
    shutil.copytree(plain_run, out)
    (out / "metrics.json").write_text(json.dumps(named(metrics).to_json()))
    for name in without:
        (out / name).unlink(missing_ok=True)
    return out


def add_folds(folder: Path) -> np.ndarray:
    """Fold of every labelled pixel (N,): -1 for the third class, else by its row."""
    with np.load(folder / "split.npz") as split:
        pixels = np.sort(np.concatenate([split["train"], split["val"], split["test"]]))
    rows, cols = np.divmod(pixels, 36)
    fold = np.where(cols >= 24, -1, rows * 5 // 36)
    none = np.empty(0, dtype=np.int64)
    np.savez(folder / "split.npz", train=pixels, val=none, test=none, pixels=pixels, fold=fold, unit=rows)
    return fold


def doubtful_entry(rank: int, classes: dict[str, Any]) -> dict[str, Any]:
    given, predicted = classes["classes"][rank % 3], classes["classes"][(rank + 1) % 3]
    return {
        "rank": rank, "row": rank, "col": 2 * rank, "label": given["label"], "name": given["name"],
        "predicted_label": predicted["label"], "predicted": predicted["name"], "doubt": 1 - rank / 100,
        "spectrum": predicted["spectrum"],
    }  # fmt: skip


@pytest.fixture(scope="module")
def folds_run(plain_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    metrics = folds_metrics(
        method=AVERAGE, recipe=None, candidates=CANDIDATES, areas=AREAS, doubtful=31, baseline=lda_baseline(62.1)
    )
    out = rewritten(plain_run, tmp_path_factory.mktemp("folds") / "run", metrics)
    add_folds(out)
    classes = json.loads((out / "classes.json").read_text())
    (out / "doubtful.json").write_text(json.dumps([doubtful_entry(rank, classes) for rank in range(1, 21)]))
    (out / "doubtful.csv").touch()
    (out / "report.html").write_text(make_report(out, LAYER_FILES))
    return out


@pytest.fixture(scope="module")
def page(folds_run: Path) -> Page:
    return Page((folds_run / "report.html").read_text())


def test_the_side_of_patches_is_named_and_random_areas_are_no_estimates_elsewhere(plain_run: Path) -> None:
    """LDA on windows is another method than LDA; a random split tests pixels beside training pixels."""
    text = Page((plain_run / "report.html").read_text()).text
    assert "lda, patches of 1 × 1" in text
    assert "far too narrow for ground away from the labels" in text


def test_points_are_no_groups_of_pixels(plain_run: Path, tmp_path: Path) -> None:
    out = rewritten(plain_run, tmp_path / "run", folds_metrics(units="points"))
    add_folds(out)
    text = Page(make_report(out, LAYER_FILES)).text
    assert "Their sample is the 33 points." in text and "pixels of one point" not in text


def test_scores_of_folds_have_intervals_and_say_what_they_describe(page: Page) -> None:
    for text in (
        "84.1 %",
        "76.0 to 90.2",
        "79.0 to 93.0",
        "60.0 to 82.5",
        "Their sample is the 33 polygons",
        DISTANCES,
    ):
        assert text in page.text
    assert "each predicted by a model that had not seen its polygon (5 folds, 33 polygons)" in page.text
    assert "The score describes ground like the labelled ground: pixels of polygons" in page.text
    assert "leakage" not in page.text.lower() and "validation pixels" not in page.text
    for score in ("overall accuracy (OA)", "average accuracy (AA)"):
        assert f"{score} of 2 of 3 classes" in page.text
    assert "beside training pixels of their own" not in page.text
    assert f"Not tested: {NASTY.replace('https://', '')}. OA, AA and kappa say nothing" in page.text
    assert "LDA on the same pixels: 62.1 % (50.0 to 71.0), in 0.1 s." in page.text
    assert "far too narrow" not in page.text and "patches of" not in page.text.partition("Accuracy")[0]
    assert (
        f"{AVERAGE}, 1,234 parameters" in page.text
        and f"for this model ({AVERAGE})" in page.text
        and "recipe None" not in page.text
    )
    assert "out-of-fold predictions" in page.text and "expected calibration error (ECE)" in page.text


def test_units_of_which_some_pixels_train_are_mentioned(plain_run: Path, tmp_path: Path) -> None:
    out = rewritten(plain_run, tmp_path / "run", folds_metrics(units="tiles", partly_seen=1200))
    text = Page(make_report(out, LAYER_FILES)).text
    assert "1,200 held-out pixels lie beside training pixels of their own tile" in text


def test_classes_have_intervals_or_are_not_tested(folds_run: Path, page: Page) -> None:
    table = page.tables["Class"]
    labelled = np.diff([0, *np.searchsorted(np.sort(_label_of(folds_run)), [1, 2, 3], side="right")])
    assert [row[1] for row in table] == [f"{number:,}" for number in labelled.tolist()]
    assert [row[2:8] for row in table] == [
        ["20", "120", "75.0", "61.2 to 86.0", "100.0", "88.0 to 100.0"],
        ["12", "90", "100.0", "90.5 to 100.0", "77.6", ""],  # written by an older version
        ["0", "0", "not tested", "", "–", ""],  # the four pixels that were given to it say nothing about it
    ]


def _label_of(folder: Path) -> np.ndarray:
    _, truth = make_cube()
    with np.load(folder / "split.npz") as split:
        return truth.ravel()[split["pixels"]]


def test_compared_methods_are_a_table(page: Page) -> None:
    table = page.tables["Candidate"]
    assert [row[0] for row in table] == ["convcapsnet-7-propagated", "logistic", "random-forest", "lda"]
    assert table[1][1:] == ["80.0", "70.0 to 88.0", "0.62", "5", "2.5", "weight 0.4 in the average", "C by folds"]
    assert "compared on the same out-of-fold pixels" in page.text and "Not run: rbf-svm" in page.text


def test_areas_have_intervals_and_their_assumption(page: Page) -> None:
    assert [row[1:] for row in page.tables["Area of class"]] == [
        ["40.0", "41.2", "35.0 to 47.5"],
        ["1,030.5", "1,020.0", "1,001.5 to 1,040.0"],
        ["7.0", "7.0 *", "6.0 to 8.0"],
    ]
    assert (
        "in the map, ha" in page.text and "not corrected" in page.text and "lower bound of the uncertainty" in page.text
    )


def test_doubtful_labels_are_drawn_over_the_means_of_their_classes(folds_run: Path, page: Page) -> None:
    assert "31 labels are contradicted" in page.text and "the first 20" in page.text and "doubtful.csv" in page.text
    assert "1. row 1, column 2" in page.text and "20. row 20, column 40" in page.text
    text = (folds_run / "report.html").read_text()
    drawings = re.findall(r'aria-label="Spectrum of row.*?</svg>', text, flags=re.S)
    assert len(drawings) == 20
    lines = [re.findall(r'<path d="([^"]+)"', drawing) for drawing in drawings]
    # Each mean is drawn twice, as outline and in its colour; here the pixel is the mean of the predicted class.
    assert all(len(paths) == 5 and paths[0] == paths[4] != paths[2] for paths in lines)


def test_names_in_the_new_sections_are_escaped(folds_run: Path, page: Page) -> None:
    assert "<b>rye</b>" in page.text and not page.handlers and "script" not in page.tags
    assert not re.search(r"(?i)https?:|url\(", (folds_run / "report.html").read_text())


def test_the_picture_of_folds_has_a_colour_for_each(folds_run: Path) -> None:
    run = RunFolder.read(folds_run)
    found = split_picture(folds_run / "split.npz", run.classes.scene, "folds")
    with np.load(folds_run / "split.npz") as split:
        pixels, fold = split["pixels"], split["fold"]
    texts = [f"fold {k + 1} ({(fold == k).sum()})" for k in range(5)] + [f"never held out ({(fold < 0).sum()})"]
    assert [key.text for key in found.keys] == texts and len({key.color for key in found.keys}) == 6
    picture = np.round(255 * imread(io.BytesIO(found.png))[..., :3]).astype(int).reshape(-1, 3)
    for key, number in zip(found.keys, [0, 1, 2, 3, 4, -1], strict=True):
        assert (picture[pixels[fold == number]] == list(bytes.fromhex(key.color[1:]))).all()


def test_thirty_folds_are_drawn(tmp_path: Path, folds_run: Path) -> None:
    pixels = np.arange(60)
    np.savez(tmp_path / "split.npz", pixels=pixels, fold=pixels % 30, unit=pixels)
    found = split_picture(tmp_path / "split.npz", RunFolder.read(folds_run).classes.scene, "folds")
    assert found.keys[-1].text == "fold 30 (2)"


def test_a_run_without_scores_leaves_out_what_would_be_empty(plain_run: Path, tmp_path: Path) -> None:
    out = rewritten(plain_run, tmp_path / "run", unscored_metrics(), without=("reliability.png", "curves.png"))
    page = Page(make_report(out, LAYER_FILES))
    assert "Nothing was scored: all 230 labels were used for training (--split none)." in page.text
    for heading in ("Confusion matrix", "Confidence and calibration", "Methods compared", "Areas", "Doubtful labels"):
        assert f"\n{heading}\n" not in page.text
    assert not {"true class", "Candidate", "Area of class"} & set(page.tables)
    assert "overall accuracy" not in page.text and "None" not in page.text and "accuracy, " not in page.text
    assert "Training pixels" in page.text and "field" not in page.tables
    classes = json.loads((out / "classes.json").read_text())["classes"]
    table = page.tables["Class"]
    assert [row[1] for row in table] == [f"{entry['train']:,}" for entry in classes]
    assert all(len(row) == 4 for row in table)  # class, training pixels, mapped pixels and their share


def test_a_run_without_scores_and_map(plain_run: Path, tmp_path: Path) -> None:
    without = ("reliability.png", "map.tif", "confidence.tif")
    out = rewritten(plain_run, tmp_path / "run", unscored_metrics(), without=without)
    assert "This run has no map" in Page(make_report(out, LAYER_FILES)).text


def test_folds_without_anything_else_have_no_empty_sections(plain_run: Path, tmp_path: Path) -> None:
    out = rewritten(plain_run, tmp_path / "run", folds_metrics(doubtful=0))
    add_folds(out)
    text = Page(make_report(out, LAYER_FILES)).text
    assert not any(heading in text for heading in ("Methods compared", "Doubtful", "lower bound", "LDA on"))


def test_doubtful_files_belong_to_a_run() -> None:
    assert {"doubtful.gpkg", "doubtful.csv", "doubtful.json"} <= set(RUN_FILES)


def test_a_browser_opens_the_report_of_folds_without_errors(folds_run: Path) -> None:
    seen = look_at(folds_run / "report.html", height=9000)
    assert not seen.errors and seen.picture.std() > 0.05


def test_a_phone_shows_the_report_of_folds_without_cutting_anything_off(folds_run: Path, tmp_path: Path) -> None:
    frame = tmp_path / "phone.html"  # chromium's windows are wider than a phone
    address = (folds_run / "report.html").as_uri()
    frame.write_text(f'<body style="margin:0"><iframe src="{address}" style="width:360px;height:9000px;border:0">')
    seen = look_at(frame, width=500, height=9000).picture
    assert seen[:, 20:340].std() > 0.1
    assert seen[:, 348:360].std() < 0.01
