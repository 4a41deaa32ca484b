"""What a scikit-learn user tries: cross-validation, grid search, pipelines, clones, checks of estimators."""

from __future__ import annotations

import doctest
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils import estimator_checks, get_tags

import hypercaps.sklearn
from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.errors import DataWarning, LabelsError, ModelError, SceneError
from hypercaps.sklearn import PixelClassifier
from support.scenes import make_cube

CUBE, TRUTH = make_cube(rows=30, cols=30)
SCENE = Scene.from_array(CUBE)
PIXELS = np.argwhere(TRUTH > 0)  # (N, 2)
CLASSES = TRUTH[TRUTH > 0]
NAMES = np.array(["soil", "water", "woods"])[CLASSES - 1]
GROUPS = PIXELS[:, 0] // 10
LDA = ConvCapsClassifier(method="lda")


def test_cross_validation_by_areas() -> None:
    scores = cross_val_score(PixelClassifier(SCENE, LDA), PIXELS, NAMES, groups=GROUPS, cv=GroupKFold(3))
    assert scores.shape == (3,) and scores.min() > 0.9
    found = cross_val_predict(PixelClassifier(SCENE, LDA), PIXELS, NAMES, groups=GROUPS, cv=GroupKFold(3))
    assert set(found) == set(NAMES)


def test_the_capsule_network_over_flat_indices() -> None:
    flat = np.ravel_multi_index(PIXELS.T, SCENE.shape[:2])
    network = ConvCapsClassifier(recipe="paper", epochs=4, batch_size=16)
    estimator = PixelClassifier(SCENE, network).fit(flat[:200], CLASSES[:200])
    assert (estimator.predict(flat[200:]) == CLASSES[200:]).mean() > 0.9
    assert estimator.score(flat[:, None], CLASSES) > 0.9
    likely = estimator.predict_proba(flat[200:])
    np.testing.assert_allclose(likely.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(estimator.classes_[likely.argmax(axis=1)], estimator.predict(flat[200:]))


def test_it_trains_on_the_given_pixels_as_the_classifier_does() -> None:
    estimator = PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES)
    labels = Labels.from_array(TRUTH)
    expected = ConvCapsClassifier(method="lda", split_by="none").fit(SCENE, labels)
    np.testing.assert_array_equal(estimator.classifier_.lengths(SCENE), expected.lengths(SCENE))
    assert estimator.classifier is LDA and not hasattr(LDA, "model_")  # the given classifier stays as it is


def test_a_grid_search_reaches_the_settings_of_the_classifier() -> None:
    search = GridSearchCV(PixelClassifier(SCENE, LDA), {"classifier__patch": [1, 3]}, cv=2)
    search.fit(PIXELS, CLASSES)
    assert search.best_params_["classifier__patch"] in (1, 3) and search.best_score_ > 0.9
    assert search.best_estimator_.classifier_.model_.patch == search.best_params_["classifier__patch"]


def test_the_example_in_its_documentation() -> None:
    found = doctest.testmod(hypercaps.sklearn)
    assert found.attempted > 5 and found.failed == 0


def test_a_plain_array_is_a_scene_too() -> None:
    given = PixelClassifier(CUBE, LDA).fit(PIXELS, NAMES)
    np.testing.assert_array_equal(given.predict(PIXELS), PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES).predict(PIXELS))


def test_a_pipeline() -> None:
    rows_first = FunctionTransformer(lambda places: places[:, ::-1])
    pipeline = make_pipeline(rows_first, PixelClassifier(SCENE, LDA)).fit(PIXELS[:, ::-1], NAMES)
    assert pipeline.score(PIXELS[:, ::-1], NAMES) > 0.9


def test_clones_and_tags() -> None:
    estimator = PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES)
    copy = clone(estimator)
    assert copy.get_params()["classifier__method"] == "lda" and not hasattr(copy, "classifier_")
    assert copy.scene.shape == SCENE.shape
    assert is_classifier(estimator) and get_tags(estimator).target_tags.required


NO_TABLE = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimators_unfitted,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
]


@pytest.mark.parametrize("check", NO_TABLE, ids=lambda check: check.__name__)
def test_checks_of_scikit_learn_that_need_no_table(check: Callable[[str, object], None]) -> None:
    """Of the classifier of scenes: scikit-learn leaves out all checks of an estimator that takes no table."""
    check("ConvCapsClassifier", ConvCapsClassifier(method="lda"))


PAGE = Path(__file__).parents[1] / "docs" / "python.md"
LISTED = [name for name in re.findall(r"`(check_\w+)`", PAGE.read_text("utf-8")) if name != "check_estimator"]
REASONS = dict.fromkeys(LISTED, "its table holds no places of pixels")


@estimator_checks.parametrize_with_checks(
    [PixelClassifier(SCENE, LDA)], expected_failed_checks=lambda estimator: REASONS, xfail_strict=True
)
def test_all_checks_of_scikit_learn_but_those_on_the_page(
    estimator: PixelClassifier, check: Callable[[PixelClassifier], None]
) -> None:
    """A check on the page that passes is an error too."""
    check(estimator)


def test_every_check_on_the_page_is_one() -> None:
    known = {name for name, _ in inspect.getmembers(estimator_checks, inspect.isfunction)}
    assert len(LISTED) > 20 and len(set(LISTED)) == len(LISTED) and set(LISTED) <= known


