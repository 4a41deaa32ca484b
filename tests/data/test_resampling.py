"""Scenes of one sensor for a model of another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps import ConvCapsClassifier, Labels, Scene, load_model, open_labels, open_scene
from hypercaps.data.pixels import Pixels
from hypercaps.data.resampling import differences, resample
from hypercaps.errors import DataWarning, ModelFileError, SceneError
from support.command import hypercaps
from support.scenes import QUICK, make_cube

COARSE = np.arange(450.0, 951.0, 20)  # 26 bands
FINE = np.arange(420.3, 990.0, 5.7)  # 100 bands


def scene_of(cube: np.ndarray, waves: np.ndarray, fwhm: object = None, **more: object) -> Scene:
    scene = Scene.from_array(np.asarray(cube, dtype=np.float32), wavelengths=waves, name="seen")
    return replace(scene, fwhm=None if fwhm is None else np.broadcast_to(np.float64(fwhm), waves.shape), **more)


def made_spectra(waves: np.ndarray, width: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth spectra of three classes of a sensor with these bands, half of the pixels labelled.

    A Gaussian of ``width`` reduces the amplitude of a sine by a known factor.
    """
    truth = np.repeat(np.arange(36) * 3 // 36 + 1, 36).reshape(36, 36).T
    sigma = width / 2.354820045
    periods = 500.0 / np.arange(1, 4)
    seen = np.exp(-2 * (np.pi * sigma / periods) ** 2)[:, None]
    spectra = seen * np.sin(2 * np.pi * (waves - 450) / periods[:, None])
    rng = np.random.default_rng(7)  # the same land cover for every sensor
    brightness = 1 + 0.05 * rng.standard_normal((36, 36, 1))
    labels = np.where(rng.random((36, 36)) < 0.5, truth, 0)
    return 1000 + 100 * brightness * spectra[truth - 1], labels


def noisy(waves: np.ndarray, width: float, seed: int) -> np.ndarray:
    cube, _ = made_spectra(waves, width)
    return cube + 5 * np.random.default_rng(seed).standard_normal(cube.shape)


@pytest.fixture(scope="module")
def model() -> ConvCapsClassifier:
    """A model of the coarse sensor."""
    labels = Labels.from_array(made_spectra(COARSE)[1])
    return ConvCapsClassifier(**QUICK).fit(scene_of(noisy(COARSE, 20, 0), COARSE, 20), labels)


def test_two_sensors_see_the_same_classes(model: ConvCapsClassifier) -> None:
    truth = np.repeat(np.arange(36) * 3 // 36 + 1, 36).reshape(36, 36).T
    coarse = model.predict(scene_of(noisy(COARSE, 20, 1), COARSE))
    for fwhm in (5.7, None):  # by band widths, and where the scene's own are not known
        fine = model.predict(model.resampled(scene_of(noisy(FINE, 5.7, 2), FINE, fwhm)))
        assert (fine == truth).mean() > 0.97 and (fine == coarse).mean() > 0.97


def test_band_widths_give_the_values_of_the_coarse_sensor() -> None:
    """A wider band smooths a curved spectrum, which linear interpolation does not."""
    fine, coarse = made_spectra(FINE, 5.7)[0], made_spectra(COARSE, 20)[0]
    scene = scene_of(fine, FINE, 5.7)
    linear, by_width = resample(scene, COARSE), resample(scene, COARSE, np.full(COARSE.shape, 20.0))
    assert np.abs(linear.read().values - coarse).max() > 4  # of 100
    assert np.abs(by_width.read().values - coarse).max() < 0.05


@settings(max_examples=60, deadline=None)
@given(
    bands=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    widths=st.sampled_from(["none", "ours", "theirs only"]),
    shuffled=st.booleans(),
)
def test_resampling_to_its_own_bands_changes_no_bit(bands: int, seed: int, widths: str, shuffled: bool) -> None:
    rng = np.random.default_rng(seed)
    waves = 400 + np.cumsum(rng.uniform(0.5, 30, bands))
    if shuffled:
        rng.shuffle(waves)
    fwhm = None if widths == "none" else rng.uniform(1, 40, bands)
    cube = rng.standard_normal((3, 4, bands)).astype(np.float32)
    same = resample(scene_of(cube, waves, fwhm if widths == "ours" else None), waves, fwhm).read()
    assert same.values.tobytes() == cube.tobytes() and same.valid.all()


@pytest.mark.filterwarnings("ignore::hypercaps.errors.DataWarning")  # bands anywhere may well lie in gaps
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), by_width=st.booleans(), spacing=st.floats(1, 25))
def test_a_linear_spectrum_is_kept_and_no_value_leaves_the_range(seed: int, by_width: bool, spacing: float) -> None:
    rng = np.random.default_rng(seed)
    source = 400 + np.cumsum(rng.uniform(0.3, 1.7, 80) * spacing)
    target = np.sort(rng.uniform(source[0], source[-1], 9))
    target = target[np.append(True, np.diff(target) > 0.5)]
    fwhm = rng.uniform(5, 40, target.size) if by_width else None
    cube = rng.uniform(-1, 1, (2, 2, 80)).astype(np.float32)
    cube[0, 0] = source / 1000
    made = resample(scene_of(cube, source), target, fwhm).read().values
    np.testing.assert_allclose(made[0, 0], target / 1000, rtol=1e-5)
    assert np.abs(made[1:]).max() <= 1 + 1e-6


