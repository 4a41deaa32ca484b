"""Which methods give the same bits on any number of threads: what README, ARCHITECTURE and docs/methods.md claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.compute import native
from hypercaps.compute.devices import use_threads
from hypercaps.models.registry import METHODS

INDEPENDENT = ("convcapsnet", "c-cnn", "rbf-svm", "rbf-svm-window", "lda", "logistic", "random-forest")
# torch divides their sums between threads: on some processors trainings, and maps, differ in the last digits.
DEPENDENT = ("mlp", "capsnet", "se-2d-cnn", "3d-cnn")
RECIPES = [(name, recipe) for name in INDEPENDENT for recipe in METHODS[name].recipes]
THREADS = (1, 2, 3)


def arrays_of(classifier: ConvCapsClassifier) -> dict[str, np.ndarray]:
    """Everything that a training computed: weights and statistics of the spectra."""
    weights = {name: weight.numpy() for name, weight in classifier.model_.network.state_dict().items()}
    statistics = vars(classifier.model_.preprocessing)
    return weights | {name: value for name, value in statistics.items() if isinstance(value, np.ndarray)}


@pytest.mark.skipif(not native.available(), reason="without compiled kernels, networks are computed by torch")
@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize(("method", "recipe"), RECIPES)
def test_trainings_and_maps_are_the_same_to_the_bit_for_any_number_of_threads(
    method: str, recipe: str, made: tuple[Scene, Labels]
) -> None:
    options = {"epochs": 2, "batch_size": 16} if METHODS[method].recipe(recipe).has_epochs else {}
    found: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    for threads in THREADS:
        use_threads(threads)
        with threadpool_limits(threads, user_api="blas"):
            fitted = ConvCapsClassifier(method=method, recipe=recipe, train=0.4, **options).fit(*made, evaluate=False)
            found.append((arrays_of(fitted), fitted.predict_proba(made[0])))
    assert torch.get_num_threads() == THREADS[-1]
    for arrays, scores in found[1:]:
        assert arrays.keys() == found[0][0].keys()
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, found[0][0][name], err_msg=name)
        np.testing.assert_array_equal(scores, found[0][1])


def test_every_method_is_on_one_of_the_lists_and_the_documents_name_those_that_depend_on_threads() -> None:
    assert sorted(INDEPENDENT + DEPENDENT) == sorted(METHODS)
    root = Path(__file__).parents[2]
    for page in ("README.md", "ARCHITECTURE.md", "docs/methods.md"):
        text = " ".join((root / page).read_text(encoding="utf-8").split())
        assert "MLP, CapsNet, Se-2D-CNN and 3D-CNN" in text, page
