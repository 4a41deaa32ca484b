from __future__ import annotations

import warnings

import numpy as np
import pytest

from hypercaps.compute import native
from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, SceneError
from hypercaps.training import preprocessing as whitening
from hypercaps.training.preprocessing import PCAWhitening, Standardising


def correlated(rows: int = 30, cols: int = 25, bands: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((bands, bands)) * np.geomspace(1, 1e-3, bands)
    return 3000 + 500 * rng.standard_normal((rows, cols, bands)) @ mixing


def test_components_are_uncorrelated_with_unit_variance_largest_first() -> None:
    scene = Scene.from_array(correlated().astype(np.float32))
    fitted = PCAWhitening.fit(scene)
    white = fitted.transform(scene.read().values).reshape(-1, 12)
    assert white.dtype == np.float32
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(np.cov(white.T), np.eye(12), atol=1e-4)
    assert (np.diff(fitted.variances) <= 0).all()


def test_streaming_in_small_blocks_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    cube = 1e6 + correlated()  # a large offset, so that cancellation would show
    scene = Scene.from_array(cube)
    pixels = scene.read().values.reshape(-1, 12).astype(np.float64)
    for block in (1 << 23, 12 * 7 * 7, 12):
        monkeypatch.setattr(whitening, "_READ_VALUES", block)
        mean, covariance = whitening._moments(scene)
        np.testing.assert_allclose(mean, pixels.mean(axis=0), rtol=1e-13)
        np.testing.assert_allclose(covariance, np.cov(pixels.T), rtol=1e-7, atol=1e-4)


def test_bands_without_variance_give_zeros() -> None:
    cube = correlated()
    cube[:, :, 3] = 777  # dead
    cube[:, :, 5] = cube[:, :, 4]  # repeated
    fitted = PCAWhitening.fit(Scene.from_array(cube))
    white = fitted.transform(cube)
    assert np.isfinite(white).all()
    assert (white[:, :, -2:] == 0).all() and (fitted.variances[-2:] == 0).all()
    np.testing.assert_allclose(white.reshape(-1, 12)[:, :10].std(axis=0), 1, rtol=1e-2)


def test_two_fits_agree_in_sign() -> None:
    cube = correlated()
    first = PCAWhitening.fit(Scene.from_array(cube))
    second = PCAWhitening.fit(Scene.from_array(cube[::-1, ::-1].copy()))  # the same pixels in another order
    np.testing.assert_allclose(first.matrix, second.matrix, rtol=1e-5, atol=1e-9)
    assert (first.matrix[np.abs(first.matrix).argmax(axis=0), np.arange(12)] > 0).all()


def test_invalid_pixels_are_left_out_counted_and_become_zeros() -> None:
    cube = correlated()
    clean = PCAWhitening.fit(Scene.from_array(cube[1:]))
    cube[0, :, 2] = np.nan
    scene = Scene.from_array(cube)
    with pytest.warns(DataWarning, match="25 of 750 pixels"):
        fitted = PCAWhitening.fit(scene)
    np.testing.assert_allclose(fitted.mean, clean.mean, rtol=1e-6)
    values, valid = scene.read()
    white = fitted.transform(values, valid)
    assert (white[0] == 0).all() and np.isfinite(white).all() and (white[1:] != 0).any()


def test_scenes_without_valid_pixels_or_variance_are_refused() -> None:
    with pytest.raises(SceneError, match="0 valid pixels among 12"):
        PCAWhitening.fit(Scene.from_array(np.full((3, 4, 5), np.nan)))
    for value in (0.0, 1234.5, 65535, 1e-7):
        with pytest.raises(SceneError, match="is constant as it is read, in single precision"):
            PCAWhitening.fit(Scene.from_array(np.full((20, 20, 5), value)))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_values_that_differ_beyond_float32_are_refused_with_a_way_out(dtype: type) -> None:
    small = np.round(1000 * correlated())
    cube = (2**53 - 10**6 + small).astype(np.int64) if dtype is np.int64 else 1e6 + 1e-9 * small
    with pytest.raises(SceneError, match=r"single precision.* subtract a constant from each band first"):
        PCAWhitening.fit(Scene.from_array(cube))
    offset = cube - cube.min(axis=(0, 1))
    assert (PCAWhitening.fit(Scene.from_array(offset)).variances > 0).all()


def test_bands_that_float32_rounds_away_are_reported() -> None:
    cube = 1e6 + 0.1 * np.random.default_rng(0).standard_normal((20, 20, 3))
    cube[:, :, 0] -= 1e6
    cube[:, :, 2] = 1e6  # a dead band has nothing to lose
    with pytest.warns(DataWarning, match="^1 of 3 bands .* hold large values that differ by little"):
        PCAWhitening.fit(Scene.from_array(cube))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PCAWhitening.fit(Scene.from_array(cube.astype(np.float32)))  # it was rounded before


def test_small_numbers_are_not_taken_for_constants() -> None:
    """Reflectance between 0 and 1 has small variances; only their ratio may count."""
    cube = correlated() * 1e-9
    assert (PCAWhitening.fit(Scene.from_array(cube)).variances > 0).all()


def test_centred_components_are_the_same_with_the_largest_in_the_middle() -> None:
    scene = Scene.from_array(correlated())
    plain = PCAWhitening.fit(scene)
    centred = plain.centred()
    order = [11, 9, 7, 5, 3, 1, 0, 2, 4, 6, 8, 10]
    np.testing.assert_array_equal(centred.variances, plain.variances[order])
    values = scene.read().values
    np.testing.assert_allclose(centred.transform(values), plain.transform(values)[..., order], rtol=1e-5, atol=1e-6)


def test_standardised_bands_have_no_mean_and_unit_deviation_and_dead_ones_are_zero() -> None:
    cube = correlated()
    cube[:, :, 3] = 777
    cube[0, 0, 0] = np.nan
    with pytest.warns(DataWarning, match="1 of 750 pixels"):
        fitted = Standardising.fit(Scene.from_array(cube))
    pixels = Scene.from_array(cube).read()
    ready = fitted.transform(pixels.values, pixels.valid)
    assert ready.dtype == np.float32 and (ready[0, 0] == 0).all() and (ready[:, :, 3] == 0).all()
    seen = np.delete(ready[pixels.valid], 3, axis=1)
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0, ddof=1), 1, rtol=1e-5)


