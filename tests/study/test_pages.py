"""The pages of a study: complete, safe to open, and written even if every run failed."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from hypercaps.data.json_records import from_json
from hypercaps.data.labels import Legend
from hypercaps.report.map_pictures import maps_picture
from hypercaps.report.plots import convergence_picture
from hypercaps.study import pictures
from hypercaps.study.document import Contents, Fold, Heading, Picture, Table, Text, flat, to_html, to_markdown
from hypercaps.study.folder import Classified, StudyLog
from hypercaps.study.groups import group_runs
from hypercaps.study.pages import study_document, write_study
from hypercaps.study.records import read_record

HOSTILE = '<script>alert("1")</script>'
ABOUT = {
    "title": "My <b>study</b>",
    "about": "What I did.",
    "commands": ["hypercaps study mine.toml", "hypercaps study mine.toml --repeats 2"],
    "missing": {"salinas": "get https://example.org/a.mat by hand"},
    "planned": ["mlp-0", "mlp-1", "convcapsnet-0", "capsnet-0", "capsnet-1"],
}


def record(method: str, seed: int, oa: float = 95.0, **others: Any) -> dict[str, Any]:
    return {
        "scene": "my-field", "method": method, "recipe": "paper", "train_share": 0.2, "seed": seed,
        "oa": oa, "aa": oa, "kappa": oa,
        "per_class": [{"label": 1, "name": HOSTILE, "accuracy": oa, "test": 4},
                      {"label": 4, "name": "a|b", "accuracy": None, "test": 0}],
        "key": f"{method}-{seed}", "parameters": 10, "train_seconds": 2.0, "epochs": 3, "error": None,
        "recipe_epochs": 50,
        "changed": {"epochs": 3, "batch_size": None, "structure": {"<i>": "&"}}, "val_share": 0.1, "threads": 2,
        "machine": "Abacus 3000, 2 cores", "versions": {"torch": "2.6"},
        "leakage": 0.987, "bands": 30, "history": [[1.0, 50.0], [0.5, None], [0.2, oa]],
        **others,
    }  # fmt: skip


def failed(method: str, seed: int) -> dict[str, Any]:
    figures = ("oa", "aa", "kappa", "per_class", "parameters", "train_seconds", "epochs")
    return {
        "scene": "my-field", "method": method, "recipe": "paper", "train_share": 0.2, "seed": seed,
        **dict.fromkeys(figures), "error": "out of | memory\n<b>",
    }  # fmt: skip


def make_folder(out: Path, records: list[dict[str, Any]], about: dict[str, Any] | None = ABOUT) -> Path:
    (out / "runs").mkdir(parents=True)
    if about is not None:
        (out / "study.json").write_text(json.dumps(about))
    labels = np.array([[1, 1, 4, 0], [1, 1, 4, 0]], np.int16)
    for i, each in enumerate(records):
        (out / "runs" / f"run{i}.json").write_text(json.dumps(each))
        if each["error"] is None:
            test = np.array([0, 1, 2])
            np.savez(out / "runs" / f"run{i}.npz", classes=labels, labels=labels, test=test, truth=labels.ravel()[test])
    return out


class Page(HTMLParser):
    """The tags of a page, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def size(png: bytes) -> tuple[int, ...]:
    return tuple(imread(io.BytesIO(png), format="png").shape[:2])


RUNS = [record("mlp", 0, 90.0), record("mlp", 1, 92.0), record("convcapsnet", 0, 97.0), failed("capsnet", 0)]


def test_a_folder_gets_results_and_pages_and_pictures(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "mine", RUNS)
    written = write_study(out)
    names = ["results.json", "results.csv", "convergence.png", "convergence-others.png", "maps-my-field-20pct.png",
             "results.md", "results.html"]  # fmt: skip
    assert [path.name for path in written] == names
    assert all(path.parent == out and path.stat().st_size > 0 for path in written)

    results = json.loads((out / "results.json").read_text())
    assert len(results) == 4 and not any("history" in each for each in results)
    assert {"scene", "method", "recipe", "train_share", "seed", "oa", "aa", "kappa", "per_class", "parameters",
            "train_seconds", "epochs", "error"} <= set(results[0])  # fmt: skip
    rows = list(csv.DictReader(io.StringIO((out / "results.csv").read_text())))
    assert [row["oa"] for row in rows] == ["90.0", "92.0", "97.0", ""]
    assert rows[3]["error"] == "out of | memory\n<b>" and rows[0]["structure"] == '{"<i>": "&"}'

    markdown = (out / "results.md").read_text()
    assert "(maps-my-field-20pct.png)" in markdown and "(convergence.png)" in markdown
    for text in ("Abacus 3000", "torch 2.6", "mine.toml --repeats 2", "3 finished of 5 planned", "98.7 %",
                 "91.00 (90.00–92.00)", "The paper has no results for this scene", "3 of 50 epochs"):  # fmt: skip
        assert text in markdown, text


