"""Comparison of a new scene with the training scene, and its adaptation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from hypercaps import ConvCapsClassifier, HypercapsError, Labels, Scene, load_model
from hypercaps.data.statistics import sample_bands, sample_statistics
from hypercaps.errors import DataWarning
from hypercaps.inference.scene_shift import compare, compare_scene

Cube = npt.NDArray[np.float32]
BANDS = 30
WAVES = np.linspace(450, 900, BANDS)


def smooth(rng: np.random.Generator, *shape: int) -> Cube:
    """Random numbers that are smooth along the last axis."""
    raw = rng.normal(size=(*shape, BANDS + 8))
    return np.lib.stride_tricks.sliding_window_view(raw, 9, axis=-1).mean(axis=-1).astype(np.float32)


@pytest.fixture(scope="module")
def cube() -> Cube:
    """Three classes in columns, reflectance of about 0.3."""
    rng = np.random.default_rng(0)
    spectra = 0.3 + 0.1 * smooth(rng, 3)
    classes = np.repeat([0, 1, 2], 8)
    return (spectra[classes][None] + 0.02 * smooth(rng, 24, 24)).astype(np.float32)


@pytest.fixture(scope="module")
def trained(cube: Cube) -> ConvCapsClassifier:
    labels = Labels.from_array(np.broadcast_to(np.repeat([1, 2, 3], 8), (24, 24)).astype(np.int16))
    return ConvCapsClassifier(method="lda", split_by="none").fit(scene_of(cube), labels)


def scene_of(cube: Cube, waves: npt.NDArray[np.float64] | None = WAVES) -> Scene:
    return Scene.from_array(cube, name="new", wavelengths=waves)


def found(trained: ConvCapsClassifier, cube: Cube, how: str = "auto") -> tuple[str, Cube]:
    prepared = compare_scene(trained.model_, scene_of(cube), how)
    return " ".join(prepared.findings), prepared.scene.read(slice(None), slice(None)).values


def test_the_training_scene_itself_has_no_finding(trained: ConvCapsClassifier, cube: Cube) -> None:
    prepared = compare_scene(trained.model_, scene_of(cube))
    assert prepared.findings == () and prepared.tag == "none" and prepared.is_claimed and not prepared.adaptation


@pytest.mark.parametrize(
    ("gain", "offset", "said"),
    [
        (0.9, 0.0, "10% darker"),
        (1.25, 0.0, "25% brighter"),
        (1.0, 0.01, "raised by 3."),
        (0.8, -0.01, "20% darker and lowered by"),
    ],
)
def test_light_is_found_and_undone(
    trained: ConvCapsClassifier, cube: Cube, gain: float, offset: float, said: str
) -> None:
    changed = np.float32(gain) * cube + np.float32(offset)
    words, values = found(trained, changed)
    assert said in words and "undone" in words and np.abs(values - cube).max() < 1e-5
    words, values = found(trained, changed, "none")
    assert "--adapt auto undoes it" in words and np.array_equal(values, changed)


@pytest.mark.parametrize("factor", [10_000, 0.001])
def test_another_unit_is_converted(trained: ConvCapsClassifier, cube: Cube, factor: float) -> None:
    words, values = found(trained, cube * np.float32(factor))
    assert "another unit: they are converted" in words and np.abs(values - cube).max() < 1e-5


@pytest.mark.parametrize("value", [0.0, 7.0, "noise"])
def test_a_bad_band_is_estimated(trained: ConvCapsClassifier, cube: Cube, value: float | str) -> None:
    changed = cube.copy()
    changed[:, :, 11] = np.random.default_rng(1).random((24, 24)) * 50 if value == "noise" else value
    words, values = found(trained, changed, "none")
    assert "Band 12 (621 nm)" in words and "estimated from neighbouring bands" in words
    error = np.abs(values[:, :, 11] - cube[:, :, 11])
    assert error.mean() < 0.2 * np.abs(cube[:, :, 11] - (cube[:, :, 10] + cube[:, :, 12]) / 2).mean() + 1e-3
    assert np.array_equal(np.delete(values, 11, axis=2), np.delete(cube, 11, axis=2))


def test_many_bad_bands_are_refused(trained: ConvCapsClassifier, cube: Cube) -> None:
    changed = cube.copy()
    changed[:, :, 10:14] = 0
    with pytest.raises(HypercapsError, match=r"4 of the 30 bands .* too many to estimate"):
        found(trained, changed)


def test_other_ground_is_not_taken_for_light(trained: ConvCapsClassifier, cube: Cube) -> None:
    other = cube[:, :8].repeat(3, axis=1) + 0.1 * smooth(np.random.default_rng(5), 1, 1)
    prepared = compare_scene(trained.model_, scene_of(other))
    assert not prepared.adaptation and not prepared.shift.is_light  # type: ignore[union-attr]
    assert prepared.shift.is_far and not prepared.is_claimed  # type: ignore[union-attr]
    assert "can't be expected" in " ".join(prepared.findings)


def test_mean_and_standardise_take_the_statistics_of_the_new_scene(trained: ConvCapsClassifier, cube: Cube) -> None:
    changed = cube * np.linspace(0.5, 2, BANDS, dtype=np.float32)
    for how in ("mean", "standardise"):
        _, values = found(trained, changed, how)
        assert np.allclose(values.mean(axis=(0, 1)), cube.mean(axis=(0, 1)), atol=1e-4)
    assert np.allclose(values.std(axis=(0, 1)), cube.std(axis=(0, 1)), rtol=1e-3)
    assert (trained.predict(scene_of(values)) == trained.predict(scene_of(cube))).all()


def test_a_classifier_adapts_and_warns(trained: ConvCapsClassifier, cube: Cube) -> None:
    with pytest.warns(DataWarning, match="50% darker"):
        adapted = trained.adapted(scene_of(cube * np.float32(0.5)))
    assert (trained.predict(adapted) == trained.predict(scene_of(cube))).all()


def test_pixels_are_adapted_one_by_one(trained: ConvCapsClassifier, cube: Cube) -> None:
    prepared = compare_scene(trained.model_, scene_of(cube * np.float32(0.9)))
    whole = prepared.scene.read(slice(None), slice(None)).values
    assert np.array_equal(prepared.scene.read(slice(3, 7), slice(5, 6)).values, whole[3:7, 5:6])


def test_a_shift_of_less_than_a_band(trained: ConvCapsClassifier, cube: Cube) -> None:
    """Taken as it is by models with robust whitening, refused by others."""
    shifted = scene_of(cube, WAVES + (WAVES[1] - WAVES[0]) / 2)
    with pytest.raises(HypercapsError, match="--resample"):
        compare_scene(trained.model_, shifted)
    labels = Labels.from_array(np.broadcast_to(np.repeat([1, 2, 3], 8), (24, 24)).astype(np.int16))
    network = ConvCapsClassifier(recipe="augmented", epochs=1, split_by="none").fit(scene_of(cube), labels)
    prepared = compare_scene(network.model_, shifted)
    assert "7.8 nm beside the model's and are taken for them" in prepared.findings[0]
    assert np.array_equal(np.asarray(prepared.scene.wavelengths), WAVES)
    with pytest.raises(HypercapsError, match="--resample"):
        compare_scene(network.model_, scene_of(cube, WAVES + 3 * (WAVES[1] - WAVES[0])))


def test_statistics_are_kept_in_the_model_file(trained: ConvCapsClassifier, cube: Cube, tmp_path: object) -> None:
    path = f"{tmp_path}/model.safetensors"
    trained.save(path)
    kept = load_model(path).model_.statistics
    assert kept is not None
    for name, values in kept.arrays().items():
        assert np.array_equal(values, getattr(sample_statistics(scene_of(cube)), name))


def test_a_model_without_statistics(trained: ConvCapsClassifier, cube: Cube) -> None:
    older = replace(trained.model_, statistics=None)
    assert compare_scene(older, scene_of(cube * np.float32(0.5))).tag.startswith(
        "not checked: the model file is too old"
    )
    with pytest.raises(HypercapsError, match="train it again"):
        compare_scene(older, scene_of(cube), "mean")


def test_a_scene_with_too_few_pixels(trained: ConvCapsClassifier, cube: Cube) -> None:
    few = scene_of(cube[:9, :11])
    found = compare_scene(trained.model_, few)
    assert found.shift is None and found.tag == "not checked: fewer than 100 valid pixels"
    with pytest.raises(HypercapsError, match="fewer than 100 valid pixels"):
        compare_scene(trained.model_, few, "standardise")
    with pytest.raises(HypercapsError, match="no adaptation 'some'"):
        compare_scene(trained.model_, few, "some")


def test_the_sample_of_a_large_scene_is_spread_over_it() -> None:
    cube = np.zeros((700, 400, 2), dtype=np.float32)
    cube[:, :, 0] = np.arange(700)[:, None]
    cube[:, :, 1] = np.arange(400)
    statistics = sample_statistics(Scene.from_array(cube))
    assert statistics is not None
    assert statistics.lowest.tolist() == [0, 0] and statistics.highest.tolist() == [699, 399]
    assert np.allclose(statistics.mean, [349.5, 199.5], rtol=0.01)


def test_compare_sees_a_scene_without_any_usable_band() -> None:
    constant = sample_bands(Scene.from_array(np.ones((4, 4, 3), dtype=np.float32)))
    varied = sample_statistics(Scene.from_array(np.random.default_rng(0).random((4, 4, 3)).astype(np.float32)))
    assert constant is not None and varied is not None
    assert compare(varied, constant).bad_bands == (0, 1, 2)