@pytest.mark.parametrize("fwhm", [None, 20.0])
def test_a_pixel_does_not_depend_on_its_window(fwhm: float | None) -> None:
    rng = np.random.default_rng(3)
    cube = rng.standard_normal((70, 90, FINE.size))  # more pixels than one chunk
    made = resample(scene_of(cube, FINE, 5.7), COARSE, None if fwhm is None else np.full(COARSE.shape, fwhm))
    whole = made.read().values
    assert whole.dtype == np.float32 and whole.shape == made.shape == (70, 90, 26)
    for r0, r1, c0, c1 in [(0, 1, 0, 1), (3, 4, 5, 90), (17, 70, 1, 8), (69, 70, 89, 90), (0, 70, 0, 45), (5, 5, 0, 9)]:
        part = made.read(slice(r0, r1), slice(c0, c1)).values
        assert part.tobytes() == whole[r0:r1, c0:c1].tobytes()


def test_only_the_window_is_read_and_invalid_pixels_stay_invalid() -> None:
    windows = []
    cube = np.ones((20, 20, FINE.size), dtype=np.float32)
    cube[2, 3, 0] = np.inf  # a band that is not used
    inner = scene_of(cube, FINE)

    def reader(rows: slice, cols: slice) -> Pixels:
        windows.append((rows, cols))
        return inner.reader(rows, cols)

    made = resample(scene_of(cube, FINE, reader=reader), COARSE, np.full(COARSE.shape, 20.0))
    assert windows == []
    pixels = made.read(slice(2, 4), slice(0, 5))
    assert windows == [(slice(2, 4), slice(0, 5))]
    assert not pixels.valid[0, 3] and pixels.valid.sum() == 9
    assert np.isfinite(pixels.values[pixels.valid]).all()


def test_the_georeference_is_kept() -> None:
    scene = scene_of(
        np.ones((2, 3, FINE.size)), FINE, crs="EPSG:32633", transform=(30.0, 0, 5, 0, -30.0, 9), block=(1, 3)
    )
    made = resample(scene, COARSE)
    assert (made.crs, made.transform, made.block, made.name) == (scene.crs, scene.transform, (1, 3), "seen")
    np.testing.assert_array_equal(made.wavelengths, COARSE)


