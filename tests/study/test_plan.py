"""What a study consists of, from TOML files and the built-in ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hypercaps.errors import CatalogError, ModelError, StudyError
from hypercaps.models.registry import get_method
from hypercaps.study.study_file import builtin_studies, open_study

ROOT = Path(__file__).parents[2]
STUDY = """
title = "Two methods"
scenes = ["indian-pines", { name = "mine", cube = "cube.npy", labels = "$FOLDER/labels.npy" }]
train_shares = [0.2, 0.1]
repeats = 3
[methods.rbf-svm]
repeats = 2
train_shares = [0.2]
[methods.mlp]
recipe = "paper"
epochs = 4
structure = { hidden = [8] }
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(STUDY)
    return tmp_path / "two.toml"


@pytest.mark.parametrize("name", ["indian-pines", "fewer-labels", "small-scenes"])
def test_the_studies_of_the_results_train_with_all_epochs_of_the_recipes(name: str) -> None:
    study = open_study(str(ROOT / "benchmarks" / "studies" / f"{name}.toml"))
    assert all(plan.epochs is None and plan.batch_size is None for plan in study.methods)


def test_the_builtin_studies_are_those_of_the_paper() -> None:
    assert builtin_studies() == [
        "few-labels",
        "paper-convergence",
        "paper-cost",
        "paper-methods",
        "paper-small",
        "quick",
    ]
    everyone = {"rbf-svm", "mlp", "se-2d-cnn", "3d-cnn", "c-cnn", "capsnet", "convcapsnet"}
    scenes = {"indian-pines", "pavia-university", "salinas"}
    expected = {
        "paper-methods": (everyone, scenes, {0.2}),
        "paper-small": ({"convcapsnet"}, scenes, {0.1, 0.05}),
        "paper-cost": ({"convcapsnet", "capsnet"}, scenes, {0.2}),
        "paper-convergence": ({"convcapsnet", "capsnet", "c-cnn"}, scenes, {0.2}),
    }
    for name, (methods, places, shares) in expected.items():
        settings = open_study(name).settings()
        assert {setting.method.name for setting in settings} == methods
        assert {setting.scene.name for setting in settings} == places
        assert {setting.train_share for setting in settings} == shares
        assert {setting.val_share for setting in settings} == {0.1}
    assert {setting.seed for setting in open_study("paper-methods").settings()} == set(range(20))
    quick = open_study("quick").settings()
    assert {setting.scene.name for setting in quick} == {"indian-pines"}
    assert {setting.method.name for setting in quick} == everyone


def test_a_study_from_a_file(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(written.parent / "elsewhere"))
    study = open_study(str(written))
    assert (study.name, study.title) == ("two", "Two methods")
    mine = study.scenes[1]
    assert mine.cube == str(written.parent / "cube.npy")
    assert mine.labels == str(written.parent / "elsewhere" / "labels.npy")
    settings = study.settings()
    svm = [s for s in settings if s.method.name == "rbf-svm"]
    assert len(svm) == 2 * 2 * 1 and {s.train_share for s in svm} == {0.2}
    mlp = [s for s in settings if s.method.name == "mlp"]
    assert len(mlp) == 3 * 2 * 2
    assert mlp[0].method.recipe == "paper" and mlp[0].method.epochs == 4 and mlp[0].method.structure == {"hidden": [8]}
    assert [s.seed for s in settings] == sorted(s.seed for s in settings)  # all methods before the next seed
    assert len({s.key for s in settings}) == len(settings)


def test_each_tile_of_a_scene_is_relative_to_the_studys_file(tmp_path: Path) -> None:
    def cube(spec: str) -> str:
        text = f'scenes = [{{ name = "mine", cube = "{spec}", labels = "labels.tif" }}]\n[methods.mlp]\n'
        (tmp_path / "tiles.toml").write_text(text)
        return open_study(str(tmp_path / "tiles.toml")).scenes[0].cube

    (tmp_path / "a.tif").touch()
    assert cube("a.tif, b/b.tif") == f"{tmp_path}/a.tif,{tmp_path}/b/b.tif"
    assert cube("t*.tif,a.tif") == f"{tmp_path}/t*.tif,{tmp_path}/a.tif"
    assert cube("@tiles.txt") == f"@{tmp_path}/tiles.txt"
    assert cube("c,d.mat:key") == f"{tmp_path}/c,d.mat:key"  # the first part is no file: the comma is in the name
    (tmp_path / "a.tif,x.tif").touch()
    assert cube("a.tif,x.tif") == f"{tmp_path}/a.tif,x.tif"


