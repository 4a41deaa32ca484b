from __future__ import annotations

import numpy as np
import pytest
import torch

from hypercaps.data.labels import Legend
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import TILE
from hypercaps.errors import DataWarning, ModelFileError, SceneError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import map_scene, map_scores
from hypercaps.models.registry import get_method
from hypercaps.training.patches import PatchStore
from hypercaps.training.preprocessing import PCAWhitening
from support.scenes import make_cube


def untrained(scene: Scene, patch: int | None = None, method: str = "convcapsnet") -> TrainedModel:
    """A model with random weights: its maps are as good a test of mapping as any."""
    patch = patch or get_method(method).patch
    structure = {"window": 4, "filters": 2} if method == "3d-cnn" else {}  # its own are for more bands, and slow
    network = get_method(method).network(scene.bands, 3, patch=patch, seed=0, structure=structure).eval()
    return TrainedModel(
        method=method,
        patch=patch,
        structure=structure,
        network=network,
        preprocessing=PCAWhitening.fit(scene),
        legend=Legend.of([2, 5, 7]),
    )


@pytest.fixture
def scene() -> Scene:
    return Scene.from_array(make_cube(rows=45, cols=39, bands=26)[0])


def test_maps_are_the_same_to_the_bit_whatever_the_window(scene: Scene) -> None:
    model = untrained(scene)
    whole = map_scene(model, scene, window=10_000)
    for window in (1, TILE, 20, 33, 40):
        part = map_scene(model, scene, window=window)
        np.testing.assert_array_equal(part.classes, whole.classes)
        np.testing.assert_array_equal(part.confidence, whole.confidence)


@pytest.mark.parametrize("patch", [1, 5, 7])
def test_a_map_is_what_the_network_says_of_each_patch(scene: Scene, patch: int) -> None:
    model = untrained(scene, patch)
    store = PatchStore(scene, model.preprocessing, np.arange(45 * 39), patch)
    with torch.inference_mode():
        expected = torch.cat([model.network(store.gather(torch.arange(i, i + 39))) for i in range(0, 45 * 39, 39)])
    scores = map_scores(model, scene)
    np.testing.assert_allclose(scores.reshape(-1, 3), expected.numpy(), rtol=1e-4, atol=1e-7)
    found = map_scene(model, scene)
    assert set(np.unique(found.classes)) <= {2, 5, 7}
    np.testing.assert_array_equal(found.classes, np.array([2, 5, 7])[scores.argmax(axis=2)])
    np.testing.assert_array_equal(found.confidence, scores.max(axis=2))


def test_chosen_pixels_get_the_same_answer_as_in_the_whole_map(scene: Scene) -> None:
    model = untrained(scene)
    whole = map_scene(model, scene)
    only = np.zeros((45, 39), bool)
    only[[0, 17, 44], [0, 20, 38]] = True
    part = map_scene(model, scene, only=only)
    np.testing.assert_array_equal(part.classes[only], whole.classes[only])
    np.testing.assert_array_equal(part.confidence[only], whole.confidence[only])
    assert (part.classes[~only] == 0).all() and np.isnan(part.confidence[~only]).all()
    with pytest.raises(SceneError, match="mask has shape"):
        map_scene(model, scene, only=only[:-1])


def test_invalid_pixels_get_no_class_and_are_counted(scene: Scene) -> None:
    model = untrained(scene)
    cube = scene.read().values.copy()
    cube[3, 4:6, 7] = np.nan
    with pytest.warns(DataWarning, match="2 of 1755 pixels"):
        found = map_scene(model, Scene.from_array(cube))
    assert (found.classes[3, 4:6] == 0).all() and np.isnan(found.confidence[3, 4:6]).all()
    assert (found.classes > 0).sum() == 45 * 39 - 2


def test_a_scene_with_nothing_valid_is_refused(scene: Scene) -> None:
    with pytest.raises(SceneError, match="no valid pixel"):
        map_scene(untrained(scene), Scene.from_array(np.full((5, 5, 26), np.inf)))


