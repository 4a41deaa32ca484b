"""The network's counts are the paper's; its limits say what they are."""

from __future__ import annotations

import pytest
import torch

from hypercaps.errors import ModelError
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.models.registry import count_parameters, get_method


@pytest.mark.parametrize(
    ("bands", "classes", "parameters"),
    [(220, 16, 409_168), (103, 9, 99_920), (224, 16, 417_360), (200, 16, 368_208)],
)
def test_parameter_counts_are_the_papers(bands: int, classes: int, parameters: int) -> None:
    assert count_parameters(ConvCapsNet(bands, classes)) == parameters


def test_layer_sizes_are_those_of_the_structure_table() -> None:
    network = ConvCapsNet(200, 16)
    patches = torch.zeros(2, 7, 7, 200)
    features = network.spatial(patches)
    primary = network.primary(features)
    children = network.conv(primary)
    assert features.shape == (2, 16, 200)  # C x 16
    assert primary.shape == (2, 2, 8, 96)  # c2 x 2 x 8
    assert children.shape == (2, 44, 4, 8)  # c3 x 4 x 8
    assert network.capsules(patches).shape == (2, 16, 16)  # n x 16
    assert network(patches).shape == (2, 16)
    assert network.classcaps.routings == 3


def test_every_size_is_a_parameter() -> None:
    network = ConvCapsNet(
        30, 3, patch=5, spatial_filters=6, primary_arrays=3, primary_size=2, primary_window=5, primary_stride=1,
        conv_arrays=2, conv_size=7, conv_window=4, conv_stride=3, class_size=9, routings=2,
    )  # fmt: skip
    assert network.spatial(torch.zeros(1, 5, 5, 30)).shape == (1, 6, 30)
    assert network.capsules(torch.zeros(1, 5, 5, 30)).shape == (1, 3, 9)
    c2 = 30 - 5 + 1
    c3 = (c2 - 4) // 3 + 1
    counted = (25 * 6 + 6) + (5 * 6 * 6 + 6) + (2 * 7 * 4 * 3 * 2 + 2 * 7) + 2 * c3 * 3 * 9 * 7
    assert count_parameters(network) == counted


@pytest.mark.parametrize("bands", [*range(1, 27)])
def test_windows_are_shorter_for_few_bands(bands: int) -> None:
    network = ConvCapsNet(bands, 4, patch=3).eval()
    patches = torch.randn(5, 3, 3, bands, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(network(patches), network.by_layers(patches), rtol=1e-4, atol=1e-5)
    view, step = network.view
    assert view <= bands and (view, step) == ((25, 4) if bands >= 25 else (2 * min(3, (bands + 1) // 2) - 1, 1))


def test_windows_that_are_too_long_say_the_smallest_number_of_bands() -> None:
    sizes = {"primary_window": 4, "primary_stride": 2, "conv_window": 3, "conv_stride": 2}
    with pytest.raises(ModelError, match=r"7 bands are too few for windows of 4 and 3: at least 8 are needed.* or lda"):
        ConvCapsNet(7, 4, **sizes)
    assert ConvCapsNet(8, 4, **sizes)(torch.zeros(1, 7, 7, 8)).shape == (1, 4)


@pytest.mark.parametrize("wrong", [{"patch": 6}, {"patch": 0}, {"routings": 0}, {"conv_stride": 0}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        ConvCapsNet(200, 16, **wrong)


def test_weights_follow_the_seed_and_torchs_own_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    method = get_method("convcapsnet")
    first, again, other = (method.network(30, 3, patch=7, seed=seed) for seed in (5, 5, 6))
    for key, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[key])
    assert not torch.equal(first.classcaps.viewpoints, other.classcaps.viewpoints)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ModelError, match="did you mean convcapsnet"):
        get_method("convcapsnett")
    with pytest.raises(ModelError, match="it has best, paper"):
        get_method("convcapsnet").recipe("papr")
    with pytest.raises(ModelError, match="routing"):
        get_method("convcapsnet").network(30, 3, patch=7, structure={"routing": 4})


def test_the_papers_recipe() -> None:
    recipe = get_method("convcapsnet").recipe("paper")
    assert (recipe.epochs, recipe.learning_rate) == (50, 0.01)
    assert [recipe.batch_size(n) for n in (10_249, 19_999, 20_000, 54_129)] == [64, 64, 256, 256]
