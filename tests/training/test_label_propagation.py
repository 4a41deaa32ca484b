from __future__ import annotations

import platform

import numpy as np
import pytest

from hypercaps.compute import native
from hypercaps.compute.devices import threads_in_use, use_threads
from hypercaps.data.scene import Scene
from hypercaps.training import label_propagation
from hypercaps.training.preprocessing import PCAWhitening
from support.scenes import make_cube


def fields(rows: int = 12, cols: int = 15) -> tuple[np.ndarray, np.ndarray]:
    """Three upright fields, and a guide (N, 3) that is nearly constant within each."""
    rng = np.random.default_rng(0)
    field = (np.arange(cols) * 3 // cols)[None].repeat(rows, axis=0).ravel()
    return field, np.eye(3)[field] * 10 + 0.1 * rng.standard_normal((rows * cols, 3))


def dense(laplacian: np.ndarray, scores: np.ndarray, seeds: np.ndarray, classes: np.ndarray) -> np.ndarray:
    said = scores**2 / (scores**2).sum(axis=1, keepdims=True)
    top = np.sort(said, axis=1)
    hold = 0.03 * (top[:, -1] - top[:, -2] + 1e-6)
    said[seeds] = np.eye(said.shape[1])[classes]
    hold[seeds] = 10
    return np.linalg.solve(laplacian + np.diag(hold), hold[:, None] * said)


def test_a_label_fills_its_field_and_stops_at_the_edge() -> None:
    field, guide = fields()
    laplacian = label_propagation.pixel_graph_laplacian(np.arange(180), 15, guide)
    scores = np.full((180, 3), 0.3)  # the network knows nothing
    seeds = np.array([0, 7, 14])  # one label in each field
    found = label_propagation.pseudo_labels(label_propagation.propagate(scores, laplacian, seeds, field[seeds]))
    np.testing.assert_array_equal(found.classes, field)
    assert (found.margin > 0.9).all()


def test_labels_correct_a_field_that_the_network_gets_half_wrong() -> None:
    field, guide = fields()
    wrong = field.copy()
    wrong[(field == 1) & (np.arange(180) // 15 > 5)] = 2
    scores = 0.1 + 0.8 * np.eye(3)[wrong]
    laplacian = label_propagation.pixel_graph_laplacian(np.arange(180), 15, guide)
    seeds = np.flatnonzero(field == 1)[:4]
    found = label_propagation.pseudo_labels(label_propagation.propagate(scores, laplacian, seeds, field[seeds]))
    np.testing.assert_array_equal(found.classes, field)
    without = label_propagation.pseudo_labels(label_propagation.propagate(scores, laplacian, seeds[:0], seeds[:0]))
    assert (without.classes != field).any()


@pytest.mark.parametrize("classes", [2, 3, 20])
def test_it_is_the_exact_solution(classes: int) -> None:
    rng = np.random.default_rng(classes)
    _, guide = fields()
    laplacian = label_propagation.pixel_graph_laplacian(np.arange(180), 15, guide + rng.standard_normal((180, 3)))
    scores = rng.random((180, classes))
    seeds = rng.choice(180, 9, replace=False)
    labels = rng.integers(classes, size=9)
    found = label_propagation.propagate(scores, laplacian, seeds, labels)
    np.testing.assert_allclose(found, dense(laplacian.toarray(), scores, seeds, labels), atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-4)
    np.testing.assert_array_equal(label_propagation.propagate(scores, laplacian, seeds, labels), found)  # the same bits


@pytest.mark.skipif(not native.available(), reason="no compiled kernels")
@pytest.mark.parametrize(("classes", "threads"), [(3, 1), (9, 1), (20, 1), (20, 2), (20, 3)])
def test_the_kernel_solves_as_numpy_does(classes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, pixels = np.random.default_rng(classes), np.arange(40 * 30)
    laplacian = label_propagation.pixel_graph_laplacian(pixels, 30, rng.standard_normal((pixels.size, 3)))
    scores, seeds = rng.random((pixels.size, classes)), rng.permutation(pixels)[:25]
    task = scores, laplacian, seeds, np.arange(25) % classes
    before = threads_in_use()
    use_threads(threads)
    by_kernel = label_propagation.propagate(*task)
    use_threads(before)
    monkeypatch.setenv("HYPERCAPS_NATIVE", "off")
    by_numpy = label_propagation.propagate(*task)
    np.testing.assert_allclose(by_kernel, by_numpy, rtol=1e-9, atol=1e-12)
    if platform.machine() in ("x86_64", "AMD64"):  # elsewhere numpy may round once where the kernel does twice
        np.testing.assert_array_equal(by_kernel, by_numpy)


def test_only_existing_neighbours_are_connected_in_any_order_of_pixels() -> None:
    rng = np.random.default_rng(1)
    present = rng.permutation(np.setdiff1d(np.arange(180), [16, 17, 31, 100]))  # nodata pixels are not given
    guide = rng.standard_normal((180, 3))
    laplacian = label_propagation.pixel_graph_laplacian(present, 15, guide[present]).toarray()
    r, c = np.divmod(present, 15)
    near = np.maximum(np.abs(r[:, None] - r), np.abs(c[:, None] - c)) == 1
    np.testing.assert_array_equal(laplacian < 0, near)
    np.testing.assert_allclose(laplacian.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_array_equal(laplacian, laplacian.T)


def test_a_pixel_without_neighbours_keeps_the_networks_class() -> None:
    laplacian = label_propagation.pixel_graph_laplacian(np.array([0, 50, 99]), 10, np.zeros((3, 3)))
    scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.0, 0.0]])
    found = label_propagation.propagate(scores, laplacian, np.array([0]), np.array([1]))
    np.testing.assert_array_equal(found.argmax(axis=1)[:2], [1, 1])
    assert np.isfinite(found).all() and found[2] == pytest.approx([0.5, 0.5])


def test_edge_features_are_the_leading_components_of_standardised_bands() -> None:
    cube, _ = make_cube()
    cube[:, :, 4] *= 50  # a loud band must not lead
    cube[:, :, 7] = 3.0  # and a dead one must not harm
    whitening = PCAWhitening.fit(Scene.from_array(cube)).centred()
    flat = cube.reshape(-1, 26).astype(np.float64)
    found = label_propagation.edge_features(whitening, whitening.transform(cube).reshape(-1, 26))
    alive = np.delete(flat, 7, axis=1)
    standard = (alive - alive.mean(axis=0)) / alive.std(axis=0, ddof=1)
    _, vectors = np.linalg.eigh(np.cov(standard.T))
    expected = standard @ vectors[:, -3:]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=2e-3)


class TestRegion:
    def test_a_small_scene_is_used_as_a_whole(self) -> None:
        assert label_propagation.region_near_labels((20, 30), np.array([5]), max_pixels=600).all()

    def test_in_a_large_scene_the_tiles_nearest_to_the_labels_are_used(self) -> None:
        at = 150 * 400 + 150
        chosen = label_propagation.region_near_labels((300, 400), np.array([at, at + 1, 10]), max_pixels=32 * 32 * 13)
        assert chosen.shape == (300, 400) and chosen.sum() <= 32 * 32 * 13
        assert chosen.ravel()[[at, 10]].all() and chosen[150 - 32 : 150 + 33, 150 - 32 : 150 + 33].mean() > 0.8
        assert not chosen[250:, 300:].any()

    def test_labels_in_too_many_tiles_are_bounded_too(self) -> None:
        chosen = label_propagation.region_near_labels((300, 400), np.arange(0, 120_000, 7), max_pixels=5000)
        assert 0 < chosen.sum() <= 5000


def test_pixels_are_drawn_by_margin_without_repeats() -> None:
    margin = np.array([0.0] * 50 + [0.1] * 50 + [0.9] * 50)
    counts = np.zeros(150, dtype=int)
    for seed in range(200):
        drawn = label_propagation.draw(margin, 30, np.random.default_rng(seed))
        assert len(set(drawn.tolist())) == 30
        counts[drawn] += 1
    never, seldom, often = counts.reshape(3, 50).sum(axis=1)
    assert never == 0 and often > 3 * seldom > 0
    assert set(label_propagation.draw(margin, 150, np.random.default_rng(0)).tolist()) == set(range(150))
