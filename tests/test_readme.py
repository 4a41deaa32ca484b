"""What the README tells people to type is typed here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

from hypercaps.cli import app
from support.scenes import make_cube

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_commands_work_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_cube(rows=60, cols=60)
    scipy.io.savemat("cube.mat", {"cube": cube})
    scipy.io.savemat("labels.mat", {"labels": labels})
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("hypercaps ")]
    assert len(lines) >= 9
    for line in lines:
        args = shlex.split(line, comments=True)[1:]
        if args[0] == "train":
            args += ["--epochs", "1"]  # the time is in the epochs
        if args[0] == "study":
            args += ["--methods", "rbf-svm"]  # and in the networks
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, f"{line}\n{result.output}"
    assert {"map.tif", "confidence.tif"} <= {path.name for path in tmp_path.iterdir()}


def test_the_python_lines_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    assert "epochs=50" in code
    scope: dict[str, object] = {}
    exec(code.replace("epochs=50", "epochs=1"), scope)
    assert scope["classes"].shape == (145, 145) and scope["lengths"].shape == (145, 145, 16)
    np.testing.assert_array_equal(scope["same"], scope["classes"])


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {target for block in blocks("sh") for target in re.findall(r"^make (\w+)", block, flags=re.MULTILINE)}
    assert targets == {"demo", "test"}
    for target in targets | {"setup", "check", "bench"}:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_linked_file_is_there() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page} links to {target}"
