"""Linear classifiers: LDA and logistic regression against scikit-learn, and with hardly any data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf as theirs_of
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression as TheirLogistic

from hypercaps.errors import ModelError
from hypercaps.models.folds import unit_folds
from hypercaps.models.lda import LDA, ledoit_wolf
from hypercaps.models.linear import LinearClassifier, softmax
from hypercaps.models.logistic import LogisticRegression
from hypercaps.models.protocols import Samples


def shared_covariance(classes: int = 4, pixels: int = 300, bands: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian classes with one covariance: features (N, C) float64 and class indices (N,)."""
    rng = np.random.default_rng(classes)
    mixing = rng.standard_normal((bands, bands)) * np.geomspace(1, 0.1, bands)
    targets = np.concatenate([np.arange(classes), rng.integers(0, classes, pixels - classes)])
    means = 1.5 * rng.standard_normal((classes, bands)) @ mixing.T / bands**0.5
    return torch.from_numpy(means[targets] + rng.standard_normal((pixels, bands)) @ mixing.T), torch.from_numpy(targets)


def fit(machine: LinearClassifier, features: torch.Tensor, targets: torch.Tensor, units: torch.Tensor | None = None):
    machine.solve(Samples(features, targets, units))
    return machine


def scores_of(machine: LinearClassifier, features: torch.Tensor) -> torch.Tensor:
    return machine(features.float().view(len(features), 1, 1, -1))


METHODS = (LDA, LogisticRegression)


class TestLDA:
    @pytest.mark.parametrize("classes", [2, 4, 9])
    def test_it_decides_as_scikit_learn_does(self, classes: int) -> None:
        features, targets = shared_covariance(classes, pixels=3000)
        features += 3 * features.new_tensor(np.random.default_rng(7).standard_normal((classes, 20)))[targets]
        train, test = slice(0, 1000), slice(1000, 3000)
        machine = fit(LDA(20, classes), features[train], targets[train])
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        theirs.fit(features[train].numpy(), targets[train].numpy())
        ours = scores_of(machine, features[test]).argmax(dim=1).numpy()
        assert (ours == theirs.predict(features[test].numpy())).mean() >= 0.98
        accuracy = (ours == targets[test].numpy()).mean()
        assert accuracy >= theirs.score(features[test].numpy(), targets[test].numpy()) - 0.002

    def test_one_shrinkage_for_all_classes_beats_one_for_each(self) -> None:
        """scikit-learn shrinks the covariance of each class by itself, from the few pixels of the class."""
        features, targets = shared_covariance(9, pixels=3000)
        train, test = slice(0, 1000), slice(1000, 3000)
        machine = fit(LDA(20, 9), features[train], targets[train])
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        theirs.fit(features[train].numpy(), targets[train].numpy())
        accuracy = (scores_of(machine, features[test]).argmax(dim=1) == targets[test]).double().mean().item()
        assert accuracy > theirs.score(features[test].numpy(), targets[test].numpy())

    def test_the_shrinkage_is_scikit_learns(self) -> None:
        for pixels in (10, 200):
            features = shared_covariance(pixels=pixels)[0].numpy()
            centred = features - features.mean(axis=0)
            found = ledoit_wolf(centred, centred.T @ centred / pixels)
            assert found == pytest.approx(theirs_of(centred, assume_centered=True)[1], rel=1e-9)

    def test_label_shares_are_the_priors(self) -> None:
        features, targets = shared_covariance(2, pixels=400)
        rare = torch.cat([torch.nonzero(targets == 0)[:20], torch.nonzero(targets == 1)]).flatten()
        machine = fit(LDA(20, 2), features[rare], targets[rare])
        middle = torch.stack([features[rare][targets[rare] == k].mean(dim=0) for k in (0, 1)]).mean(dim=0)
        chances = softmax(scores_of(machine, middle[None]))[0]
        assert float(chances[0]) == pytest.approx(20 / len(rare), rel=1e-3)


