"""The command ``hypercaps serve``: what it refuses, and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.workbench import serving
from hypercaps.workbench.project import default_folder
from hypercaps.workbench.serving import LOCAL, host_names


@pytest.fixture
def with_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "index.html").write_text("<!doctype html>")
    monkeypatch.setattr(serving, "static_folder", lambda: tmp_path / "static")


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_without_the_page_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serving, "static_folder", lambda: tmp_path)
    assert "install node" in refused()


def test_without_its_libraries_it_says_how_to_get_them() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from hypercaps.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "serve"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "pip install 'hypercaps[serve]'" in " ".join(done.stderr.split())


@pytest.mark.usefixtures("with_page")
def test_scenes_and_folders_that_can_not_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.tif").write_bytes(b"II*\0")
    assert "broken.tif" in refused(str(tmp_path / "broken.tif"))
    assert "missing.npy" in refused(str(tmp_path / "missing.npy"))
    np.save(tmp_path / "scene.npy", np.ones((8, 8, 4), dtype=np.float32))
    (tmp_path / "file").write_text("x")
    assert "is a file" in refused(str(tmp_path / "scene.npy"), "--project", str(tmp_path / "file"))
    assert "memory" in refused(str(tmp_path / "scene.npy"), "--memory", "much")


def test_projects_lie_beside_their_scenes() -> None:
    assert default_folder("data/scene.tif") == Path("data/scene.hypercaps")
    assert default_folder("data/cube.mat:key") == Path("data/cube.hypercaps")
    assert default_folder("indian-pines") == Path("indian-pines.hypercaps")
    assert default_folder("tiles/*.tif") == Path("tiles/tiles.hypercaps")
    assert default_folder("tiles/a.tif,tiles/b.tif") == Path("tiles/a.hypercaps")


def test_a_host_has_its_own_names_only() -> None:
    assert host_names(LOCAL) == [LOCAL, "localhost"]
    assert host_names("192.168.1.5") == ["192.168.1.5"]
    assert host_names("::1") == ["[::1]"]
    assert "0.0.0.0" not in host_names("0.0.0.0")


SERVER = """
import sys
from pathlib import Path
from hypercaps.workbench import serving
page = Path(sys.argv.pop(1))
serving.static_folder = lambda: page
from hypercaps.cli import main
main()
"""


@pytest.mark.usefixtures("with_page")
def test_it_prints_one_address_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    np.save(tmp_path / "scene.npy", np.ones((8, 8, 4), dtype=np.float32))
    labels = np.zeros((8, 8), dtype=np.uint8)
    labels[2:4, 2:6] = 3
    np.save(tmp_path / "labels.npy", labels)
    command = [
        sys.executable,
        "-c",
        SERVER,
        str(tmp_path / "static"),
        "serve",
        "scene.npy",
        "labels.npy",
        "--no-browser",
    ]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | path, **pipes) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and "/?token=" in address
        with httpx.Client(trust_env=False) as http:
            assert http.get(address).status_code == 303
            state = http.get(address.partition("?")[0] + "api/state").json()
        assert state["project"] == "scene" and [one["count"] for one in state["classes"]] == [8]
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
        assert server.returncode == 0
    assert "in another browser: http://127.0.0.1:" in out
    assert "Everything is saved in scene.hypercaps" in err and "Traceback" not in err
    assert address.rpartition("=")[2] not in err
