"""The random forest against scikit-learn's, and as a model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.data.statistics import statistics_bytes
from hypercaps.errors import ModelError
from hypercaps.inference.familiarity_fit import stored_bytes
from hypercaps.models.protocols import Samples
from hypercaps.models.random_forest import RandomForest
from hypercaps.models.registry import METHODS, count_parameters, get_method
from support.scenes import QUICK


def data(classes: int = 4, pixels: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(classes)
    targets = rng.integers(0, classes, pixels)
    spectra = rng.standard_normal((classes, 9))[targets] + rng.standard_normal((pixels, 9))
    return torch.from_numpy(spectra).float().view(-1, 1, 1, 9), torch.from_numpy(targets)


def fit(forest: RandomForest, patches: torch.Tensor, targets: torch.Tensor) -> RandomForest:
    forest.solve(Samples(forest.features(patches), targets))
    return forest


@pytest.mark.parametrize("classes", [2, 4])
def test_probabilities_are_scikit_learns(classes: int) -> None:
    patches, targets = data(classes)
    forest = fit(RandomForest(9, classes, trees=50, generator=torch.Generator().manual_seed(5)), patches, targets)
    theirs = RandomForestClassifier(50, random_state=forest.seed, n_jobs=2)
    theirs.fit(patches.flatten(1).numpy(), targets.numpy())
    unseen = torch.cat([patches, torch.randn(400, 1, 1, 9, generator=torch.Generator().manual_seed(1))])
    np.testing.assert_allclose(forest(unseen).numpy(), theirs.predict_proba(unseen.flatten(1).numpy()), atol=1e-6)


def test_a_value_on_the_threshold_goes_left() -> None:
    patches, targets = data()
    forest = fit(RandomForest(9, 4, trees=20), patches, targets)
    theirs = RandomForestClassifier(20, random_state=0).fit(patches.flatten(1).numpy(), targets.numpy())
    # Values of float32 just below, on and above every threshold of the first tree
    inner = theirs.estimators_[0].tree_.feature >= 0
    feature, threshold = (part[inner] for part in (theirs.estimators_[0].tree_.feature, forest_thresholds(theirs)))
    unseen = np.zeros((3 * feature.size, 9), dtype=np.float32)
    rounded = threshold.astype(np.float32)
    for part, values in enumerate((np.nextafter(rounded, -np.inf), rounded, np.nextafter(rounded, np.inf))):
        unseen[np.arange(feature.size) + part * feature.size, feature] = values
    found = forest(torch.from_numpy(unseen).view(-1, 1, 1, 9))
    np.testing.assert_allclose(found.numpy(), theirs.predict_proba(unseen), atol=1e-6)


def forest_thresholds(forest: RandomForestClassifier) -> np.ndarray:
    return forest.estimators_[0].tree_.threshold


def test_windows_are_classified_by_their_means() -> None:
    patches, targets = data()
    windows = patches + torch.randn(200, 3, 3, 9, generator=torch.Generator().manual_seed(2))
    forest = fit(RandomForest(9, 4, patch=3, trees=20), windows, targets)
    means = windows.double().mean(dim=(1, 2)).numpy()
    theirs = RandomForestClassifier(20, random_state=0).fit(means.astype(np.float32), targets.numpy())
    np.testing.assert_allclose(forest(windows).numpy(), theirs.predict_proba(means), atol=1e-6)


def test_the_seed_comes_from_the_generator() -> None:
    seeds = [get_method("random-forest").network(9, 3, seed=seed).seed for seed in (0, 0, 1)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_trees_of_one_leaf_and_absent_classes() -> None:
    patches, _ = data()
    one = fit(RandomForest(9, 3, trees=5), patches, torch.ones(200, dtype=torch.int64))
    assert one.found == {"trees": 5, "nodes": 0, "leaves": 5, "depth": 0}
    assert torch.equal(one(patches[:2]), torch.tensor([[0.0, 1.0, 0.0]] * 2))
    two = fit(RandomForest(9, 3, trees=5), patches, 2 * (torch.arange(200) % 2))
    assert (two(patches)[:, 1] == 0).all()
    assert two(patches[:0]).shape == (0, 3)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ModelError, match="depth is 3"):
        RandomForest(9, 3, nodes=2, leaves=3, depth=3)
    with pytest.raises(ModelError, match="trees is 0"):
        RandomForest(9, 3, trees=0)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.recipe().has_epochs])
def test_a_model_file_is_not_larger_than_foreseen(name: str, made: tuple[Scene, Labels], tmp_path: Path) -> None:
    options = {key: value for key, value in QUICK.items() if key not in ("epochs", "batch_size")}
    fitted = ConvCapsClassifier(**options, method=name).fit(*made, evaluate=False)
    fitted.save(tmp_path / "model.safetensors")
    labelled, bands, classes = fitted.split_.train.size, made[0].bands, len(made[1].legend)
    blueprint = METHODS[name].blueprint(bands, classes)
    foreseen = 4 * count_parameters(blueprint) + 8 * bands * (bands + 3)
    foreseen += statistics_bytes(bands) + stored_bytes(bands, classes)
    foreseen += METHODS[name].recipe().stored_bytes(labelled, blueprint)
    header = 8000  # the description, and the calibration's table
    assert (tmp_path / "model.safetensors").stat().st_size <= foreseen + header
