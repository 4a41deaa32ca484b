"""Scores as the command line prints them."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.cli.tables import print_facts, print_files, print_scores
from hypercaps.data.labels import Legend
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.pipeline.describe import Description
from support.run_records import CANDIDATES, DISTANCES, folds_metrics, lda_baseline, unscored_metrics


def printed(metrics: RunMetrics, folder: Path | None = None) -> list[str]:
    """The lines, with runs of spaces shortened to one."""
    console = Console(file=io.StringIO(), width=150)
    print_scores(console, metrics, folder)
    assert isinstance(console.file, io.StringIO)
    return [re.sub(" +", " ", line).strip() for line in console.file.getvalue().splitlines()]


def test_folds_show_intervals_and_what_was_held_out() -> None:
    lines = printed(folds_metrics())
    assert lines[1:3] == ["test producer's 95 %", "class name pixels polygons accuracy interval"]
    assert "1 corn 120 20 75.0 % 61.2 to 86.0" in lines
    assert "3 oats 0 0 not tested" in lines
    assert (
        "OA 84.1 % (76.0 to 90.2) AA 87.5 % (79.0 to 93.0) kappa 73.0 % (60.0 to 82.5) of 2 of 3 classes on 210 "
        "labelled pixels, each predicted by a model that had not seen its polygon (5 folds, 33 polygons); the final "
        "model is trained on all 230 labels"
    ) in lines
    assert "In brackets: 95 % intervals, with the 33 polygons as the sample." in lines
    text = "\n".join(lines)
    assert DISTANCES in text and "Not tested: oats. OA, AA and kappa say nothing about this class:" in text
    assert "leakage" not in text and "test pixels (" not in text


def test_other_splits_look_as_before() -> None:
    plain = tuple(replace(row, interval=None, units=None) for row in folds_metrics().per_class)
    bounds = dict.fromkeys(("oa_interval", "aa_interval", "kappa_interval"))
    lines = printed(folds_metrics(split="random", leakage=0.5, per_class=plain, n_units=None, untested=(), **bounds))
    assert "class name pixels accuracy" in lines and "1 corn 120 75.00 %" in lines and "3 oats 0 not tested" in lines
    scores = "OA 84.10 % AA 87.50 % kappa 73.00 % of 2 of 3 classes"
    assert f"{scores} on 210 test pixels (230 training, 0 validation pixels)" in lines
    assert any(line.startswith("Split: random (pixels at random), leakage 50.0 %") for line in lines)
    assert "1,234 parameters, 8 epochs in 12.5 s, weights of epoch 7" in lines


def test_names_of_classes_are_whole_in_80_columns() -> None:
    first, *others = folds_metrics(units="areas").per_class
    metrics = folds_metrics(units="areas", per_class=(replace(first, name="Buildings-Grass-Trees-Drives"), *others))
    console = Console(file=io.StringIO(), width=80)
    print_scores(console, metrics)
    assert isinstance(console.file, io.StringIO)
    _, above, headings, row, *_ = console.file.getvalue().splitlines()
    assert above.split() == ["test", "labelled", "producer's", "95", "%"]
    assert headings.split() == ["class", "name", "pixels", "areas", "accuracy", "interval"]
    assert row.startswith("    1  Buildings-Grass-Trees-Drives  ") and row.endswith("61.2 to 86.0")


def test_paths_are_printed_as_a_whole() -> None:
    path = f"/scenes/{'a' * 90}/labels.gpkg"
    console = Console(file=io.StringIO(), width=60)
    print_facts(console, Description("vector labels", {"file": path}))
    assert isinstance(console.file, io.StringIO)
    assert path in re.sub(r"\s+", "", console.file.getvalue())


def test_nothing_is_scored_without_a_split() -> None:
    lines = [line for line in printed(unscored_metrics()) if line]
    assert lines == [
        "Nothing was scored: all 230 labels were used for training (--split none).",
        "1,234 parameters, trained in 0.1 s",
    ]


def test_candidates_are_a_table_with_the_chosen_ones_first() -> None:
    method = "average of convcapsnet-7-propagated and logistic"
    lines = printed(folds_metrics(candidates=CANDIDATES, method=method, recipe=None, epochs=0))
    head = lines.index("candidate OA 95 % log loss folds time outcome")
    assert lines[head + 1 : head + 5] == [
        "convcapsnet-7-propagated 82.0 % 0.55 5 90 s weight 0.6 in the average",
        "logistic 80.0 % 70.0 to 88.0 0.62 5 2 s weight 0.4 in the average",
        "random-forest 83.0 % 73.5 to 90.0 0.70 5 4 s left out",
        "lda 61.2 % 50.0 to 71.0 1.02 1 0 s left out after 1 of 5 folds",
    ]
    assert any("Not run: rbf-svm (it would take too long)." in line for line in lines)
    assert "1,234 parameters, trained in 12.5 s" in lines


def test_baseline_and_doubtful_labels_have_a_line_each(tmp_path: Path) -> None:
    metrics = folds_metrics(baseline=lda_baseline(62.1), doubtful=4)
    assert "LDA on the same pixels: 62.1 % (50.0 to 71.0), in 0.1 s." in printed(metrics)
    assert "4 labels are doubtful: see doubtful.gpkg" in printed(metrics, tmp_path)
    (tmp_path / "doubtful.csv").touch()  # of a scene without a coordinate system
    assert "4 labels are doubtful: see doubtful.csv" in printed(metrics, tmp_path)


def test_one_feature_is_no_features() -> None:
    text = io.StringIO()
    legend = Legend.of([1, 2], ["water", "soil"])
    print_facts(Console(file=text, width=80), Description("vector labels", {}, legend, {1: 1, 2: 1200}, "features"))
    assert re.findall(r"(water|soil)  (.+)", text.getvalue()) == [("water", "1 feature"), ("soil", "1,200 features")]


@pytest.mark.parametrize("name", ["[red]oats[/red]", "[/]"])
def test_names_of_classes_are_no_markup(name: str) -> None:
    text = "\n".join(printed(folds_metrics(untested=(name,))))
    assert f"Not tested: {name}" in text


def test_texts_from_files_do_not_control_the_terminal(tmp_path: Path) -> None:
    """Class names of an ENVI header, names of arrays, and a file's own name."""
    names = "none, \x1b]0;owned\x07water\x9b31m, \x1b[31msoil"
    header = "ENVI\nsamples = 4\nlines = 3\nbands = 1\ndata type = 1\ninterleave = bsq\nbyte order = 0\n"
    (tmp_path / "gt.hdr").write_text(f"{header}class names = {{{names}}}\n", encoding="utf-8")
    (tmp_path / "gt.img").write_bytes(bytes([1, 2] * 6))
    keys = ("\x1b[31ma", "\x1b[31mb\nwrote c")
    np.savez(tmp_path / "\x1b[2J.npz", **{key: np.ones((2, 3, 4)) for key in keys})  # type: ignore[arg-type]
    for name, code in (("gt.img", 0), ("\x1b[2J.npz", 2)):
        result = CliRunner().invoke(app, ["info", str(tmp_path / name)])
        assert result.exit_code == code, result.output
        assert all(line.isprintable() for line in result.output.split("\n")), result.output
        assert "\nwrote" not in result.output
    assert "soil" in CliRunner().invoke(app, ["info", str(tmp_path / "gt.img")]).output


def test_the_files_of_a_run_have_a_line_each_however_narrow_the_terminal(tmp_path: Path) -> None:
    for name in ("report.html", "familiarity.tif"):
        (tmp_path / name).touch()
    console = Console(file=io.StringIO(), width=40)
    print_files(console, tmp_path)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()[2:]
    assert [line.split()[0] for line in lines] == ["report.html", "familiarity.tif"]
