from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from hypercaps import ConvCapsClassifier, Labels, Legend, Scene, Split, load_model, open_scene, split_by_share
from hypercaps.errors import DataWarning, LabelsError, ModelError, ModelFileError, SceneError, SplitError
from hypercaps.inference.metrics import Scores
from hypercaps.inference.model import TrainedModel
from hypercaps.report.quicklook import quicklook
from support.scenes import QUICK, make_cube


def test_it_learns_a_synthetic_scene(trained: ConvCapsClassifier) -> None:
    assert trained.scores_.oa > 95
    cube, _ = make_cube(seed=1)  # other noise, the same classes
    truth = np.repeat(np.arange(36) * 3 // 36 + 1, 36).reshape(36, 36).T
    predicted = trained.predict(Scene.from_array(cube))
    assert predicted.shape == (36, 36) and predicted.dtype == np.int16
    assert (predicted == truth).mean() > 0.95


def test_what_is_learned_ends_in_an_underscore(trained: ConvCapsClassifier) -> None:
    assert trained.classes_.tolist() == [1, 2, 3] == trained.legend_.labels.tolist()
    assert trained.n_features_in_ == 26
    assert [record.epoch for record in trained.history_] == list(range(1, 15))
    assert [record.stage for record in trained.history_] == [1] * 8 + [2] * 6
    assert trained.scores_.n_test == trained.split_.test.size
    assert trained.history_.records[-1].loss < trained.history_.records[0].loss


def test_fit_never_changes_a_model_once_it_is_built(
    made: tuple[Scene, Labels], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ConvCapsClassifier.evaluate
    evaluated: list[TrainedModel] = []

    def remember(classifier: ConvCapsClassifier, *args: object, **options: object) -> Scores:
        evaluated.append(classifier.model_)
        return evaluate(classifier, *args, **options)

    monkeypatch.setattr(ConvCapsClassifier, "evaluate", remember)
    classifier = ConvCapsClassifier(method="rbf-svm").fit(*made)
    before, baseline = evaluated
    assert (before.method, baseline.method) == ("rbf-svm", "lda")
    assert before.scores == {} and before is not classifier.model_
    scores = classifier.scores_
    kept = classifier.model_.scores
    assert (kept["oa"], kept["aa"], kept["kappa"]) == (scores.oa, scores.aa, scores.kappa)
    assert tuple(kept["oa_interval"]) == scores.oa_interval  # type: ignore[arg-type]
    assert classifier.model_.network is before.network and classifier.model_.calibration is before.calibration


def test_names_that_differ_in_case_only_give_a_warning(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    names = ("Tree", "tree", "water")
    named = Legend(tuple(e._replace(name=name) for e, name in zip(labels.legend, names, strict=True)))
    with pytest.warns(DataWarning, match="'Tree' and 'tree' are classes of their own"):
        ConvCapsClassifier(method="lda").fit(scene, Labels.from_array(labels.array, named))


def test_lengths_and_classes_agree(trained: ConvCapsClassifier, made: tuple[Scene, Labels]) -> None:
    scene, _ = made
    lengths = trained.predict_proba(scene)
    assert lengths.shape == (36, 36, 3) and lengths.dtype == np.float32
    assert (lengths >= 0).all() and (lengths < 1).all()
    np.testing.assert_array_equal(trained.classes_[lengths.argmax(axis=2)], trained.predict(scene))


def test_scikit_learns_conventions(made: tuple[Scene, Labels]) -> None:
    classifier = ConvCapsClassifier(**QUICK, seed=3)
    names = list(inspect.signature(ConvCapsClassifier).parameters)
    assert set(classifier.get_params()) == set(names)
    assert classifier.set_params(epochs=1) is classifier and classifier.epochs == 1
    copy = clone(classifier)
    assert copy is not classifier and copy.get_params() == classifier.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(made[0])
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.fit(*made) is copy
    assert copy.get_params() == classifier.get_params()  # fit changes no parameter


class PixelClassifier(ConvCapsClassifier):
    """The estimator on pixels of one scene, as scikit-learn's cross-validation divides them."""

    @property
    def _made(self) -> tuple[Scene, Labels]:
        cube, labels = make_cube()
        return Scene.from_array(cube), Labels.from_array(labels)

    def fit(self, X: np.ndarray, y: np.ndarray) -> PixelClassifier:  # noqa: N803 - scikit-learn's names
        scene, labels = self._made
        return super().fit(scene, labels.only_pixels(np.sort(X[:, 0])), evaluate=False)

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: N803
        return super().predict(self._made[0]).ravel()[X[:, 0]]


def test_scikit_learn_cross_validates_it_and_searches_its_parameters(made: tuple[Scene, Labels]) -> None:
    pixels = np.flatnonzero(made[1].array)
    truth = made[1].array.ravel()[pixels]
    classifier = PixelClassifier(method="lda", split_by="none")
    scores = cross_val_score(classifier, pixels[:, None], truth, cv=3, scoring="accuracy")
    assert scores.shape == (3,) and scores.min() > 0.8
    search = GridSearchCV(classifier, {"patch": [1, 3]}, cv=2, scoring="accuracy").fit(pixels[:, None], truth)
    assert search.best_params_["patch"] in (1, 3) and search.best_estimator_.patch == search.best_params_["patch"]


def test_parameters_are_those_of_the_constructor() -> None:
    classifier = ConvCapsClassifier(epochs=3, method="c-cnn")
    assert repr(classifier) == "ConvCapsClassifier(epochs=3, method='c-cnn')"
    with pytest.raises(ValueError, match=r"Invalid parameter 'epoch' for estimator .*'epochs'"):
        classifier.set_params(epoch=3)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(
    made: tuple[Scene, Labels], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    first = ConvCapsClassifier(**QUICK | {"epochs": 2}, seed=5).fit(*made)
    torch.manual_seed(2)  # the global generator must not matter
    again = ConvCapsClassifier(**QUICK | {"epochs": 2}, seed=5).fit(*made)
    other = ConvCapsClassifier(**QUICK | {"epochs": 2}, seed=6).fit(*made)
    for key, value in first.model_.network.state_dict().items():
        assert torch.equal(again.model_.network.state_dict()[key], value)
    assert [r.loss for r in first.history_.records] == [r.loss for r in again.history_.records]
    assert first.split_.digest() == again.split_.digest() != other.split_.digest()
    for name, fitted in (("first", first), ("again", again)):
        fitted.save(tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()


def test_saved_and_loaded_it_predicts_the_same(
    trained: ConvCapsClassifier, made: tuple[Scene, Labels], tmp_path: Path
) -> None:
    trained.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.get_params() == trained.get_params() | {"patch": 7, "recipe": "best"}  # what None stood for
    np.testing.assert_array_equal(loaded.predict_proba(made[0]), trained.predict_proba(made[0]))


def test_bad_bands_are_left_out_of_everything(made: tuple[Scene, Labels], tmp_path: Path) -> None:
    """The same bits as from a file that never had them, and a model that maps the scene it was trained on."""
    scene, labels = made
    waves = np.linspace(400.0, 1000.0, scene.bands)
    good = np.ones(scene.bands + 4, dtype=bool)
    good[[0, 7, 8, 29]] = False
    cube = np.full((scene.rows, scene.cols, good.size), np.nan, dtype=np.float32)
    cube[:, :, 7] = np.random.default_rng(5).normal(0, 1e6, (scene.rows, scene.cols))
    cube[:, :, good] = scene.read().values
    all_waves = np.full(good.size, 5000.0)
    all_waves[good] = waves
    marked = Scene.from_array(cube, name="made", wavelengths=all_waves, good_bands=good)
    np.save(tmp_path / "good.npy", cube[:, :, good])
    stored = open_scene(tmp_path / "good.npy", wavelengths=waves)

    models = [ConvCapsClassifier(**QUICK | {"epochs": 2}).fit(one, labels) for one in (marked, stored)]
    for model in models:
        assert model.model_.bands == scene.bands and model.model_.wavelengths is not None
        np.testing.assert_array_equal(model.model_.wavelengths, waves)
    scores = models[0].predict_proba(marked)
    for model, one in ((models[0], stored), (models[1], marked), (models[1], stored)):
        np.testing.assert_array_equal(model.predict_proba(one), scores)
    models[0].save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load_model(tmp_path / "model.safetensors").predict_proba(marked), scores)
    np.testing.assert_array_equal(quicklook(marked).picture, quicklook(stored).picture)


def test_bands_marked_bad_later_are_left_out_of_training(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    good = np.arange(scene.bands) != 10
    marked = replace(scene, good_bands=good)
    model = ConvCapsClassifier(**QUICK | {"epochs": 2}).fit(marked, labels)
    assert model.model_.bands == good.sum() == 25
    changed = scene.read().values.copy()
    changed[:, :, ~good] = -1e6
    again = replace(Scene.from_array(changed), good_bands=good)
    np.testing.assert_array_equal(model.predict_proba(again), model.predict_proba(marked))
    with pytest.raises(ModelFileError, match="26"):
        model.predict(scene)


def test_the_model_contains_its_whitening(trained: ConvCapsClassifier) -> None:
    """A crop of the scene must be classified as in the whole: nothing is rescaled by the crop's own values."""
    cube, _ = make_cube()
    whole = trained.predict(Scene.from_array(cube))
    crop = trained.predict(Scene.from_array(cube[:, :12]))  # one class only
    np.testing.assert_array_equal(crop[:, :9], whole[:, :9])  # away from the new border


def test_a_given_split_is_used(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    split = split_by_share(labels, 0.3, 0.2, seed=9)
    fitted = ConvCapsClassifier(epochs=1, patch=5).fit(scene, labels, split=split)
    assert fitted.split_.digest() == split.digest()
    assert fitted.split_.patch == 5  # leakage is counted for the patches in use
    assert fitted.scores_.n_test == split.test.size


def test_per_class_and_structure_reach_the_model(made: tuple[Scene, Labels]) -> None:
    fitted = ConvCapsClassifier(per_class=7, epochs=1, structure={"routings": 2, "spatial_filters": 4}).fit(*made)
    assert fitted.split_.train.size == 21
    assert fitted.model_.network.classcaps.routings == 2
    assert fitted.model_.network.spatial.weight.shape == (4, 49)


def test_labels_that_skip_numbers_are_predicted_unchanged(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    sparse = np.array([0, 1, 10, 14])[labels.array]
    fitted = ConvCapsClassifier(**QUICK).fit(scene, Labels.from_array(sparse))
    assert fitted.classes_.tolist() == [1, 10, 14]
    assert set(np.unique(fitted.predict(scene))) <= {1, 10, 14}
    assert fitted.scores_.oa > 95


def test_masked_pixels_neither_train_nor_test(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    cube = scene.read().values.copy()
    cube[5, :, 3] = np.nan
    labelled = int((labels.array[5] > 0).sum())
    with pytest.warns(DataWarning) as caught:
        fitted = ConvCapsClassifier(**QUICK).fit(Scene.from_array(cube), labels)
        predicted = fitted.predict(Scene.from_array(cube))
    said = [str(warning.message) for warning in caught]
    assert any(f"{labelled} labelled pixels" in text for text in said)
    assert any("36 of 1296 pixels" in text for text in said)
    used = np.concatenate([fitted.split_.train, fitted.split_.val, fitted.split_.test])
    assert not (used // 36 == 5).any()
    assert (predicted[5] == 0).all()
    assert fitted.scores_.oa > 95


def test_without_validation_pixels_the_last_epoch_is_kept(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    fitted = ConvCapsClassifier(val=0, epochs=3, recipe="paper").fit(scene, labels)
    assert fitted.split_.val.size == 0 and fitted.history_.best_epoch == 3
    assert [record.val_oa for record in fitted.history_] == [None] * 3
    drawn = fitted.split_
    given = Split.from_indices(labels, drawn.train, [], drawn.test)
    assert ConvCapsClassifier(epochs=1).fit(scene, labels, given).history_.best_epoch == 2  # of two stages


def test_numpy_numbers_are_accepted(made: tuple[Scene, Labels], tmp_path: Path) -> None:
    fitted = ConvCapsClassifier(
        per_class=np.int64(5), val=np.float32(0.1), epochs=np.int64(1), patch=np.int64(5), seed=np.int64(2),
        batch_size=np.int32(16),
    ).fit(*made)  # fmt: skip
    fitted.save(tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").patch == 5


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": None}, {"epochs": 1.5}, {"per_class": 5.5}, {"patch": "7"}])
def test_parameters_that_are_no_numbers_are_refused(made: tuple[Scene, Labels], wrong: dict[str, object]) -> None:
    with pytest.raises(ModelError, match=f"{next(iter(wrong))} is .* whole number"):
        ConvCapsClassifier(**wrong).fit(*made)


def test_test_pixels_that_are_invalid_are_left_out(trained: ConvCapsClassifier, made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    cube = scene.read().values.copy()
    lost = trained.split_.test[:3]
    cube.reshape(-1, 26)[lost] = np.nan
    with pytest.warns(DataWarning, match="3 labelled pixels"):
        scores = trained.evaluate(Scene.from_array(cube), labels, trained.split_)
    assert scores.n_test == trained.split_.test.size - 3
    only_lost = Split(trained.split_.train, trained.split_.val, lost, labels.shape)
    with pytest.warns(DataWarning), pytest.raises(SplitError, match="labelled and valid"):
        trained.evaluate(Scene.from_array(cube), labels, only_lost)


def test_evaluate_on_other_labels(trained: ConvCapsClassifier, made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    with pytest.warns(DataWarning, match="its training pixels were scored as well and the score is too high"):
        everything = trained.evaluate(scene, labels)
    assert everything.n_test == (labels.array > 0).sum()
    on_test = trained.evaluate(scene, labels, trained.split_)
    assert on_test.oa == trained.scores_.oa and on_test.n_test == trained.split_.test.size
    with pytest.raises(LabelsError, match="that the model does not know, 9: it knows 1, 2, 3; relabel"):
        trained.evaluate(scene, Labels.from_array(np.where(labels.array == 2, 9, labels.array)))
    nothing = Split(trained.split_.train, trained.split_.val, np.array([], int), labels.shape)
    with pytest.raises(SplitError, match="no test pixel"):
        trained.evaluate(scene, labels, nothing)
    with pytest.raises(ModelFileError, match="26 bands"):
        trained.evaluate(Scene.from_array(np.zeros((36, 36, 9))), labels)


def test_fit_refuses_bad_input(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    with pytest.raises(LabelsError, match=r"one class only, .*numbered from 1 up, because 0 means unlabelled"):
        ConvCapsClassifier().fit(scene, Labels.from_array((labels.array > 0).astype(int)))
    with pytest.raises(LabelsError, match="scene's grid"):
        ConvCapsClassifier().fit(scene, Labels.from_array(np.eye(5, dtype=int)))
    with pytest.raises(ModelError, match="epochs is 0"):
        ConvCapsClassifier(epochs=0).fit(scene, labels)
    with pytest.raises(ModelError, match="batch_size is -1"):
        ConvCapsClassifier(batch_size=-1).fit(scene, labels)
    with pytest.raises(ModelError, match="the budget is '1': a number of minutes above 0"):
        ConvCapsClassifier(method="auto", budget="1").fit(scene, labels)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no method 'nothing'"):
        ConvCapsClassifier(method="nothing").fit(scene, labels)
    with pytest.raises(ModelError, match="no recipe"):
        ConvCapsClassifier(recipe="nothing").fit(scene, labels)
    with pytest.raises(SceneError, match="constant"):
        ConvCapsClassifier().fit(Scene.from_array(np.ones((36, 36, 26))), labels)
    with pytest.raises(LabelsError, match="invalid"):
        ConvCapsClassifier().fit(Scene.from_array(np.full((36, 36, 26), np.nan)), labels)


def test_splits_of_whole_polygons(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    groups = np.arange(36 * 36, dtype=np.int32).reshape(36, 36) // (36 * 6) + 1  # bands of six rows ...
    groups = np.where(labels.array > 0, groups + 6 * labels.array, 0).astype(np.int32)  # ... of each class
    labels = replace(labels, groups=groups)
    classifier = ConvCapsClassifier(method="rbf-svm", split_by="polygons", train=0.3, seed=1).fit(scene, labels)
    split = classifier.split_
    assert split.kind == "polygons" and classifier.get_params()["split_by"] == "polygons"
    trained, tested = (set(groups.ravel()[which].tolist()) for which in (split.train, split.test))
    assert trained and tested and not trained & tested
    with pytest.raises(SplitError, match="no split 'rows'"):
        ConvCapsClassifier(split_by="rows").fit(scene, labels)


def test_a_class_number_with_two_names_is_warned_of(trained: ConvCapsClassifier, made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    model = replace(trained.model_, legend=Legend.of([1, 2, 3], ["reed", "birch", "sand"]))
    classifier = ConvCapsClassifier()
    classifier.model_ = model
    with pytest.warns(DataWarning, match=r"numbers but no names: .* by number, 1 as reed, 2 as birch, 3 as sand"):
        classifier.score(scene, labels)
    named = replace(labels, legend=Legend.of([1, 2, 3], ["reed", "sand", "birch"]))
    with pytest.warns(DataWarning, match="2 is sand in the labels and birch in the model; 3 is birch"):
        classifier.score(scene, named)


def test_splits_that_do_not_fit_are_refused(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    flat = labels.array.ravel()
    one, two, three = (np.flatnonzero(flat == k) for k in (1, 2, 3))
    with pytest.raises(SplitError, match="no training pixel of class 3"):
        ConvCapsClassifier(epochs=1).fit(
            scene, labels, Split.from_indices(labels, np.concatenate([one[:5], two[:5]]), [], three)
        )
    with pytest.raises(SplitError, match="no test pixel"):
        ConvCapsClassifier(epochs=1).fit(
            scene, labels, Split.from_indices(labels, np.concatenate([one, two, three]), [], [])
        )
    elsewhere = Split(np.flatnonzero(flat == 0)[:9], one[:1], two[:1], labels.shape)
    with pytest.raises(SplitError, match="unlabelled or invalid"):
        ConvCapsClassifier(epochs=1).fit(scene, labels, elsewhere)
    with pytest.raises(SplitError, match="pixels but the labels"):
        ConvCapsClassifier(epochs=1).fit(scene, labels, Split(one[:1], two[:1], three[:1], (36, 37), {}))


def test_labels_are_checked_once_for_a_scene() -> None:
    cube, array = make_cube()
    r, c = np.argwhere(array > 0)[0]
    cube[r, c] = np.nan
    scene, labels = Scene.from_array(cube), Labels.from_array(array)
    with pytest.warns(DataWarning) as first:
        valid = labels.where_valid(scene)
    assert [str(warning.message) for warning in first if "are left out" in str(warning.message)]
    assert valid.where_valid(scene) is valid and valid.digest() == labels.digest() and valid.array[r, c] == 0
    with pytest.warns(DataWarning) as later:
        fitted = ConvCapsClassifier(method="rbf-svm").fit(scene, valid)
    assert not [warning for warning in later if "are left out" in str(warning.message)]
    assert fitted.model_.split.labels == labels.digest()
    with pytest.warns(DataWarning) as whole:
        ConvCapsClassifier(method="rbf-svm").fit(scene, Labels.from_array(array))
    assert len([warning for warning in whole if "are left out" in str(warning.message)]) == 1


def test_scores_of_an_earlier_training_are_not_kept(made: tuple[Scene, Labels]) -> None:
    classifier = ConvCapsClassifier(method="rbf-svm").fit(*made)
    assert classifier.scores_.oa > 50
    classifier.fit(*made, evaluate=False)
    assert not hasattr(classifier, "scores_")


# Plain arrays


def test_arrays_are_taken_as_scenes_and_labels() -> None:
    cube, truth = make_cube()
    scene, labels = Scene.from_array(cube), Labels.from_array(truth)
    by_arrays = ConvCapsClassifier(method="lda").fit(cube, truth)
    by_objects = ConvCapsClassifier(method="lda").fit(scene, labels)
    assert by_arrays.scores_.to_json() == by_objects.scores_.to_json()
    np.testing.assert_array_equal(by_arrays.predict(cube), by_objects.predict(scene))
    np.testing.assert_array_equal(by_arrays.predict_proba(cube), by_objects.predict_proba(scene))
    np.testing.assert_array_equal(by_arrays.lengths(cube), by_objects.lengths(scene))
    np.testing.assert_array_equal(by_arrays.map(cube).confidence, by_objects.map(scene).confidence)
    np.testing.assert_array_equal(by_arrays.familiarity(cube), by_objects.familiarity(scene))
    assert by_arrays.score(cube, truth) == by_objects.score(scene, labels)
    drawn = by_arrays.draw_split(truth, cube)
    np.testing.assert_array_equal(drawn.train, by_objects.split_.train)
    np.testing.assert_array_equal(by_arrays.adapted(cube).read().values, cube)


@pytest.mark.parametrize("kind", ["torch", "xarray", "float64", "fortran"])
def test_arrays_of_other_kinds(kind: str) -> None:
    cube, truth = make_cube()
    given: object = {
        "torch": lambda: torch.from_numpy(cube),
        "xarray": lambda: xr.DataArray(cube.transpose(2, 0, 1), dims=("band", "y", "x")),
        "float64": lambda: cube.astype(np.float64),
        "fortran": lambda: np.asfortranarray(cube),
    }[kind]()
    trained = ConvCapsClassifier(method="lda").fit(given, truth)  # type: ignore[arg-type]
    expected = ConvCapsClassifier(method="lda").fit(cube, truth).predict(cube)
    np.testing.assert_array_equal(trained.predict(given), expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scene", "labels", "said"),
    [
        ("scene.tif", make_cube()[1], r"open it first, open_scene\('scene.tif'\)"),
        (make_cube()[0], Path("labels.npy"), r"open it first, open_labels\('labels.npy'\)"),
        (make_cube()[0], None, "Labels or an array .* expected and NoneType came"),
        (None, make_cube()[1], "a Scene or an array .* expected and NoneType came"),
        (make_cube()[0][:, :, 0], make_cube()[1], r"a table of shape \(36, 36\) came.*PixelClassifier"),
        (make_cube()[0][None], make_cube()[1], "is 4-D"),
        (make_cube()[0], make_cube()[1][:9], "labels must be on the scene's grid"),
        (make_cube()[0].astype(complex), make_cube()[1], "integers or real numbers"),
    ],
)
def test_what_is_no_scene_and_no_labels_is_refused(scene: object, labels: object, said: str) -> None:
    with pytest.raises((SceneError, LabelsError), match=said):
        ConvCapsClassifier(method="lda").fit(scene, labels)  # type: ignore[arg-type]