class TestLogistic:
    @pytest.mark.parametrize("classes", [2, 4])
    def test_it_decides_as_scikit_learn_does(self, classes: int) -> None:
        features, targets = shared_covariance(classes)
        machine = fit(LogisticRegression(20, classes, cost=0.1), features, targets)
        theirs = TheirLogistic(C=0.1, tol=1e-8, max_iter=5000).fit(features.numpy(), targets.numpy())
        expected = theirs.predict_proba(features.numpy())
        np.testing.assert_allclose(softmax(scores_of(machine, features)).numpy(), expected, atol=2e-3)
        assert machine.found == {"cost": 0.1}

    def test_a_noisy_scene_gets_a_lower_cost(self) -> None:
        features, targets = shared_covariance()
        noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        clear = fit(LogisticRegression(20, 4), 3 * features, targets)
        noisy = fit(LogisticRegression(20, 4), noise, targets)
        assert noisy.cost == 0.01 < clear.cost
        again = LogisticRegression(20, 4, **clear.found)
        again.load_state_dict(clear.state_dict())
        assert torch.equal(scores_of(again, features), scores_of(clear, features))

    def test_units_are_left_out_as_a_whole(self) -> None:
        """Copies of a unit's spectrum: pixels left out alone are known by heart, units are not."""
        features, targets = shared_covariance(pixels=60)
        noise = 3 * torch.randn(features.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        copies, labels = (features + noise).repeat_interleave(10, dim=0), targets.repeat_interleave(10)
        by_pixels = fit(LogisticRegression(20, 4), copies, labels)
        by_units = fit(LogisticRegression(20, 4), copies, labels, torch.arange(60).repeat_interleave(10))
        assert by_units.cost < by_pixels.cost

    def test_with_too_few_units_the_cost_is_1(self) -> None:
        features, targets = shared_covariance()
        assert fit(LogisticRegression(20, 4), features, targets, torch.arange(300) % 3).cost == 1.0

    def test_many_pixels_are_thinned_out_to_choose(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hypercaps.models.logistic._MOST_TO_CHOOSE", 50)
        machine = fit(LogisticRegression(20, 4), *shared_covariance())
        assert machine.cost in LogisticRegression.COSTS

    def test_a_bad_cost_is_refused(self) -> None:
        for wrong in (0, -1.0, "high"):
            with pytest.raises(ModelError, match="cost is"):
                LogisticRegression(20, 4, cost=wrong)


@pytest.mark.parametrize("method", METHODS)
class TestEither:
    def test_hardly_any_data_gives_finite_scores(self, method: type[LinearClassifier]) -> None:
        features, targets = shared_covariance(3, pixels=12, bands=30)  # fewer pixels than bands
        features[:, 4] = 0.25  # constant
        for some in (slice(0, 12), slice(0, 3), slice(0, 4)):  # one pixel of each class, then one class has two
            machine = fit(method(30, 3), features[some], targets[some])
            assert torch.isfinite(machine.weight).all() and torch.isfinite(machine.bias).all()
            found = softmax(scores_of(machine, features))
            assert torch.isfinite(found).all()
            assert (found[:3].argmax(dim=1) == targets[:3]).all()
        equal = features[:3].repeat(7, 1)  # no variance inside the classes but rounding errors
        found = scores_of(fit(method(30, 3), equal, targets[:3].repeat(7)), equal)
        assert torch.isfinite(found).all() and (found.argmax(dim=1) == targets[:3].repeat(7)).all()
        assert found.abs().max() < 1e4
        same = torch.zeros(6, 30, dtype=torch.float64)
        assert torch.isfinite(scores_of(fit(method(30, 3), same, torch.arange(6) % 3), same)).all()

    def test_a_class_without_pixels_is_never_predicted(self, method: type[LinearClassifier]) -> None:
        features, targets = shared_covariance(3)
        machine = fit(method(20, 5), features, 2 * targets)
        found = scores_of(machine, features)
        assert torch.isfinite(found).all() and set(found.argmax(dim=1).tolist()) == {0, 2, 4}

    def test_the_score_of_a_patch_is_that_of_its_mean(self, method: type[LinearClassifier]) -> None:
        features, targets = shared_covariance()
        machine = fit(method(20, 4, patch=3), features, targets)
        patches = torch.randn(5, 3, 3, 20, generator=torch.Generator().manual_seed(3))
        expected = torch.stack([machine(patches[:, i, j].view(5, 1, 1, 20)) for i in range(3) for j in range(3)])
        torch.testing.assert_close(machine(patches), expected.mean(dim=0), rtol=1e-4, atol=1e-4)

    def test_an_even_patch_is_refused(self, method: type[LinearClassifier]) -> None:
        with pytest.raises(ModelError, match="patch is 4: an odd number"):
            method(20, 4, patch=4)


def test_softmax_adds_class_after_class() -> None:
    scores = 10 * torch.randn(33, 7, generator=torch.Generator().manual_seed(4))
    found = softmax(scores)
    torch.testing.assert_close(found, torch.softmax(scores, dim=-1))
    for pixel in range(33):
        assert torch.equal(softmax(scores[pixel : pixel + 1])[0], found[pixel])
    assert torch.isfinite(softmax(torch.tensor([[1e30, -1e30]]))).all()


class TestFolds:
    def test_units_stay_together_and_classes_are_spread(self) -> None:
        units = np.arange(24).repeat(5)
        targets = units % 4
        fold_of, folds = unit_folds(targets, units)
        assert folds == 3
        for unit in range(24):
            assert len(set(fold_of[units == unit])) == 1
        for fold in range(3):
            assert set(targets[fold_of == fold]) == {0, 1, 2, 3}
        np.testing.assert_array_equal(unit_folds(targets, units)[0], fold_of)

    def test_every_fold_has_two_units(self) -> None:
        targets = np.zeros(60, dtype=np.int64)
        assert [unit_folds(targets, np.arange(60) % n)[1] for n in (1, 3, 4, 5, 6, 60)] == [0, 1, 2, 2, 3, 3]
        assert unit_folds(targets, None)[1] == 3