def test_bands_outside_the_scene_are_refused_by_name() -> None:
    scene = scene_of(np.ones((2, 2, 26)), COARSE)
    with pytest.raises(
        SceneError, match=r"from 450\.0 to 950\.0 nm and can't be resampled to 2 of the 4 .* \(430\.0, 961\.0 nm\)"
    ):
        resample(scene, [430.0, 500.0, 960.0, 961.0])
    made = resample(scene_of(np.arange(26.0).reshape(1, 1, 26), COARSE), [440.0, 960.0])  # half a band beyond
    assert made.read().values.ravel().tolist() == [0, 25]


def test_bands_in_a_gap_give_a_warning() -> None:
    gap = COARSE[(COARSE < 600) | (COARSE > 800)]
    cube = np.broadcast_to(gap, (2, 2, gap.size))
    with pytest.warns(
        DataWarning, match=r"no band near 8 of the 26 .*\(630\.0, 650\.0, 670\.0, 690\.0 nm and 4 more\)"
    ):
        made = resample(scene_of(cube, gap), COARSE, np.full(COARSE.shape, 20.0))
    np.testing.assert_allclose(made.read().values[0, 0], COARSE, rtol=1e-6)


def test_bad_bands_are_not_used() -> None:
    bad = (FINE > 600) & (FINE < 612)
    cube = np.broadcast_to(FINE, (2, 2, FINE.size)).copy()
    cube[..., bad] = -1e6
    made = resample(scene_of(cube, FINE, good_bands=~bad), COARSE, np.full(COARSE.shape, 20.0))
    np.testing.assert_allclose(made.read().values[0, 0], COARSE, rtol=1e-6)


def test_without_wavelengths_nothing_can_be_resampled(model: ConvCapsClassifier) -> None:
    with pytest.raises(SceneError, match="no wavelengths and can't be resampled"):
        model.resampled(Scene.from_array(np.ones((9, 9, 26))))
    with pytest.raises(SceneError, match="no wavelengths"):
        model.resampled(scene_of(np.ones((9, 9, 26)), np.append(COARSE[1:], np.nan)))
    for wrong in ([], [[500.0]], [np.nan]):
        with pytest.raises(SceneError, match="a list of numbers"):
            resample(scene_of(np.ones((2, 2, 26)), COARSE), wrong)
    with pytest.raises(SceneError, match="1 band widths were given for 2 wavelengths"):
        resample(scene_of(np.ones((2, 2, 26)), COARSE), [500, 600], [10])


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (COARSE + 0.9, []),
        (COARSE + 1.9, []),  # a tenth of 20 nm
        (COARSE + 2.5, ["26 are shifted by up to 2.5 nm (452.5 for 450.0, 472.5 for 470.0, 492.5 for 490.0, 512.5 for "
                        "510.0 nm and 22 more)"]),
        (COARSE[2:], ["2 are missing (450.0, 470.0 nm)"]),
        (np.append(COARSE, [970.0, 990.0]), ["2 are not the model's (970.0, 990.0 nm)"]),
        (np.sort(np.append(COARSE, [455.0, 463.0])), ["2 are not the model's (455.0, 463.0 nm)"]),
        (COARSE[::-1], ["they are in another order or more than once"]),
        (np.append(COARSE[:-2] + ([0] * 20 + [3] * 4), 1500.0), ["2 are missing (930.0, 950.0 nm)",
         "1 are not the model's (1500.0 nm)", "4 are shifted by up to 3.0 nm (853.0 for 850.0, 873.0 for 870.0, 893.0 "
         "for 890.0, 913.0 for 910.0 nm)"]),
    ],
)  # fmt: skip
def test_differences_are_listed(scene: np.ndarray, words: list[str]) -> None:
    assert differences(COARSE, scene) == words


def test_a_scene_with_other_bands_is_refused_with_the_differences(model: ConvCapsClassifier) -> None:
    for waves in (FINE, COARSE + 5):  # even where the numbers agree
        scene = scene_of(np.ones((9, 9, waves.size)), waves)
        for use in (model.predict, model.predict_proba):
            with pytest.raises(
                ModelFileError, match=r"bands of scene 'seen' are not the 26 .* shifted .*--resample"
            ) as no:
                use(scene)
            assert "\n" not in str(no.value) and len(str(no.value)) < 500


