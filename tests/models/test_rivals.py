"""The methods that the paper compares with: their sizes, and what makes each of them what it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.svm import SVC
from torch import nn

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.errors import ModelError
from hypercaps.models.c_cnn import ConvCNN
from hypercaps.models.capsnet import CapsNet
from hypercaps.models.cnn3d import CNN3D
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.mlp import MLP
from hypercaps.models.protocols import Samples
from hypercaps.models.registry import METHODS, count_parameters, get_method
from hypercaps.models.se_cnn2d import SemiCNN
from hypercaps.models.svm import RBFSVM, WindowSVM
from hypercaps.training.patches import PatchStore, draw_valid_pixels
from support.scenes import make_cube

OTHERS = ("rbf-svm-window", "lda", "logistic", "random-forest")  # which are not in the paper


class TestRecipes:
    """What the paper and its sources fix."""

    @pytest.mark.parametrize(
        ("name", "epochs", "optimizer", "learning_rate", "patch"),
        [
            ("mlp", 500, "Adam", 0.01, 1),
            ("se-2d-cnn", 40, "SGD", 0.001, 9),
            ("3d-cnn", 400, "SGD", 0.003, 27),
            ("c-cnn", 500, "Adam", 0.01, 7),
            ("capsnet", 50, "Adam", 0.01, 7),
        ],
    )
    def test_paper(self, name: str, epochs: int, optimizer: str, learning_rate: float, patch: int) -> None:
        method = get_method(name)
        recipe = method.recipe("paper")
        assert (recipe.epochs, recipe.optimizer, recipe.learning_rate) == (epochs, optimizer, learning_rate)
        assert method.patch == patch

    def test_the_best_recipe_is_the_default(self) -> None:
        for method in METHODS.values():
            order = [name for name in ("best", "tuned", "paper") if name in method.recipes]
            assert method.recipe().name == order[0] and set(order) == set(method.recipes) - {"augmented", "guided"}
            assert "paper" in method.recipes or method.name in OTHERS


class TestMLP:
    def test_layer_sizes(self) -> None:
        network = get_method("mlp").blueprint(200, 16)
        layers = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
        assert layers == [(200, 2048), (2048, 4096), (4096, 2048), (2048, 2048), (2048, 16)]
        assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.5] * 4

    def test_it_uses_single_pixels(self) -> None:
        with pytest.raises(ModelError, match="mlp looks at single pixels and patch is 3"):
            MLP(26, 3, patch=3, hidden=[4])

    def test_a_dropout_of_zero_is_allowed(self) -> None:
        MLP(26, 3, hidden=[4], dropout=0)
        for wrong in (1, -0.1, "half"):
            with pytest.raises(ModelError, match="dropout is"):
                MLP(26, 3, hidden=[4], dropout=wrong)
        with pytest.raises(ModelError, match=r"hidden is \[4, 0\]"):
            MLP(26, 3, hidden=[4, 0])


class TestCapsNet:
    @pytest.mark.parametrize(
        ("bands", "classes", "parameters"), [(220, 16, 7_387_904), (103, 9, 2_325_248), (224, 16, 7_518_976)]
    )
    def test_parameter_counts_are_the_papers(self, bands: int, classes: int, parameters: int) -> None:
        assert count_parameters(get_method("capsnet").blueprint(bands, classes)) == parameters

    def test_primary_capsules_are_groups_of_neighbouring_channels(self) -> None:
        network = CapsNet(26, 3, filters=4, primary_arrays=2, primary_size=3)
        patches = torch.randn(2, 7, 7, 26)
        channels = network.primary(network.conv(patches.flatten(1, 2)).relu())  # (2, 2*3, 5)
        capsule = channels[1, 3:6, 4]  # of array 1 at position 4
        expected = capsule * capsule.norm() / (1 + capsule.norm() ** 2)  # Eq. 8
        torch.testing.assert_close(network.lower_capsules(patches)[1, 4, 1], expected)

    def test_too_few_bands_say_the_smallest_that_works(self) -> None:
        with pytest.raises(ModelError, match="at least 17 are needed"):
            CapsNet(16, 3, filters=4, primary_arrays=2)
        assert CapsNet(17, 3, filters=4, primary_arrays=2)(torch.zeros(1, 7, 7, 17)).shape == (1, 3)


class TestCCNN:
    def test_layers_have_the_shapes_of_1d_convcapsnet_and_no_routing(self) -> None:
        scalar, capsules = ConvCNN(200, 16), ConvCapsNet(200, 16)
        patches = torch.randn(2, 7, 7, 200)
        features = scalar.spatial(patches)
        assert features.shape == capsules.spatial(patches).shape
        assert scalar.primary(features).shape == capsules.primary(features).flatten(1, 2).shape  # (2, 16, 96)
        children = capsules.conv(capsules.primary(features)).flatten(2)  # (2, c3, 32)
        assert scalar.features(patches).shape == children.transpose(1, 2).shape
        assert scalar.classneurons.out_features == 16 * 16  # n x 16
        assert scalar.classneurons.weight.numel() == capsules.classcaps.viewpoints.numel()
        assert not any("Caps" in type(module).__name__ for module in scalar.modules())


class TestCNN3D:
    def test_output_sizes(self) -> None:
        network = CNN3D(100, 9, filters=2)  # the sides don't depend on the number of filters
        shapes = [tuple(maps.shape[1:]) for maps in network.maps(torch.zeros(1, 27, 27, 100))]
        assert shapes == [(69, 2, 12, 12), (38, 2, 4, 4), (7, 2, 1, 1)]  # bands left, filters, side, side

    def test_parameter_count(self) -> None:
        assert count_parameters(get_method("3d-cnn").blueprint(200, 16)) == 1_119_856
        assert [conv.out_channels for conv in get_method("3d-cnn").blueprint(200, 16).convs] == [32, 32, 32]

    def test_sizes_out_of_range_are_refused_with_the_limits(self) -> None:
        with pytest.raises(ModelError, match="at least 94 are needed"):
            CNN3D(93, 9)
        with pytest.raises(ModelError, match="takes patches of 25 or 27, and patch is 29"):
            CNN3D(94, 9, patch=29)

    def test_layers_are_torchs_convolutions(self) -> None:
        generator = torch.Generator().manual_seed(0)
        network = CNN3D(40, 4, patch=25, filters=3, window=9, weight_std=None, generator=generator).eval().double()
        patches = torch.randn(2, 25, 25, 40, requires_grad=True, dtype=torch.float64, generator=generator)
        maps = patches.permute(0, 3, 1, 2).unsqueeze(1)  # (B, 1, C, D, D), as torch wants them
        for i, (conv, found) in enumerate(zip(network.convs, network.maps(patches), strict=True)):
            maps = conv(maps).relu()
            maps = nn.functional.max_pool3d(maps, (1, 2, 2)) if i < 2 else maps
            torch.testing.assert_close(found.transpose(1, 2), maps, rtol=1e-4, atol=1e-5)
        ours = torch.autograd.grad(network(patches).square().sum(), patches)[0]
        theirs = torch.autograd.grad(network.output(maps.flatten(1)).square().sum(), patches)[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("patch", [25, 27])
    @pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 2), (7, 11), (16, 3)])
    def test_a_window_at_once_is_the_same_as_patch_by_patch(self, patch: int, shape: tuple[int, int]) -> None:
        network = CNN3D(14, 4, patch=patch, filters=3, window=5, weight_std=None).eval()
        height, width = shape
        window = torch.randn(height + patch - 1, width + patch - 1, 14)
        patches = window.unfold(0, patch, 1).unfold(1, patch, 1).permute(0, 1, 3, 4, 2).flatten(0, 1)
        with torch.inference_mode():
            expected = network(patches).view(height, width, 4)
            torch.testing.assert_close(network.over_window(window), expected, rtol=1e-4, atol=1e-5)
            rows, cols = torch.tensor([0, height - 1, height // 2]), torch.tensor([width - 1, width // 3, 0])
            chosen = network.at_pixels(window, rows, cols)
            torch.testing.assert_close(chosen, expected[rows, cols], rtol=1e-4, atol=1e-5)

    def test_a_window_at_once_has_the_gradients_of_its_patches(self) -> None:
        network = CNN3D(14, 4, filters=3, window=5, weight_std=None, dropout=0)
        window = torch.randn(6 + 26, 5 + 26, 14)
        rows, cols = torch.tensor([0, 5, 3, 3]), torch.tensor([4, 0, 2, 3])
        patches = torch.stack([window[r : r + 27, c : c + 27] for r, c in zip(rows, cols, strict=True)])
        targets = torch.tensor([0, 3, 1, 1])
        together, one_by_one = (
            torch.autograd.grad(nn.functional.cross_entropy(logits, targets), list(network.parameters()))
            for logits in (network.at_pixels(window, rows, cols), network(patches))
        )
        for ours, theirs in zip(together, one_by_one, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * float(theirs.abs().max()))


class TestSemiCNN:
    def test_sizes(self) -> None:
        network = SemiCNN(200, 16)
        coded = network.encode(torch.zeros(2, 9, 9, 200))
        assert coded.convolved.shape == (2, 80, 7, 7) and coded.pooled.shape == (2, 80, 3, 3)
        assert coded.logits.shape == (2, 16)
        assert network.decode(coded).shape == (2, 200)

    def test_skip_connections_reach_the_decoder(self) -> None:
        network = SemiCNN(26, 3).eval()
        coded = network.encode(torch.randn(2, 9, 9, 26))
        for part in ("convolved", "pooled"):
            without = coded._replace(**{part: torch.zeros_like(getattr(coded, part))})
            assert not torch.allclose(network.decode(without), network.decode(coded))

    def test_unlabelled_pixels_improve_the_reconstruction(self) -> None:
        """Rebuilding pixels that never had a label gets better, and without them in training less so."""
        cube, labels = make_cube()
        # A strip of ground that no label lies on, with a spectrum of its own.
        cube[:, 30:] += 60 * np.cos(np.linspace(0, 25, 26))
        labels[:, 26:] = 0
        scene, truth = Scene.from_array(cube), Labels.from_array(labels)
        strange = np.flatnonzero((np.arange(36 * 36) % 36) >= 30)

        def reconstruction_error(network: nn.Module, preprocessing: object) -> float:
            patches = PatchStore(scene, preprocessing, strange, 9).gather(torch.arange(strange.size))
            with torch.inference_mode():
                return float(network.eval().reconstruction_error(patches))

        trained = ConvCapsClassifier(method="se-2d-cnn", train=0.4, epochs=6, batch_size=16).fit(scene, truth).model_
        fresh = get_method("se-2d-cnn").network(26, 3)
        after = reconstruction_error(trained.network, trained.preprocessing)
        assert after < 0.5 * reconstruction_error(fresh, trained.preprocessing)
        with pytest.MonkeyPatch.context() as patch:
            nothing = np.empty(0, dtype=np.int64)
            patch.setattr("hypercaps.training.job.draw_valid_pixels", lambda *args, **options: nothing)
            alone = ConvCapsClassifier(method="se-2d-cnn", train=0.4, epochs=6, batch_size=16).fit(scene, truth).model_
        assert after < 0.8 * reconstruction_error(alone.network, alone.preprocessing)


def test_unlabelled_pixels_are_valid_and_not_among_the_labelled_ones() -> None:
    cube, _ = make_cube()
    cube[3, 4] = np.nan
    scene = Scene.from_array(cube)
    without = np.array([0, 7, 500])
    every = draw_valid_pixels(scene, without=without, most=10_000, seed=0)
    assert every.size == 36 * 36 - 4 and not np.isin([*without, 3 * 36 + 4], every).any()
    some = draw_valid_pixels(scene, without=without, most=100, seed=0)
    assert some.size == 100 == np.unique(some).size and np.isin(some, every).all()
    assert not np.array_equal(some, draw_valid_pixels(scene, without=without, most=100, seed=1))


class TestSVM:
    def data(self, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng(classes)
        targets = rng.integers(0, classes, 150)
        targets[:classes] = np.arange(classes)
        spectra = rng.standard_normal((classes, 9))[targets] + 0.8 * rng.standard_normal((150, 9))
        return torch.from_numpy(spectra).float().view(-1, 1, 1, 9), torch.from_numpy(targets)

    @pytest.mark.parametrize("classes", [2, 3, 7])
    def test_it_decides_as_scikit_learn_does(self, classes: int) -> None:
        patches, targets = self.data(classes)
        machine = RBFSVM(9, classes, gamma=0.05)
        machine.solve(Samples(machine.features(patches), targets))
        unseen = torch.randn(400, 1, 1, 9, generator=torch.Generator().manual_seed(1))
        theirs = SVC(C=100, gamma=0.05, break_ties=classes > 2).fit(patches.flatten(1).numpy(), targets.numpy())
        scores = machine(unseen)
        np.testing.assert_array_equal(scores.argmax(dim=1).numpy(), theirs.predict(unseen.flatten(1).numpy()))
        assert scores.min() >= 0 and scores.max() <= 1
        assert machine.found == {"support": len(theirs.support_)}

    def test_the_papers_settings(self) -> None:
        machine = get_method("rbf-svm").network(9, 3)
        assert (machine.gamma, machine.cost) == (0.005, 100)

    def test_on_windows_it_decides_as_scikit_learn_does_on_their_means(self) -> None:
        spectra, targets = self.data(3)
        patches = spectra + torch.randn(150, 5, 5, 9, generator=torch.Generator().manual_seed(2))
        machine = WindowSVM(9, 3, patch=5, gamma=0.05, cost=10.0)
        machine.solve(Samples(machine.features(patches), targets))
        means = patches.double().numpy().mean(axis=(1, 2))
        theirs = SVC(C=10, gamma=0.05, break_ties=True).fit(means, targets.numpy())
        np.testing.assert_array_equal(machine(patches).argmax(dim=1).numpy(), theirs.predict(means))

    def test_on_windows_its_settings_are_the_best_by_validation_and_are_kept(self) -> None:
        spectra, targets = self.data(3)
        noise = torch.randn(150, 9, generator=torch.Generator().manual_seed(4))
        spectra = spectra + 2 * noise.view(-1, 1, 1, 9)  # so hard that settings matter
        means = spectra.flatten(1).double()
        train, val = slice(0, 100), slice(100, 150)
        machine = WindowSVM(9, 3, patch=3)
        machine.solve(Samples(means[train], targets[train]), Samples(means[val], targets[val]))
        shares = {}
        for gamma, cost in WindowSVM.CHOICES:
            theirs = SVC(C=cost, gamma=gamma, break_ties=True).fit(means[train].numpy(), targets[train].numpy())
            shares[gamma, cost] = theirs.score(means[val].numpy(), targets[val].numpy())
        assert len(set(shares.values())) > 1 and shares[machine.gamma, machine.cost] == max(shares.values())
        assert machine.found["gamma"] == machine.gamma and machine.found["cost"] == machine.cost
        again = WindowSVM(9, 3, patch=3, **machine.found)
        again.load_state_dict(machine.state_dict())
        patches = spectra.expand(150, 3, 3, 9)
        assert torch.equal(again(patches), machine(patches))
        assert (machine(patches).argmax(1) == targets)[val].double().mean().item() == max(shares.values())

    def test_without_validation_pixels_the_first_settings_are_taken(self) -> None:
        spectra, targets = self.data(3)
        machine = WindowSVM(9, 3)
        machine.solve(Samples(spectra.flatten(1).double(), targets))
        assert (machine.gamma, machine.cost) == WindowSVM.CHOICES[0]

    def test_epochs_are_refused(self, made: tuple[Scene, Labels]) -> None:
        for name in ("epochs", "batch_size"):
            with pytest.raises(ModelError, match=f"rbf-svm is solved at once: it has no {name.replace('_', ' ')}"):
                ConvCapsClassifier(method="rbf-svm", **{name: 3}).fit(*made)
