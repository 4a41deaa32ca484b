"""The QGIS plugin without QGIS: which files layers are, where the program is, and the command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypercaps_qgis.commands import (
    METHODS,
    SPLITS,
    CommandError,
    Labels,
    LayerSource,
    child_environment,
    evaluate_command,
    find_program,
    map_command,
    raster_argument,
    suggest_command,
    train_command,
    vector_argument,
)
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.data.splits.request import KINDS
from hypercaps.models.descriptions import DESCRIPTIONS

FIELDS = Labels("fields.gpkg:crops", "crop")
COMMANDS = {
    "train": train_command("s.tif", FIELDS, "out", method="mlp", split="random", epochs=3, seed=1, force=True),
    "map": map_command(
        "m.safetensors", "s.tif", "map.tif", layers={"confidence": "c.tif", "familiarity": ""},
        options={"reject": 0.5, "unknown": None, "resample": True, "mask": "mask.gpkg"},
    ),
    "evaluate": evaluate_command("m.safetensors", "s.tif", FIELDS, "scores.json"),
    "suggest": suggest_command("m.safetensors", "s.tif", "p.gpkg", number=5, labels=FIELDS, mask="mask.gpkg"),
}  # fmt: skip


def layer(provider: str, source: str | Path, **parts: object) -> LayerSource:
    return LayerSource("my layer", provider, str(source), {"path": str(source), **parts})


def test_a_raster_layer_is_its_file(tmp_path: Path) -> None:
    path = tmp_path / "scene, of June.tif"
    path.touch()
    assert raster_argument(layer("gdal", path)) == str(path)


@pytest.mark.parametrize(
    ("source", "key"), [('NETCDF:"{}":reflectance', "reflectance"), ('HDF5:"{}"://deep/cube', "deep/cube")]
)
def test_one_array_of_several_is_named_by_its_key(tmp_path: Path, source: str, key: str) -> None:
    path = tmp_path / "cube.nc"
    path.touch()
    assert raster_argument(layer("gdal", source.format(path))) == f"{path}:{key}"


@pytest.mark.parametrize(
    ("provider", "source", "parts"),
    [
        ("wms", "url=https://example.org/wms&layers=a", {}),
        ("gdal", "/vsicurl/https://example.org/scene.tif", {}),
        ("gdal", "{}", {"vsiPrefix": "/vsizip/", "vsiSuffix": "/scene.tif"}),
        ("gdal", "{}", {"layerName": "raster"}),  # a raster in a GeoPackage
        ("gdal", "gone.tif", {}),
        ("virtualraster", "{}", {}),
    ],
)
def test_a_raster_layer_that_is_no_file_is_refused_in_a_sentence(
    tmp_path: Path, provider: str, source: str, parts: dict[str, object]
) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(CommandError, match=r"'my layer' is not a file on this computer.*Save As"):
        raster_argument(layer(provider, source.format(path), **parts))


def test_a_file_that_was_moved_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "moved.tif")
    with pytest.raises(CommandError, match=r"the file of layer 'my layer', .*moved\.tif, is not there any more"):
        raster_argument(layer("gdal", path, path=path))


def test_labels_are_read_from_their_file_where_it_says_all(tmp_path: Path) -> None:
    path = tmp_path / "fields.gpkg"
    path.touch()
    assert vector_argument(layer("ogr", path)) == str(path)
    assert vector_argument(layer("ogr", path, layerName="crops")) == f"{path}:crops"
    for parts in ({"layerName": "a:b"}, {"subset": "crop = 1"}, {"layerId": 1}, {"vsiPrefix": "/vsizip/"}):
        assert vector_argument(layer("ogr", path, **parts)) is None
    assert vector_argument(layer("memory", "Polygon?crs=EPSG:4326")) is None


def program(folder: Path, name: str = "hypercaps") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_the_program_is_found_by_the_setting_on_path_or_in_the_home_folder(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path / "path"), "HOME": str(tmp_path / "home")}
    of_env = program(tmp_path / "env" / "bin")
    of_home = program(tmp_path / "home" / ".local" / "bin")
    assert find_program("", environment) == str(of_home)
    on_path = program(tmp_path / "path")
    assert find_program("", environment) == str(on_path)
    assert find_program(str(of_env), environment) == find_program(str(tmp_path / "env"), environment) == str(of_env)


def test_a_missing_program_is_one_sentence(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    with pytest.raises(CommandError, match="install it in a Python environment"):
        find_program("", environment)
    with pytest.raises(CommandError, match=r"no program hypercaps at .*correct it"):
        find_program(str(tmp_path / "nowhere"), environment)


def test_hypercaps_does_not_get_the_python_of_qgis() -> None:
    given = {"PYTHONHOME": "/qgis", "PYTHONPATH": "/qgis", "PROJ_LIB": "/qgis", "PATH": "/bin"}
    assert child_environment(given) == {"PATH": "/bin", "PYTHONIOENCODING": "utf-8", "COLUMNS": "110"}


def test_a_training_passes_on_what_was_chosen() -> None:
    assert train_command("s.tif", FIELDS, "out", more="--val 0.1 --mask 'my mask.gpkg'") == [
        "train", "s.tif", "fields.gpkg:crops", "--out", "out", "--class-field", "crop",
        "--val", "0.1", "--mask", "my mask.gpkg", "--progress", "json",
    ]  # fmt: skip
    with pytest.raises(CommandError, match="further options"):
        train_command("s.tif", FIELDS, "out", more="'")


@pytest.mark.parametrize("name", COMMANDS)
def test_hypercaps_knows_every_option(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing but the files: the model, or for train the scene."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, COMMANDS[name])
    assert result.exit_code == 2 and '"event": "error"' in result.stderr
    assert ("s.tif" if name == "train" else "m.safetensors") in result.stderr, result.stderr


def test_the_plugin_offers_every_method_and_split() -> None:
    assert set(METHODS) == {"auto", *(description.name for description in DESCRIPTIONS.values())}
    assert set(SPLITS) == set(KINDS)
