"""docs/run-folder.md describes every file of a run folder and every key of metrics.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.pipeline.run_files import RUN_FILES
from support.scenes import make_cube

PAGE = (Path(__file__).parents[1] / "docs" / "run-folder.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\s]+)`", PAGE))
FREE = ("inputs", "params", "versions", "both")  # their keys are names of options, packages and splits


def keys(value: object) -> Iterator[str]:
    """All keys of a record, nested ones included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in FREE:
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.mark.parametrize(
    "options",
    [
        "--split random --train 0.3 --method lda --coverage 0.9 --probabilities --both --block 10",
        "--split folds --method auto --candidates lda,logistic",
    ],
)
def test_every_file_and_key_of_a_run_is_described(
    options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_cube(rows=60, cols=60)
    np.save("cube.npy", cube)
    np.save("labels.npy", labels)
    command = ["train", "cube.npy", "labels.npy", "--out", "run", "--quiet", *options.split()]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    written = {path.name for path in Path("run").iterdir()}
    assert "metrics.json" in written and written <= WORDS, written - WORDS
    metrics = json.loads(Path("run/metrics.json").read_text())
    found = set(keys(metrics))
    assert {"oa", "per_class", "users_interval", "baseline"} <= found
    assert found <= WORDS, found - WORDS


def test_every_possible_file_is_described() -> None:
    assert set(RUN_FILES) <= WORDS, set(RUN_FILES) - WORDS