def test_damped_whitening_keeps_noise_small() -> None:
    scene = Scene.from_array(correlated())
    damped = whitening.PREPROCESSINGS["damped whitening"](scene)
    white = damped.transform(scene.read().values).reshape(-1, 12).astype(np.float64)
    covariance = np.cov(scene.read().values.reshape(-1, 12).astype(np.float64).T)
    added = covariance + 0.01 * np.diag(covariance.diagonal())
    np.testing.assert_allclose(damped.matrix.T @ added @ damped.matrix, np.eye(12), atol=1e-6)
    variances = np.diag(np.cov(white.T))
    assert (variances < 1).all() and variances.max() > 0.98 and variances.min() < 0.5
    assert damped.variances.argmax() == 6  # the largest in the middle
    assert whitening.kind_of(damped) == "whitening"


def test_damped_whitening_of_dead_bands_gives_zeros() -> None:
    cube = correlated()
    cube[:, :, 3] = 777
    scene = Scene.from_array(cube)
    damped = whitening.PREPROCESSINGS["damped whitening"](scene)
    assert np.isfinite(damped.matrix).all() and (damped.variances == 0).sum() == 1


@pytest.mark.parametrize("name", whitening.PREPROCESSINGS)
def test_a_linear_map_combines_with_preprocessing(name: str) -> None:
    scene = Scene.from_array(correlated().astype(np.float32))
    fitted = whitening.PREPROCESSINGS[name](scene)
    weights = np.random.default_rng(1).standard_normal((12, 5))
    values = scene.read().values
    expected = fitted.transform(values).astype(np.float64) @ weights
    combined = fitted.combined(weights)
    np.testing.assert_allclose((values - fitted.mean) @ combined, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")
@pytest.mark.parametrize("outputs", [1, 5, 8, 12, 19])
def test_the_kernel_projects_to_any_number_of_columns(outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    values = rng.standard_normal((7, 9, 12)).astype(np.float32)
    mean, matrix, valid = rng.standard_normal(12), rng.standard_normal((12, outputs)), rng.random((7, 9)) < 0.8
    found = whitening.project(values, valid, mean, matrix)
    assert found.shape == (7, 9, outputs) and (found[~valid] == 0).all()
    np.testing.assert_allclose(found[valid], ((values - mean) @ matrix)[valid], rtol=1e-5, atol=1e-5)
    alone = whitening.project(values[4:5, 3:4], None, mean, matrix)
    if valid[4, 3]:
        np.testing.assert_array_equal(alone[0, 0], found[4, 3])
