"""The command line, run in this process."""

from __future__ import annotations

from pathlib import Path

from click.testing import Result
from typer.testing import CliRunner

from hypercaps.cli import app

# Files of a run folder
MAPS = {"map.tif", "map.tif.aux.xml", "map.qml", "confidence.tif", "familiarity.tif", "map.png"}
REPORT = {"report.html", "scene.png", "labels.png", "classes.json"}
RUN_FILES = {
    "model.safetensors", "metrics.json", "history.csv", "split.npz", "curves.png", "reliability.png", *MAPS, *REPORT,
}  # fmt: skip


def hypercaps(*args: object) -> Result:
    """The result of a command."""
    return CliRunner().invoke(app, [str(arg) for arg in args])


def hypercaps_on_wide_terminal(*args: object) -> Result:
    """The result of a command whose messages are not wrapped."""
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200"})


def refused(result: Result, *said: str, nothing_at: Path | None = None) -> None:
    """Check that a command was refused in one sentence that contains these words, and that nothing was written."""
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("Error: "), result.stderr
    assert "Traceback" not in result.output
    for words in said:
        assert words in result.stderr, result.stderr
    if nothing_at is not None:
        assert not nothing_at.exists()
