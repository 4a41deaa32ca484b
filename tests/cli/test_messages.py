"""Messages about the arguments of a command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from support.scenes import make_cube


@pytest.fixture
def tiles(tmp_path: Path) -> list[str]:
    names = [str(tmp_path / f"tile_{k}.npy") for k in range(3)]
    for name in names:
        np.save(name, make_cube()[0])
    return names


def test_a_pattern_of_tiles_that_the_shell_replaced(tiles: list[str], tmp_path: Path) -> None:
    pattern = str(tmp_path / "*.npy")
    for command in (["info", *tiles], ["map", "model.safetensors", *tiles, "--out", str(tmp_path / "map.tif")]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2
        assert result.stderr.startswith("Error: several files like") and f"in quotes, '{pattern}'" in result.stderr


def test_a_tile_as_labels(tiles: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", *tiles, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2 and "as a scene does; if it is one of several tiles, put their" in result.stderr


def test_other_extra_arguments_are_named(tiles: list[str]) -> None:
    result = CliRunner().invoke(app, ["info", tiles[0], "other", "more"])
    assert result.exit_code == 2 and "unexpected extra argument" in result.output and "quotes" not in result.output