def test_the_html_page_is_self_contained_and_shows_hostile_names_as_text(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "mine", RUNS)
    write_study(out)
    text = (out / "results.html").read_text()
    page = Page(text)
    kinds = {tag for tag, _ in page.tags}
    assert not kinds & {"script", "i", "b", "link", "iframe"}
    assert "&lt;script&gt;alert(" in text and "&lt;i&gt; &amp;" in text and "My &lt;b&gt;study" in text
    assert "http://" not in text and "https://" not in text and "url(" not in text and "@import" not in text
    assert "example.org/a.mat" in text  # the address itself stays readable
    images = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 3 and all(source.startswith("data:image/png;base64,") for source in images)


def test_cells_cannot_break_a_markdown_table() -> None:
    table = Table("t", ["a", "b"], [["x|y\nz", HOSTILE], ["`\\*[", "< 0.001"]], "end")
    assert to_markdown([table]).splitlines() == [
        "**t**",
        "",
        "| a | b |",
        "| --- | --- |",
        '| x\\|y z | \\<script>alert("1")\\</script> |',
        "| \\`\\\\\\*\\[ | < 0.001 |",
        "",
        "end",
    ]


def test_blocks_in_both_formats() -> None:
    table = Table("numbers", ["what", "how much"], [["x", "+0.12"], ["y", "–"]])
    blocks = [Heading(1, "A"), Text("b & c"), Picture("p.png", "a picture", b"png"), table]
    markdown = to_markdown(blocks)
    assert markdown.startswith("# A\n\nb & c\n\n**a picture**\n\n![a picture](p.png)\n\n**numbers**\n")
    assert "| --- | ---: |" in markdown
    page = to_html(blocks, "A")
    Page(page)
    assert '<td class="number">+0.12</td>' in page and "<p>b &amp; c</p>" in page and "base64,cG5n" in page


def test_summaries_come_first_and_long_tables_last(tmp_path: Path) -> None:
    blocks = study_document([read_record(run) for run in RUNS], from_json(StudyLog, ABOUT), lambda key: None)
    headings = [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]
    assert headings == [
        "Summary", "Convergence", "Not run or failed", "Protocol", "Classes, all scores and paired tests",
    ]  # fmt: skip
    [contents] = [block for block in blocks if isinstance(block, Contents)]
    assert contents.titles == headings and blocks.index(contents) < 3
    first_table = next(block for block in flat(blocks) if isinstance(block, Table))
    assert first_table.title == "my-field, 20 % of the labels for training"
    [fold] = [block for block in blocks if isinstance(block, Fold)]
    assert fold is blocks[-1] and [block.title.split(":")[0] for block in fold.blocks if isinstance(block, Table)] == [
        "All scores", "Accuracy per class, as in the paper's experiment 1", "Paired tests",
    ]  # fmt: skip


def test_contents_and_folds_in_both_formats() -> None:
    blocks = [Contents(["Speed, and more"]), Heading(2, "Speed, and more"), Fold("long", [Text("a"), Text("b")])]
    assert to_markdown(blocks) == "- [Speed, and more](#speed-and-more)\n\n## Speed, and more\n\n### long\n\na\n\nb\n"
    page = to_html(blocks, "A")
    Page(page)
    assert '<a href="#speed-and-more">' in page and '<h2 id="speed-and-more">' in page
    assert "<summary>long</summary>" in page and page.index("<details>") < page.index("<p>b</p>") < page.index(
        "</details>"
    )


def test_the_papers_figure_of_convergence_has_its_three_methods() -> None:
    """And the others are in a picture of their own; the lowest seed that has a curve is drawn."""
    methods = ("mlp", "c-cnn", "capsnet", "convcapsnet")
    runs = [record(method, 1) for method in methods] + [record("c-cnn", 0, history=[])]
    groups = group_runs([read_record(run) for run in runs])
    curves = [pictures.curves_by_scene(groups, like_paper=like_paper) for like_paper in (True, False)]
    labels = [[label.split(" ")[0] for label, _ in scene] for each in curves for scene in each.values()]
    assert labels == [["c-CNN", "CapsNet", "1D-ConvCapsNet"], ["MLP"]]
    assert [picture.file for picture in pictures.convergence_pictures(groups)] == [
        "convergence.png",
        "convergence-others.png",
    ]


def test_maps_without_stored_pixels() -> None:
    """The nearest run to the median with pixels is shown; the earlier picture if a method has none."""
    labels = np.ones((4, 4), np.int16)
    stored = Classified(labels, labels, np.array([0]), np.array([1]))
    runs = [record("mlp", seed, oa) for seed, oa in enumerate((80.0, 90.0, 91.0))] + [record("convcapsnet", 0)]
    [((scene, budget), columns)] = group_runs([read_record(run) for run in runs]).items()

    def files(keys: set[str], earlier: bytes | None) -> list[bytes]:
        load = dict.fromkeys(keys, stored).get
        return [p.png for p in pictures.map_pictures(scene, budget, columns, load, lambda name: earlier)]

    assert files(set(), None) == [] and files(set(), b"old") == [b"old"]
    assert files({"mlp-2"}, b"old") == [b"old"] and len(files({"mlp-2"}, None)) == 1
    both = files({"mlp-2", "mlp-0", "convcapsnet-0"}, b"old")
    assert both == files({"mlp-2", "convcapsnet-0"}, None) != [b"old"]