def test_without_wavelengths_the_number_of_bands_is_compared(model: ConvCapsClassifier) -> None:
    assert model.predict(Scene.from_array(noisy(COARSE, 20, 1))).shape == (36, 36)
    with pytest.raises(ModelFileError, match=r"trained on 26 bands .* has 27"):
        model.predict(Scene.from_array(np.ones((9, 9, 27))))


def test_the_model_file_keeps_the_band_widths(model: ConvCapsClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m").model_
    assert loaded.fwhm is not None and loaded.fwhm.tolist() == [20.0] * 26


# --- the command line


@pytest.fixture
def files(model: ConvCapsClassifier, tmp_path: Path) -> Path:
    """A model of the coarse sensor, an ENVI file of the fine one, and labels."""
    model.save(tmp_path / "coarse.safetensors")
    cube = noisy(FINE, 5.7, 2).astype("<f4")
    (tmp_path / "fine.bip").write_bytes(cube.tobytes())
    lists = f"wavelength = {{{', '.join(map(str, FINE))}}}\nfwhm = {{{', '.join(['5.7'] * FINE.size)}}}"
    (tmp_path / "fine.hdr").write_text(
        f"ENVI\nsamples = 36\nlines = 36\nbands = {FINE.size}\nheader offset = 0\ndata type = 4\ninterleave = bip\n"
        f"byte order = 0\nwavelength units = nm\n{lists}\n"
    )
    np.save(tmp_path / "labels.npy", made_spectra(FINE)[1].astype(np.int16))
    np.save(tmp_path / "plain.npy", noisy(COARSE, 20, 1))
    return tmp_path


def test_the_command_line_refuses_or_resamples(files: Path, model: ConvCapsClassifier) -> None:
    job = ("map", files / "coarse.safetensors", files / "fine.bip", "--out", files / "map.tif")
    refused = hypercaps(*job)
    assert refused.exit_code == 2 and "--resample" in refused.output and not (files / "map.tif").exists()
    done = hypercaps(*job, "--resample")
    assert done.exit_code == 0, done.output
    found = open_labels(files / "map.tif")
    expected = model.predict(model.resampled(open_scene(files / "fine.bip")))
    np.testing.assert_array_equal(found.array, expected)

    job = ("evaluate", files / "coarse.safetensors", files / "fine.bip", files / "labels.npy", "--json", "-")
    assert hypercaps(*job).exit_code == 2
    scored = hypercaps(*job, "--resample")
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["oa"] > 97


@pytest.mark.filterwarnings("default::hypercaps.errors.DataWarning")
def test_a_scene_without_wavelengths_gives_a_warning(files: Path) -> None:
    job = ("map", files / "coarse.safetensors", files / "plain.npy", "--out", files / "map.png")
    told = hypercaps(*job)
    assert told.exit_code == 0
    assert "Warning: scene 'plain' has no wavelengths: its 26 bands are assumed to be those of the model" in told.stderr
    refused = hypercaps(*job, "--resample")
    assert refused.exit_code == 2 and "no wavelengths" in refused.output


def test_a_model_without_wavelengths_is_refused(files: Path) -> None:
    cube, labels = make_cube()
    ConvCapsClassifier(**QUICK | {"epochs": 1}).fit(Scene.from_array(cube), Labels.from_array(labels)).save(
        files / "blind.safetensors"
    )
    refused = hypercaps("map", files / "blind.safetensors", files / "fine.bip", "--out", files / "m.png", "--resample")
    assert refused.exit_code == 2 and "does not know its wavelengths" in " ".join(refused.output.split())


def test_info_shows_the_range(files: Path) -> None:
    done = hypercaps("info", files / "coarse.safetensors")
    assert done.exit_code == 0 and "wavelength range nm  450, 950" in done.output and "fwhm" in done.output
