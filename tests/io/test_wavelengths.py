"""The user's wavelengths, and whose are taken where several places speak of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import DataWarning, SceneError
from hypercaps.io.open import open_scene
from hypercaps.io.wavelengths import given_wavelengths
from support.rasters import CUBE, write
from support.scenes import make_cube

WAVES = [400.0, 500.0, 600.0, 700.0]


@pytest.mark.parametrize(
    ("text", "fwhm"),
    [
        ("400\n500\n600\n700\n", None),
        ("wavelength\n0.4\n0.5\n0.6\n0.7", None),
        ("# of the sensor\nwavelength_nm,fwhm_nm\n400,5\n500,6\n\n600,7\n700,8\n", [5, 6, 7, 8]),
        ("0.4; 0.005\r\n0.5; 0.006\r\n0.6; 0.007\r\n0.7; 0.008", [5, 6, 7, 8]),
        ("\ufeff400\t5\n500\t6\n600\t7\n700\t8", [5, 6, 7, 8]),
        ("400   5\n500   6\n600   7\n 700 8", [5, 6, 7, 8]),
    ],
)
def test_a_file_of_wavelengths(text: str, fwhm: list[float] | None, tmp_path: Path) -> None:
    (tmp_path / "waves.csv").write_text(text, encoding="utf-8")
    scene = open_scene(write(tmp_path / "a.tif"), wavelengths=tmp_path / "waves.csv")
    np.testing.assert_allclose(scene.wavelengths, WAVES)
    if fwhm is None:
        assert scene.fwhm is None
    else:
        np.testing.assert_allclose(scene.fwhm, fwhm)


def test_numbers_from_python(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif")
    np.testing.assert_allclose(open_scene(path, wavelengths=WAVES).wavelengths, WAVES)
    scene = open_scene(path, wavelengths=np.array([[0.4, 0.01], [0.5, 0.01], [0.6, 0.01], [0.7, 0.01]]))
    np.testing.assert_allclose(scene.wavelengths, WAVES)
    np.testing.assert_allclose(scene.fwhm, 10)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("400\n500\n600", r"waves\.txt holds 3 wavelengths but .*a\.tif has 4 bands"),
        ("400\n500\nred\n700", "'red' in line 3"), ("400\nnan\n600\n700", r"\[nan\] for band 2"),
        ("400\n-500\n600\n700", r"\[-500\.0\] for band 2"), ("400\n500\n600,7\n700", "'600 7' in line 3"),
        ("1,2,3\n1,2,3\n1,2,3\n1,2,3", "'1 2 3' in line 1"), ("wavelength\n", "holds no wavelengths"),
        ("", "no wavelengths"),
        (b"\xff\xfe\x00", "is not text"), (None, r"waves\.txt can't be read: no such file"),
        ([400, 500], "array of wavelengths holds 2 wavelengths"), ([[1, 2, 3]] * 4, "has shape"), ([], "has shape"),
        ([400, 500, "red", 700], "numbers in nm or micrometres"), ([400, 500, float("inf"), 700], "for band 3"),
    ],
)  # fmt: skip
def test_wavelengths_that_can_not_be_meant(given: Any, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif")
    if isinstance(given, str | bytes):
        (tmp_path / "waves.txt").write_bytes(given.encode() if isinstance(given, str) else given)
    if not isinstance(given, list):
        given = tmp_path / "waves.txt"
    with pytest.raises(SceneError, match=sentence):
        open_scene(path, wavelengths=given)


def test_wavelengths_of_the_file_are_kept_and_it_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", tags=[{"wavelength": str(wave), "fwhm": "6"} for wave in WAVES])
    with pytest.warns(DataWarning, match=r"a\.tif has wavelengths that differ .* by up to 1\.5 nm: its own are kept"):
        scene = open_scene(path, wavelengths=[400, 501.5, 600, 700])
    np.testing.assert_allclose(scene.wavelengths, WAVES)
    open_scene(path, wavelengths=[400, 500.01, 600, 700])  # the same, in other digits: nothing to say
    with pytest.warns(DataWarning, match="band widths that differ"):
        open_scene(path, wavelengths=[[wave, 9.0] for wave in WAVES])


def test_widths_are_added_to_wavelengths_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", tags=[{"wavelength": str(wave)} for wave in WAVES])
    np.testing.assert_allclose(open_scene(path, wavelengths=[[wave, 9.0] for wave in WAVES]).fwhm, 9)


def test_a_later_place_adds_widths_only_for_the_same_bands(tmp_path: Path) -> None:
    imagery = [{"CENTRAL_WAVELENGTH_UM": str(wave / 1000)} for wave in WAVES]
    same = [{"wavelength": str(wave), "fwhm": "5"} for wave in WAVES]
    other = [{"wavelength": str(wave + 9), "fwhm": "5"} for wave in WAVES]
    assert open_scene(write(tmp_path / "a.tif", imagery=imagery, tags=same)).fwhm is not None
    assert open_scene(write(tmp_path / "b.tif", imagery=imagery, tags=other)).fwhm is None


def test_wavelengths_that_step_back_are_sorted_with_their_bands(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", CUBE.astype(np.float32))
    for path in (tmp_path / "a.npy", write(tmp_path / "a.tif")):
        with pytest.warns(DataWarning, match="decrease in one place"):
            scene = open_scene(path, wavelengths=[400, 600, 500, 700])
        assert scene.name == "a"
        np.testing.assert_allclose(scene.wavelengths, WAVES)
        np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 2, 1, 3]])


def test_a_public_scene_knows_its_own() -> None:
    with pytest.warns(DataWarning, match="wavelengths that differ"):
        scene = open_scene("indian-pines", wavelengths=np.linspace(400, 2500, 200))
    assert scene.name == "indian-pines" and scene.wavelengths is not None
    assert scene.wavelengths.tolist() == pytest.approx(open_scene("indian-pines").wavelengths)


def test_units_are_told_by_size() -> None:
    assert given_wavelengths([0.4, 2.5]).wavelengths.tolist() == [400, 2500]
    assert given_wavelengths([400, 12_000]).wavelengths.tolist() == [400, 12_000]


def test_the_option(tmp_path: Path) -> None:
    cube, gt = make_cube()
    np.save(tmp_path / "a.npy", cube)
    np.save(tmp_path / "gt.npy", gt)
    (tmp_path / "waves.txt").write_text("\n".join(str(wave) for wave in np.linspace(0.4, 1.0, 26)))
    option = ["--wavelengths", str(tmp_path / "waves.txt")]
    scene, labels, run = str(tmp_path / "a.npy"), str(tmp_path / "gt.npy"), tmp_path / "run"
    model = str(run / "model.safetensors")

    def invoke(*args: str) -> Any:
        return CliRunner().invoke(app, [*args])

    about = json.loads(invoke("info", scene, "--json", *option).stdout)
    assert about["wavelength_range_nm"] == [400, 1000]
    assert invoke("train", scene, labels, "--out", str(run), "--method", "rbf-svm", *option).exit_code == 0
    assert json.loads(invoke("info", model, "--json").stdout)["wavelengths_nm"][-1] == 1000
    assert invoke("map", model, scene, "--out", str(tmp_path / "map.tif"), *option).exit_code == 0
    assert invoke("evaluate", model, scene, labels, *option).exit_code == 0
    (tmp_path / "waves.txt").write_text("400\n")
    refused = invoke("map", model, scene, "--out", str(tmp_path / "b.tif"), *option)
    assert refused.exit_code == 2 and "holds 1 wavelengths" in " ".join(refused.output.split())
    assert not (tmp_path / "b.tif").exists()
    refused = invoke("info", labels, *option)
    assert refused.exit_code == 2 and "leave them out" in " ".join(refused.output.split())
