"""A cache of a scene: later trainings read nothing again, and give the same bits as without it."""

from __future__ import annotations

import numpy as np
import pytest

from hypercaps import ConvCapsClassifier, HypercapsError, Labels, Scene, SceneCache
from hypercaps.inference.model_file import _arrays
from hypercaps.training import preprocessing, scene_cache
from hypercaps.training.label_propagation import PixelGraph
from hypercaps.training.patches import PatchStore

QUICK = {"epochs": 2, "batch_size": 16, "split_by": "none"}


def some_labels(labels: Labels, seed: int) -> Labels:
    """Half of the labelled pixels."""
    pixels = np.flatnonzero(labels.array)
    return labels.only_pixels(np.random.default_rng(seed).permutation(pixels)[: pixels.size // 2])


def same_bits(one: ConvCapsClassifier, other: ConvCapsClassifier) -> bool:
    ours, theirs = _arrays(one.model_), _arrays(other.model_)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("recipe", ["best", "guided", "paper"])
def test_trainings_with_a_cache_have_the_same_bits(made: tuple[Scene, Labels], recipe: str) -> None:
    scene, labels = made
    cache = SceneCache(scene)
    for seed in (1, 2):  # the second time everything is there
        few = some_labels(labels, seed)
        kept, alone = (ConvCapsClassifier(recipe=recipe, **QUICK).fit(scene, few, cache=one) for one in (cache, None))
        assert same_bits(kept, alone)


def test_several_methods_share_a_cache(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    cache = SceneCache(scene)
    for chosen in ({"method": "lda"}, {"method": "convcapsnet", "recipe": "best"}, {"method": "lda", "patch": 3}):
        settings = {"epochs": 2, "batch_size": 16} if "recipe" in chosen else {}
        kept, alone = (ConvCapsClassifier(**chosen, **settings).fit(scene, labels, cache=one) for one in (cache, None))
        assert same_bits(kept, alone) and kept.scores_.oa == alone.scores_.oa


def test_folds_share_a_cache(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    cache = SceneCache(scene)
    kept, alone = (
        ConvCapsClassifier(method="lda", split_by="folds", folds=2).fit(scene, labels, cache=one)
        for one in (cache, None)
    )
    assert same_bits(kept, alone)


def test_statistics_spectra_and_graph_are_computed_once(
    made: tuple[Scene, Labels], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, labels = made
    cache = SceneCache(scene)
    ConvCapsClassifier(**QUICK).fit(scene, some_labels(labels, 1), cache=cache)

    def fail(*_: object) -> None:
        raise AssertionError("computed again")

    for module, name in (
        (preprocessing, "_moments"),
        (scene_cache, "sample_statistics"),
        (scene_cache, "edge_features"),
        (PixelGraph, "of"),
        (PatchStore, "mean_spectra"),
    ):
        monkeypatch.setattr(module, name, fail)
    store = PatchStore.__init__
    spectra: list[int] = []

    def noting(self: PatchStore, *arguments: object) -> None:
        store(self, *arguments)
        spectra.append(self.spectra.data_ptr())

    monkeypatch.setattr(PatchStore, "__init__", noting)
    ConvCapsClassifier(**QUICK).fit(scene, some_labels(labels, 2), cache=cache)
    assert spectra[0] == next(iter(cache._spectra.values())).spectra.ctypes.data


def test_the_cache_of_another_scene_is_refused(made: tuple[Scene, Labels]) -> None:
    scene, labels = made
    other = Scene.from_array(scene.read().values)
    with pytest.raises(HypercapsError, match=r"another scene.*SceneCache\(scene\)"):
        ConvCapsClassifier(**QUICK).fit(scene, labels, cache=SceneCache(other))