def test_what_those_checks_ask_over_pixels() -> None:
    """The same questions, with places of pixels in place of random tables."""
    estimator = PixelClassifier(SCENE, LDA)
    assert estimator.fit(PIXELS, NAMES) is estimator
    before, likely = dict(vars(estimator)), estimator.predict_proba(PIXELS)
    turned = np.random.default_rng(0).permutation(len(PIXELS))
    np.testing.assert_array_equal(estimator.predict_proba(PIXELS[turned]), likely[turned])
    np.testing.assert_array_equal(np.vstack([estimator.predict_proba(row[None]) for row in PIXELS[:9]]), likely[:9])
    assert vars(estimator).keys() == before.keys() and estimator.classifier is LDA
    for given in (np.asfortranarray(PIXELS), PIXELS.astype(np.float64), PIXELS.tolist()):
        np.testing.assert_array_equal(estimator.predict_proba(given), likely)
    again = PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES).fit(PIXELS, NAMES)
    np.testing.assert_array_equal(again.predict_proba(PIXELS), likely)
    kept = pickle.loads(pickle.dumps(estimator.classifier_))
    np.testing.assert_array_equal(kept.predict(SCENE), estimator.classifier_.predict(SCENE))
    with pytest.raises(SceneError, match="X has 1 features, but PixelClassifier is expecting 2"):
        estimator.predict(np.arange(4))


def test_tags_of_the_classifier_of_scenes() -> None:
    tags = get_tags(ConvCapsClassifier())
    assert is_classifier(ConvCapsClassifier()) and tags.target_tags.required
    assert tags.input_tags.three_d_array and not tags.input_tags.two_d_array


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (np.random.default_rng(0).random((5, 26)), "spectra belong into the scene"),
        (np.array([[0, 30]]), "outside scene"),
        (np.array([-1]), "outside scene"),
        (np.zeros((2, 3), dtype=int), "rows and columns of pixels"),
    ],
)
def test_what_is_no_pixel_is_refused(places: np.ndarray, said: str) -> None:
    estimator = PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES)
    with pytest.raises(SceneError, match=said):
        estimator.predict(places)


def test_a_step_that_changes_the_places_is_refused() -> None:
    with pytest.raises(SceneError, match="leave out steps that change X, such as a scaler"):
        make_pipeline(StandardScaler(), PixelClassifier(SCENE, LDA)).fit(PIXELS, NAMES)


def test_it_can_be_sent_to_other_processes_and_kept_in_a_file() -> None:
    """As a search with several jobs does, and joblib.dump."""
    trained = PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES)
    again = pickle.loads(pickle.dumps(trained))
    np.testing.assert_array_equal(again.predict_proba(PIXELS), trained.predict_proba(PIXELS))


def test_the_classifier_of_scenes_scores_as_scikit_learn_does() -> None:
    trained = ConvCapsClassifier(method="lda", split_by="none").fit(CUBE, TRUTH)
    with pytest.warns(DataWarning, match="its training pixels were scored as well"):
        scores = trained.evaluate(CUBE, TRUTH)
    assert trained.score(CUBE, TRUTH) == scores.oa / 100 > 0.9
    strips = cross_val_score(LDA, CUBE, TRUTH, cv=3)  # of rows
    assert strips.shape == (3,) and np.isfinite(strips).all()


def test_cross_validation_over_a_scene_names_the_classifier_of_pixels() -> None:
    with pytest.raises(SceneError, match=r"take hypercaps\.sklearn\.PixelClassifier"):
        cross_val_score(LDA, SCENE, Labels.from_array(TRUTH))  # type: ignore[arg-type]
    with pytest.raises(SceneError, match=r"the places of pixels to hypercaps\.sklearn\.PixelClassifier"):
        cross_val_score(LDA, CUBE.reshape(900, -1), TRUTH.ravel(), error_score="raise")


def test_other_mistakes_are_explained() -> None:
    with pytest.raises(ModelError, match="classifier is DummyClassifier: a ConvCapsClassifier is expected"):
        PixelClassifier(SCENE, DummyClassifier()).fit(PIXELS, NAMES)  # type: ignore[arg-type]
    with pytest.raises(LabelsError, match=r"y has shape \(30, 30\): one class for each row of X"):
        PixelClassifier(SCENE, LDA).fit(CUBE, TRUTH)
    with pytest.raises(SceneError, match="give the Scene"):
        PixelClassifier(None, LDA).fit(PIXELS, NAMES)
    with pytest.raises(SceneError, match=r"open it first, open_scene\('scene.tif'\)"):
        PixelClassifier("scene.tif", LDA).fit(PIXELS, NAMES)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        PixelClassifier(SCENE, LDA).predict(PIXELS)
    with pytest.raises(LabelsError, match="one for each"):
        PixelClassifier(SCENE, LDA).fit(PIXELS, NAMES[1:])
    with pytest.raises(LabelsError, match="twice"):
        PixelClassifier(SCENE, LDA).fit(PIXELS[[0, 0, 1]], NAMES[[0, 0, 1]])
    holes = CUBE.copy()
    holes[tuple(PIXELS[0])] = np.nan
    with pytest.warns(Warning), pytest.raises(SceneError, match=r"1 of \d+ pixels have no data, such as row 0"):
        PixelClassifier(Scene.from_array(holes), LDA).fit(PIXELS, NAMES)