def test_failed_runs_and_missing_scenes_are_listed() -> None:
    markdown = to_markdown(study_document([read_record(RUNS[3])], from_json(StudyLog, ABOUT), lambda key: None))
    assert "| my-field | CapsNet | 20 % | 0 | out of \\| memory \\<b> |" in markdown
    assert "get https://example.org/a.mat by hand" in markdown
    assert "No run has finished" in markdown


@pytest.mark.parametrize("about", [ABOUT, None])
def test_an_empty_study_says_so(tmp_path: Path, about: dict[str, Any] | None) -> None:
    out = make_folder(tmp_path / "empty", [], about)
    assert [path.name for path in write_study(out)] == ["results.json", "results.csv", "results.md", "results.html"]
    assert json.loads((out / "results.json").read_text()) == []
    for name in ("results.md", "results.html"):
        assert "No run has finished" in (out / name).read_text()


def test_damaged_files_are_ignored(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "mine", RUNS)
    runs = out / "runs"
    (runs / "cut.json").write_text('{"scene": "my-')
    (runs / "nan.json").write_text(json.dumps(record("mlp", 7) | {"oa": float("nan")}))
    (runs / "list.json").write_text("[]")
    (runs / "other.json").write_text('{"scene": 3}')
    whole = (runs / "run0.npz").read_bytes()
    (runs / "run0.npz").write_bytes(whole[: len(whole) // 2])
    (runs / "run1.npz").write_bytes(b"")
    np.savez(runs / "run2.npz", classes=np.zeros((2, 2)))
    names = [path.name for path in write_study(out)]
    assert len(json.loads((out / "results.json").read_text())) == 4
    assert not any(name.startswith("maps") for name in names)


def test_a_scene_name_cannot_form_a_path(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "mine", [record("mlp", 0, scene="../../up")])
    assert all(path.resolve().parent == out.resolve() for path in write_study(out))


def test_differences_from_the_papers_scene_are_named() -> None:
    def page(bands: int) -> str:
        run = read_record(record("mlp", 0, scene="indian-pines", bands=bands))
        return to_markdown(study_document([run], StudyLog(), lambda key: None))

    assert "ours has 200 bands, the paper's has 220" in page(200)
    assert "ours has 220" not in page(220) and "ours has 2 classes, the paper's has 16" in page(220)
    assert "resultIP1 reads 99.71" in page(220)  # the paper's contradictions


def test_maps_of_any_shape_and_number_fit_side_by_side() -> None:
    legend = Legend.of([1, 2], ["$x_{$", "b"])
    for shape, count in (((60, 20), 8), ((20, 60), 5), ((1, 1), 1), ((3000, 30), 2)):
        raster = np.ones(shape, np.int16)
        raster[0, 0] = 0
        height, width = size(maps_picture([(f"a $long_{{ title {i} " * 4, raster) for i in range(count)], legend))
        assert 100 < height < 2600 and 100 < width < 3200


def test_convergence_of_short_long_and_unmeasured_trainings() -> None:
    curves = {
        "one": [("a", list(np.linspace(10, 99, 500))), ("b", [50.0])],
        "two": [("a", [float("nan")] * 3)],
        "three": [("c $_{", [5.0, 5.0])],
        "four": [("b", [99.0, 99.1, 100.0])],
    }
    assert min(size(convergence_picture(curves))) > 300
    assert min(size(convergence_picture({}))) > 100


def test_few_labels_have_a_learning_curve_and_no_comparison_with_the_paper() -> None:
    """All methods in one table of classes, a curve for each split, and a note on the pixels that recipe best uses."""
    runs = [
        record(method, seed, oa, recipe=recipe, scene="indian-pines", labels_per_class=n, split=split, block=block)
        for split, block in (("random", None), ("blocks", 16))
        for n, oa in ((5, 60.0), (10, 75.0))
        for method, recipe in (("rbf-svm-window", "tuned"), ("convcapsnet", "best"))
        for seed in (0, 1)
    ]
    blocks = study_document([read_record(run) for run in runs], StudyLog("few"), lambda key: None)
    tables = [block for block in flat(blocks) if isinstance(block, Table)]
    assert [t.title for t in tables if t.title.startswith("Learning curve")] != []
    class_tables = [table for table in tables if table.title.startswith("Accuracy per class")]
    assert len(class_tables) == 4 and not any("paper" in table.title for table in class_tables)
    assert all(any("window" in cell for cell in table.head) for table in class_tables)
    texts = [block.text for block in flat(blocks) if isinstance(block, Text)]
    texts += [table.caption for table in tables]
    self_trained = [text for text in texts if "learned from unlabelled pixels" in text]
    assert len(self_trained) == 2
    assert all("1D-ConvCapsNet" in text and "Blocks of 16" in text for text in self_trained)
    assert any("The paper has no results for these label budgets" in text for text in texts)
    [curve] = [block for block in flat(blocks) if isinstance(block, Picture) and block.file.startswith("learning-")]
    assert min(imread(io.BytesIO(curve.png)).shape[:2]) > 300