def test_paths_of_a_study_do_not_depend_on_the_working_folder(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written.parent)
    assert open_study(written.name).scenes[1].cube == str(written.parent / "cube.npy")


def test_labels_of_a_study_may_be_polygons(written: Path) -> None:
    assert open_study(str(written)).scenes[1].class_field is None
    written.write_text(STUDY.replace('name = "mine"', 'name = "mine", class_field = "kind"'))
    assert open_study(str(written)).scenes[1].class_field == "kind"
    written.write_text(STUDY.replace('name = "mine"', 'name = "mine", class_field = 3'))
    with pytest.raises(StudyError, match="class_field of mine is 3"):
        open_study(str(written))


def test_the_minutes_of_a_run_do_not_change_its_key(written: Path) -> None:
    before = [setting.key for setting in open_study(str(written)).settings()]
    written.write_text(STUDY.replace("epochs = 4", "epochs = 4\nminutes = 7.5"))
    study = open_study(str(written))
    assert study.methods[1].minutes == 7.5 and [setting.key for setting in study.settings()] == before


def test_a_change_of_the_setting_changes_the_key(written: Path) -> None:
    first = open_study(str(written)).settings()
    written.write_text(STUDY.replace("epochs = 4", "epochs = 5"))
    second = open_study(str(written)).settings()
    same = {s.key for s in first} & {s.key for s in second}
    assert same == {s.key for s in first if s.method.name == "rbf-svm"}


def test_keys_are_those_of_the_published_results() -> None:
    """A changed key means that existing studies are run again: their runs are not found any more."""
    studies = [
        open_study(str(ROOT / "benchmarks" / "studies" / f"{name}.toml")) for name in ("indian-pines", "fewer-labels")
    ]
    settings = [setting for study in studies for setting in study.settings()]
    runs = json.loads((ROOT / "docs" / "results" / "results.json").read_text())
    unchanged = {"rbf-svm", "se-2d-cnn", "c-cnn", "convcapsnet"}  # methods whose settings were never others
    published = {run["key"] for run in runs if run["scene"] == "indian-pines" and run["method"] in unchanged}
    assert published and published <= {setting.key for setting in settings}


def test_the_key_of_recipe_best_does_not_depend_on_its_description() -> None:
    key = "indian-pines_convcapsnet_best_5each_seed00_51beff"
    assert key in {setting.key for setting in open_study("few-labels").settings()}
    assert "labels propagated over the scene" in get_method("convcapsnet").recipe("best").describe()


def test_a_part_of_a_study(written: Path) -> None:
    study = open_study(str(written))
    part = study.only(methods=["mlp", "c-cnn"], scenes=["mine"], repeats=5)
    settings = part.settings()
    assert {s.method.name for s in settings} == {"mlp", "c-cnn"} and {s.scene.name for s in settings} == {"mine"}
    assert {s.seed for s in settings} == set(range(5))
    assert next(s for s in settings if s.method.name == "mlp").method.epochs == 4
    assert study.only().settings() == study.settings()


