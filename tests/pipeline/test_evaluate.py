"""Every score names its split and its leakage; both splits side by side."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.models.registry import METHODS
from hypercaps.pipeline.evaluate import run_metrics
from hypercaps.report.wording import both_text, leakage_text, scene_text, split_text
from support.command import hypercaps
from support.scenes import QUICK, make_cube

SVM = ["--method", "rbf-svm", "--no-map", "--seed", "2", "--train", "0.3"]


def metrics_of(figures: dict[str, Any]) -> RunMetrics:
    return RunMetrics.from_json({"oa": 90.0, "aa": 90.0, "kappa": 90.0, **figures})


@pytest.fixture(scope="module")
def made_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Stripes of three classes in files; 60 x 60 pixels hold enough blocks of 10."""
    folder = tmp_path_factory.mktemp("made")
    cube, labels = make_cube(60, 60)
    np.save(folder / "cube.npy", cube)
    np.save(folder / "gt.npy", labels)
    return folder / "cube.npy", folder / "gt.npy"


def test_scores_by_blocks_say_so(made_files: tuple[Path, Path], tmp_path: Path) -> None:
    options = ["--split", "blocks", "--block", 10, "--epochs", 2, "--train", 0.3, "--no-map"]
    done = hypercaps("train", *made_files, "--out", tmp_path / "run", *options)
    assert done.exit_code == 0, done.output
    assert "Split: blocks (blocks of 10 x 10 pixels), leakage 0.0 %: none of the test pixels has" in done.output
    assert "--split blocks" not in done.output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["split"], metrics["block"], metrics["leakage"]) == ("blocks", 10, 0.0)
    again = hypercaps("evaluate", tmp_path / "run" / "model.safetensors", *made_files, "--json", "-")
    scores = json.loads(again.stdout)
    assert {key: scores[key] for key in ("oa", "split", "block", "leakage", "n_test")} == {
        key: metrics[key] for key in ("oa", "split", "block", "leakage", "n_test")
    }


def test_a_random_split_that_leaks_says_what_that_means(made_files: tuple[Path, Path], tmp_path: Path) -> None:
    done = hypercaps("train", *made_files, "--out", tmp_path / "run", "--split", "random", "--epochs", 1, "--no-map")
    assert re.search(r"Split: random \(pixels at random\), leakage (9\d|100)", done.output), done.output
    assert "'--split blocks' measures how much lower" in done.output


@pytest.mark.parametrize(
    ("kind", "leakage", "patch", "advice"),
    [
        ("random", 0.051, 7, "The patches of 5 % of the test pixels contain"),
        ("random", 0.6, 7, "most test pixels"),
        ("random", 0.05, 7, None),
        ("random", 0.0, 1, "beside training pixels"),  # no patch can hold a neighbour
        ("polygons", 0.9, 7, "most test pixels"),
        ("file", 0.9, 7, "most test pixels"),
        ("blocks", 0.0, 7, None),
        ("blocks", 0.0, 1, None),
        (None, None, 7, None),  # other labels than the model's: nothing is known
    ],
)
def test_advice_is_for_scores_among_the_labels(
    kind: str | None, leakage: float | None, patch: int, advice: str | None
) -> None:
    metrics = metrics_of({"split": kind, "leakage": leakage, "block": 16, "patch": patch})
    said = leakage_text(metrics)
    assert (said is None) if advice is None else (said is not None and advice in said)
    assert said is None or ("--both" in said) == (kind == "random")
    if kind is not None:
        assert split_text(metrics).startswith(f"Split: {kind} (")


@pytest.mark.parametrize("own", ["random", "blocks"])
def test_both_splits_side_by_side(made_files: tuple[Path, Path], tmp_path: Path, own: str) -> None:
    block = ["--block", 10] if own == "blocks" else []
    trained = hypercaps("train", *made_files, "--out", tmp_path / "run", *SVM, "--split", own, *block)
    assert trained.exit_code == 0, trained.output
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    model = tmp_path / "run" / "model.safetensors"
    other = "random" if own == "blocks" else "blocks"
    shown = hypercaps("evaluate", model, *made_files, "--both", "--block", 10, "--json", tmp_path / "both.json")
    assert shown.exit_code == 0, shown.output
    both = json.loads((tmp_path / "both.json").read_text())
    assert list(both) == ["random", "blocks"]
    assert [both[kind]["split"] for kind in both] == ["random", "blocks"]
    assert [both[kind]["block"] for kind in both] == [None, 10]
    assert both["blocks"]["leakage"] == 0.0
    for key in ("oa", "n_train", "n_test", "confusion"):  # the model's own is the one it had
        assert both[own][key] == metrics[key]
    # The other is what training by it gives: same recipe, shares and seed.
    block = ["--block", 10] if other == "blocks" else []
    hypercaps("train", *made_files, "--out", tmp_path / "two", *SVM, "--split", other, *block)
    second = json.loads((tmp_path / "two" / "metrics.json").read_text())
    for key in ("oa", "n_train", "n_val", "n_test", "confusion", "seed", "recipe"):
        assert both[other][key] == second[key], key
    assert f"Training a second time, with --split {other}" in shown.output
    assert "random" in shown.output and "blocks of 10" in shown.output and "leakage" in shown.output