def test_other_bands_are_refused(scene: Scene) -> None:
    with pytest.raises(ModelFileError, match=r"trained on 26 bands .* has 27"):
        map_scene(untrained(scene), Scene.from_array(np.zeros((5, 5, 27))))


def test_windows_are_read_with_their_halo_only(scene: Scene) -> None:
    """A scene costs what a window costs: no read is larger than the window and its halo."""
    model = untrained(scene)
    sizes = []
    cube = scene.read().values

    class Watched:
        shape, dtype, ndim = cube.shape, cube.dtype, 3

        def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
            sizes.append((key[0].stop - key[0].start, key[1].stop - key[1].start))
            return cube[key]

    steps: list[tuple[int, int]] = []
    map_scene(model, Scene.from_array(Watched()), window=16, on_progress=lambda *at: steps.append(at))
    assert max(max(size) for size in sizes) == 16 + 3  # the halo before it was read with the window before
    assert steps[-1] == (45 * 39, 45 * 39) and len(steps) == 9


def test_scenes_smaller_than_a_patch_have_maps_too(scene: Scene) -> None:
    small = Scene.from_array(make_cube(rows=2, cols=3, bands=26)[0])
    assert (map_scene(untrained(scene), small).classes > 0).all()


@pytest.mark.parametrize("method", ["convcapsnet", "se-2d-cnn", "3d-cnn"])  # places, patches, whole tiles
def test_nodata_around_a_scene_changes_nothing(method: str) -> None:
    """A patch that touches nodata is filled by mirrored neighbours, as at the scene's border."""
    bare = make_cube(rows=20, cols=24, bands=26)[0]
    framed = np.full((20 + 32, 24 + 32, 26), np.nan, dtype=np.float32)
    framed[16:36, 16:40] = bare
    scene = Scene.from_array(bare)
    model = untrained(scene, method=method)
    alone = map_scores(model, scene)
    with pytest.warns(DataWarning, match="get no class"):
        within = map_scores(model, Scene.from_array(framed))
    assert np.isnan(within).sum() == 3 * (framed.shape[0] * framed.shape[1] - 20 * 24)
    if method == "convcapsnet":
        np.testing.assert_array_equal(within[16:36, 16:40], alone)
    else:  # torch's sums differ in the last digit with the tile's size
        np.testing.assert_allclose(within[16:36, 16:40], alone, rtol=2e-4, atol=2e-6)


def test_holes_of_nodata_are_the_same_to_the_bit_whatever_the_window() -> None:
    values = make_cube(rows=45, cols=39, bands=26)[0]
    values[np.random.default_rng(0).random((45, 39)) < 0.2] = np.nan
    scene = Scene.from_array(values)
    with pytest.warns(DataWarning, match="get no class"):
        model = untrained(scene)
    with pytest.warns(DataWarning):
        whole = map_scene(model, scene, window=10_000)
    for window in (TILE, 20):
        with pytest.warns(DataWarning):
            part = map_scene(model, scene, window=window)
        np.testing.assert_array_equal(part.confidence, whole.confidence)


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")
@pytest.mark.parametrize("rows", [29, 33])  # the last strip of a tile has one row
def test_mirroring_at_nodata_does_not_change_neighbouring_patches(rows: int) -> None:
    cube = make_cube(rows=rows, cols=24, bands=26)[0]
    cube[np.random.default_rng(1).random((rows, 24)) < 0.1] = np.nan
    scene = Scene.from_array(cube)
    model = untrained(scene, 7, "se-2d-cnn")
    store = PatchStore(scene, model.preprocessing, np.arange(rows * 24), 7)
    with torch.inference_mode():
        expected = model.confidences(model.network(store.gather(torch.arange(rows * 24)))).numpy()
    valid = scene.read().valid.ravel()
    found = map_scores(model, scene).reshape(-1, 3)
    np.testing.assert_allclose(found[valid], expected[valid], rtol=1e-3, atol=1e-5)