def test_messages_on_unknown_names_list_the_valid_ones(written: Path) -> None:
    study = open_study(str(written))
    with pytest.raises(ModelError, match=r"no method 'svm': known are convcapsnet, rbf-svm"):
        study.only(methods=["svm"])
    with pytest.raises(CatalogError, match=r"no scene 'pavia' in the study: give one of .*mine.*pavia-university"):
        study.only(scenes=["pavia"])
    with pytest.raises(StudyError, match=r"no study 'quik'.*paper-small.*did you mean quick\?"):
        open_study("quik")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("epochs = 4", "epochs = 0", r"methods.mlp.epochs is 0"),
        ("epochs = 4", "minutes = 0", r"methods.mlp.minutes is 0: give the minutes that one run takes"),
        ("epochs = 4", "minutes = inf", r"methods.mlp.minutes is inf"),
        ("epochs = 4", "epoch = 4", r"unknown key 'epoch': use one of batch_size, epochs"),
        ("repeats = 3", 'repeats = "3"', r"repeats is '3': give a whole number"),
        ("[0.2, 0.1]", "[20]", r"20 is not a share"),
        ("[0.2, 0.1]", "[]", r"train_shares is empty"),
        ("[methods.mlp]", "[methods.mpl]", r"no method 'mpl'.*did you mean mlp"),
        ('recipe = "paper"', 'recipe = "papr"', r"mlp has no recipe 'papr': it has paper, tuned"),
        ('name = "mine"', 'name = "../mine"', r"used in file names"),
        ('cube = "cube.npy", ', "", r"needs name, cube and labels"),
        ('name = "mine"', 'name = "salinas"', r"salinas is the name of a public scene"),
        ('name = "mine"', f'name = "{"m" * 61}"', r"up to 60 letters"),
        ('["indian-pines", ', '["indian-pines", "indian-pines", ', r"two scenes named 'indian-pines'"),
        ("hidden = [8]", "hidden = [1979-05-27]", r"structure has an unsupported value"),
        ("[0.2, 0.1]", "[0.0]", r"a share of 0"),
        ("[methods.rbf-svm]", "[methods.rbf-svm]\nepochs = 3", r"not trained in epochs and has no epochs"),
        ('"indian-pines"', '"indian pines"', r"no scene 'indian pines'"),
        ("title =", "title", r"can't be read as a study"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(written: Path, old: str, new: str, message: str) -> None:
    assert old in STUDY
    written.write_text(STUDY.replace(old, new, 1))
    with pytest.raises((StudyError, ModelError, CatalogError), match=message):
        open_study(str(written))


def test_a_study_without_methods_or_scenes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('scenes = ["indian-pines"]\n[methods]\n')
    with pytest.raises(StudyError, match="has no method"):
        open_study(str(tmp_path / "s.toml"))
    (tmp_path / "s.toml").write_text("scenes = []\n[methods.mlp]\n")
    with pytest.raises(StudyError, match="has no scene"):
        open_study(str(tmp_path / "s.toml"))


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "studies").glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_of_the_published_results_can_be_read(path: Path) -> None:
    assert open_study(str(path)).settings()


def test_the_study_shown_in_the_docs_can_be_read(tmp_path: Path) -> None:
    [shown] = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "studies.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "shown.toml").write_text(shown)
    settings = open_study(str(tmp_path / "shown.toml")).settings()
    assert len(settings) == 2 * 2 * 5 + 2 * 1 * 1


def test_few_labels_uses_both_splits_with_one_guard_for_all_methods() -> None:
    settings = open_study("few-labels").settings()
    assert {setting.per_class for setting in settings} == {5, 10, 20, 50}
    assert {(s.split, s.block, s.guard) for s in settings} == {("random", None, None), ("blocks", 16, 4)}
    assert len({setting.method.name for setting in settings}) == 8
    assert {setting.seed for setting in settings} == set(range(10))
    assert len({setting.key for setting in settings}) == len(settings) == 8 * 3 * 4 * 2 * 10
    names = {s.key.rpartition("_")[0] for s in settings if s.seed == 3 and s.per_class == 5 and s.method.name == "mlp"}
    assert "indian-pines_mlp_tuned_5each_blocks16_seed03" in names
    assert "indian-pines_mlp_tuned_5each_seed03" in names


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('splits = ["rows"]', "give 'random', 'blocks' or both"),
        ("splits = []", "'random', 'blocks' or both"),
        ("block = 0", "block is 0"),
        ("guard = 1.5", "guard is 1.5"),
        ("per_class = [0]", "per_class is 0"),
        ("per_class = 5", "per_class must be a list"),
        ("per_class = [5]\ntrain_shares = [0.1, 0.2]", "per_class replaces the train shares"),
        ("per_class = [5]\ntrain_shares = 0.1", "train_shares must be a list"),
    ],
)
def test_invalid_settings_of_the_split_are_refused(tmp_path: Path, line: str, match: str) -> None:
    (tmp_path / "s.toml").write_text(f'scenes = ["indian-pines"]\n{line}\n[methods.mlp]\n')
    with pytest.raises(StudyError, match=match):
        open_study(str(tmp_path / "s.toml"))


@pytest.mark.parametrize("text", ["repeats = 99999999999", "repeats = 10001"])
def test_more_runs_than_can_be_done_are_refused_before_they_are_listed(text: str, written: Path) -> None:
    written.write_text(
        STUDY.replace("repeats = 3", text).replace('["indian-pines", ', '["salinas-a", "indian-pines", ')
    )
    with pytest.raises(StudyError, match=r"study 'two' has [\d,]+ runs: give fewer repeats"):
        open_study(str(written)).only(repeats=None if "9999" in text else 40_000)