def test_both_in_json_leaves_the_rest_to_stderr(made_files: tuple[Path, Path], tmp_path: Path) -> None:
    hypercaps("train", *made_files, "--out", tmp_path / "run", *SVM)
    shown = hypercaps(
        "evaluate", tmp_path / "run" / "model.safetensors", *made_files, "--both", "--block", 10, "--json", "-"
    )
    assert set(json.loads(shown.stdout)) == {"random", "blocks"}
    assert "Training a second time" in shown.stderr


def test_what_both_can_not_do(made_files: tuple[Path, Path], tmp_path: Path) -> None:
    hypercaps("train", *made_files, "--out", tmp_path / "run", *SVM)
    model = tmp_path / "run" / "model.safetensors"
    np.save(tmp_path / "other.npy", make_cube(60, 60, seed=5)[1])
    one = hypercaps(
        "train", *made_files, "--out", tmp_path / "two", *SVM[:-2], "--split-file", tmp_path / "run" / "split.npz"
    )
    assert one.exit_code == 0, one.output
    given = tmp_path / "two" / "model.safetensors"
    for args, said in (
        ([model, made_files[0], tmp_path / "other.npy", "--both"], "trained on other labels than these"),
        ([given, *made_files, "--both"], "a split of kind 'file', which has no counterpart"),
        ([model, *made_files, "--both", "--split-file", "x.npz"], "--both and --split-file were both given"),
        ([model, *made_files, "--block", 10], "--block has no meaning without --both"),
        ([model, *made_files, "--both", "--block", 99], "leave nothing of"),
    ):
        refused = hypercaps("evaluate", *args)
        assert refused.exit_code == 2 and said in " ".join(refused.output.split()), refused.output


def test_what_train_refuses_about_blocks(made_files: tuple[Path, Path], tmp_path: Path) -> None:
    for options, said in (
        (["--split", "random", "--block", 10], "--block has no meaning without --split blocks or folds"),
        (["--train", 0.3, "--block", 10], "--block has no meaning without --split blocks or folds"),
        (["--split", "blocks", "--block", 5], "blocks of 5 pixels can't keep patches of 7 x 7 apart"),
        (["--split", "blocks", "--block", 60], "leave nothing of"),
    ):
        refused = hypercaps("train", *made_files, "--out", tmp_path / "run", *options)
        assert refused.exit_code == 2 and said in " ".join(refused.output.split()), refused.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "leakage", "pseudo_labelled", "said"),
    [
        ("blocks", 0.0, 900, True),
        ("polygons", 0.01, 900, True),
        ("file", 0.0, 900, True),
        ("random", 0.99, 900, False),
        ("file", 0.99, 900, False),
        ("blocks", 0.0, 0, False),
        ("blocks", 0.0, None, False),
        (None, None, 900, False),
    ],
)
def test_ground_that_was_looked_at_is_not_called_unseen(
    kind: str | None, leakage: float | None, pseudo_labelled: int | None, said: bool
) -> None:
    metrics = metrics_of({"split": kind, "leakage": leakage, "pseudo_labelled": pseudo_labelled})
    assert (scene_text(metrics) is not None) == said
    assert (
        "trained on unlabelled pixels" in both_text({"random": metrics_of({"leakage": 1.0}), "blocks": metrics})
    ) == said


def test_the_recipe_says_whether_it_learned_from_unlabelled_pixels(made: tuple[Scene, Labels]) -> None:
    for recipe, some in (("best", True), ("paper", False)):
        fitted = ConvCapsClassifier(**QUICK, recipe=recipe).fit(*made)
        assert bool(run_metrics(fitted).pseudo_labelled) == some


def test_both_train_by_the_recipe_and_not_by_what_it_came_to(
    made_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipe best takes its epochs from the number of training pixels, which two splits don't share."""
    recipes = METHODS["convcapsnet"].recipes
    monkeypatch.setitem(recipes, "best", replace(recipes["best"], looked_at=8000, least_epochs=1, least_second=0))
    how = ["--train", 0.5, "--val", 0.1, "--seed", 1]
    trained = hypercaps("train", *made_files, "--out", tmp_path / "run", *how, "--both", "--block", 10, "--no-map")
    assert trained.exit_code == 0, trained.output
    both = json.loads((tmp_path / "run" / "metrics.json").read_text())["both"]
    assert both["random"]["epochs"] != both["blocks"]["epochs"]  # otherwise this shows nothing
    model = tmp_path / "run" / "model.safetensors"
    again = hypercaps("evaluate", model, *made_files, "--both", "--block", 10, "--json", "-")
    shown = json.loads(again.stdout)
    for kind in both:
        for key in ("oa", "confusion", "n_train", "ece_after", "pseudo_labelled"):
            assert shown[kind][key] == both[kind][key], (kind, key)
    assert "trained on unlabelled pixels" in trained.output
