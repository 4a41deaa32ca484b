"""Band attribution: the bands that separate the classes get it, and deleting them shortens the capsule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypercaps import open_labels, open_scene
from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.errors import ModelError, SceneError
from hypercaps.inference.explain import Explanation, explain_at, explain_class, find_class
from hypercaps.inference.model import TrainedModel
from support.command import hypercaps
from support.scenes import make_cube

INFORMATIVE = [6, 7, 8, 20, 21]  # the only bands in which classes differ


def informative_cube() -> tuple[np.ndarray, np.ndarray]:
    """36 x 36 x 32: three upright stripes that differ in a few bands only; the others are noise."""
    rng = np.random.default_rng(5)
    truth = np.tile(np.arange(36) // 12 + 1, (36, 1))
    cube = 500 + 10 * rng.standard_normal((36, 36, 32))
    levels = rng.choice([-30.0, 30.0], (3, len(INFORMATIVE)))
    levels[:, 0], levels[:, 3] = (-30, 0, 30), (30, -30, 0)  # no two classes are the same
    cube[:, :, INFORMATIVE] += levels[truth - 1]
    return cube.astype(np.float32), truth.astype(np.int16)


@pytest.fixture(scope="module")
def informative() -> tuple[TrainedModel, Scene]:
    cube, truth = informative_cube()
    scene = Scene.from_array(cube, name="informative")
    return ConvCapsClassifier(train=0.3, epochs=10, batch_size=16).fit(scene, Labels.from_array(truth)).model_, scene


@pytest.fixture(scope="module")
def of_class(informative: tuple[TrainedModel, Scene]) -> Explanation:
    return explain_class(*informative, 2, most=40)


def test_bands_that_separate_the_classes_get_the_attribution(of_class: Explanation) -> None:
    share = np.abs(of_class.share)
    assert share.sum() == pytest.approx(1)
    # Five of 32 bands get most of the attribution, and the highest is one of them.
    assert share[INFORMATIVE].sum() > 0.5
    assert int(of_class.relevance.argmax()) in INFORMATIVE


def test_deleting_the_top_bands_shortens_the_capsule_more_than_random_ones(of_class: Explanation) -> None:
    check = of_class.deletion
    assert check.bands == 2 and 0.5 < check.length < 1
    assert check.length - check.without_top > 3 * (check.length - check.without_random)
    assert check.larger_drop > 0.9


def test_attributions_of_bands_and_components_add_up(
    informative: tuple[TrainedModel, Scene], of_class: Explanation
) -> None:
    model, scene = informative
    assert of_class.per_pixel.shape == (40, 32) and of_class.components.shape == (32,)
    assert of_class.relevance.sum() == pytest.approx(of_class.components.sum(), rel=1e-4)
    one = explain_at(model, scene, 5, 17)
    # The length |s| before the squash; Eq. 8 makes |s|^2 / (1 + |s|^2) of it.
    before = one.contributions.sum()
    assert before**2 / (1 + before**2) == pytest.approx(one.deletion.length, abs=1e-4)
    assert one.at_mean + one.relevance.sum() == pytest.approx(before, rel=0.02)


def test_couplings_are_given_by_position_and_its_components(informative: tuple[TrainedModel, Scene]) -> None:
    found = explain_at(*informative, 0, 0).describe()
    assert [p["components"] for p in found["positions"]] == [[0, 24], [4, 28]]
    assert all(0 < p["coupling"] < 1 for p in found["positions"])
    json.dumps(found, allow_nan=False)


def test_a_class_is_explained_by_pixels_of_the_whole_map(
    informative: tuple[TrainedModel, Scene], of_class: Explanation
) -> None:
    assert of_class.entry.label == 2
    rows, cols = of_class.pixels.T
    assert set(cols) <= set(range(11, 25)) and rows.min() < 8 and rows.max() > 28
    again = explain_class(*informative, 2, most=40)
    np.testing.assert_array_equal(again.pixels, of_class.pixels)
    np.testing.assert_allclose(again.per_pixel, of_class.per_pixel, atol=1e-5)


def test_another_class_at_a_pixel_has_a_shorter_capsule(informative: tuple[TrainedModel, Scene]) -> None:
    model, scene = informative
    own, other = explain_at(model, scene, 20, 30), explain_at(model, scene, 20, 30, label=1)
    assert own.entry.label == 3 and other.entry.label == 1
    assert other.deletion.length < own.deletion.length


def test_an_invalid_neighbour_is_reflected_and_an_invalid_pixel_is_refused(
    informative: tuple[TrainedModel, Scene],
) -> None:
    model, _ = informative
    cube, _ = informative_cube()
    cube[10, 10, 3] = np.nan
    scene = Scene.from_array(cube, name="torn")
    found = explain_at(model, scene, 10, 11)
    assert np.isfinite(found.per_pixel).all()
    with pytest.raises(
        SceneError, match="row 10, column 10 of scene 'torn' holds NaN, infinity, nodata or absurd values"
    ):
        explain_at(model, scene, 10, 10)


@pytest.mark.parametrize("row, col", [(36, 0), (0, 36), (-1, 5)])
def test_a_pixel_outside_is_refused(informative: tuple[TrainedModel, Scene], row: int, col: int) -> None:
    with pytest.raises(SceneError, match="outside scene 'informative': rows go from 0 to 35"):
        explain_at(*informative, row, col)


def test_unsuitable_models_and_unknown_classes_are_refused(informative: tuple[TrainedModel, Scene]) -> None:
    model, scene = informative
    labels = Labels.from_array(informative_cube()[1])
    svm = ConvCapsClassifier(method="rbf-svm").fit(scene, labels, evaluate=False).model_
    with pytest.raises(ModelError, match=r"method rbf-svm can't be explained .* convcapsnet"):
        explain_at(svm, scene, 1, 1)
    with pytest.raises(ModelError, match=r"no class 'water': .* 1 class 1, 2 class 2"):
        find_class(model, "water")
    with pytest.raises(ModelError, match="no class 9"):
        explain_class(model, scene, 9)
    assert find_class(model, "Class 3") == find_class(model, "3") == 3
    flat = Scene.from_array(np.broadcast_to(informative_cube()[0][:1, :1], (9, 9, 32)), name="flat")
    with pytest.raises(SceneError, match="no pixel of scene 'flat' to class class 3"):
        explain_class(model, flat, 3)


def test_capsnet_can_be_explained_too(informative: tuple[TrainedModel, Scene]) -> None:
    small = {"filters": 8, "primary_arrays": 2}
    fitted = ConvCapsClassifier(method="capsnet", epochs=1, batch_size=64, structure=small)
    scene = informative[1]
    model = fitted.fit(scene, Labels.from_array(informative_cube()[1]), evaluate=False).model_
    found = explain_at(model, scene, 3, 3)
    assert found.per_pixel.shape == (1, 32) and found.view == (17, 2) and len(found.couplings) == 8


@pytest.mark.scene
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["indian-pines", "salinas-a"])
def test_the_deletion_check_holds_in_real_scenes(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_DATA", str(real_data))
    scene, labels = open_scene(name), open_labels(name)
    model = ConvCapsClassifier(train=0.1, epochs=30).fit(scene, labels, evaluate=False).model_
    checks = [explain_class(model, scene, entry.label, most=6).deletion for entry in model.legend]
    assert np.mean([c.without_top for c in checks]) < np.mean([c.without_random for c in checks])


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(trained: ConvCapsClassifier, tmp_path: Path) -> tuple[Path, Path]:
    trained.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "cube.npy", make_cube()[0])
    (tmp_path / "waves.txt").write_text("\n".join(str(400 + 10 * i) for i in range(26)))
    return tmp_path / "model.safetensors", tmp_path / "cube.npy"


def test_explain_writes_a_picture_and_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    from matplotlib.image import imread

    waves = "--wavelengths", tmp_path / "waves.txt"
    out, numbers = tmp_path / "why.png", tmp_path / "why.json"
    result = hypercaps("explain", *files, *waves, "--at", "4,30", "--out", out, "--json", numbers)
    assert result.exit_code == 0, result.output
    assert "row 4, column 30" in result.output and " nm (" in result.output and "why.png" in result.output
    assert min(imread(out).shape[:2]) > 200
    about = json.loads(numbers.read_text())
    assert about["class"] == {"label": 3, "name": "class 3"} and about["pixels"] == [[4, 30]]
    assert about["wavelengths_nm"][0] == 400 and len(about["relevance"]) == len(about["share"]) == 26


def test_explain_a_class_prints_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = hypercaps("explain", *files, "--wavelengths", tmp_path / "waves.txt", "--class", "class 1", "--json", "-")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["pixels"]) == 100


@pytest.mark.parametrize(
    "options, sentence",
    [
        ([], "name a pixel"),
        (["--at", "4"], "a row and a column"),
        (["--at", "99,1"], "outside scene"),
        (["--class", "water"], "no class 'water'"),
        (["--at", "1,1", "--out", "why.txt"], "must end in .png"),
    ],
)
def test_explain_refuses_bad_input_in_one_sentence(
    files: tuple[Path, Path], tmp_path: Path, options: list[str], sentence: str
) -> None:
    result = hypercaps("explain", *files, "--wavelengths", tmp_path / "waves.txt", *options)
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert sentence in " ".join(result.output.split())


def test_without_wavelengths_bands_have_numbers(trained: ConvCapsClassifier) -> None:
    model = replace(trained.model_, wavelengths=None)
    found = explain_at(model, Scene.from_array(make_cube()[0]), 3, 3)
    assert found.wavelengths is None and found.describe()["wavelengths_nm"] is None
