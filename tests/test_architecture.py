"""The rooms import only rooms above them, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hypercaps

SRC = Path(hypercaps.__file__).parent

# From the ground up: a room may import those before it. The list in ARCHITECTURE.md, in the same order.
ROOMS = [
    "errors", "native", "devices", "scene", "tiling", "resampling", "splits", "metrics", "calibration", "io",
    "whitening", "capsules", "models", "patches", "training", "flow", "selftraining", "parallel", "checks", "modelfile",
    "mapping", "scoring", "explain", "suggest", "classifier", "cluster", "describe", "quicklook", "signatures", "plots",
    "webpage", "maps", "report", "evaluation", "run", "study", "bars", "terminal", "messages", "arguments", "cli",
]  # fmt: skip
HOMES = {
    "torch": {
        "native",
        "devices",
        "whitening",
        "capsules",
        "models",
        "patches",
        "training",
        "selftraining",
        "parallel",
        "modelfile",
        "mapping",
        "explain",
        "classifier",
    },
    "rasterio": {"io"},
    "h5py": {"io"},
    "h5netcdf": set(),
    "xarray": set(),
    "zarr": {"io"},
    "pyogrio": {"io"},
    "shapely": {"io"},
    "dask": {"cluster"},
    "distributed": {"cluster"},
    "lightning_fabric": {"parallel"},
    "scipy": {"splits", "calibration", "io", "flow", "study"},
    "pooch": {"io"},
    "matplotlib": {"plots"},
    "sklearn": {"calibration", "models", "classifier"},
    "psutil": {"devices", "training"},
    "jinja2": {"webpage"},
    "typer": {"messages", "arguments", "cli"},
    "rich": {"bars", "terminal", "messages"},
}


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(path for path in SRC.rglob("*.py") if path not in (SRC / "__init__.py", SRC / "__main__.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "hypercaps" and rest != "__version__":
            other = rest.split(".")[0]
            allowed = {"capsules", "errors", "models"} if room == "models" else set(ROOMS[: ROOMS.index(room) + 1])
            assert other in allowed, f"{room} imports {name}"
        elif top in HOMES:
            assert room in HOMES[top], f"{room} imports {name}"


def test_every_room_is_on_the_list_and_in_the_architecture() -> None:
    assert {room_of(path) for path in FILES} == set(ROOMS)
    page = (SRC.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1].rstrip("/") for line in page.splitlines() if line.startswith("| `")]
    assert listed == ROOMS


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def test_help_answers_without_torch() -> None:
    code = """
import sys
from typer.testing import CliRunner
from hypercaps.cli import app
for command in ([], ["train"], ["map"], ["evaluate"], ["scenes"], ["scenes", "download"], ["info"],
                ["methods"], ["study"], ["explain"], ["suggest"]):
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output
    assert "xample" in result.output or not command, command
print(sorted({"torch", "numpy", "rasterio", "sklearn", "matplotlib"} & set(sys.modules)))
"""
    assert run_python(code).strip() == "[]"


def test_importing_hypercaps_imports_nothing_heavy_and_shows_the_public_names() -> None:
    assert run_python("import hypercaps, sys; print('torch' in sys.modules, 'numpy' in sys.modules)") == "False False\n"
    assert set(hypercaps.__all__) == {
        "ConvCapsClassifier", "HypercapsError", "Labels", "Legend", "Scene", "Split", "load_model", "open_labels",
        "open_mask", "open_scene", "open_split", "split_blocks", "split_by_share", "split_per_class", "split_polygons",
    }  # fmt: skip
    for name in hypercaps.__all__:
        assert getattr(hypercaps, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        _ = hypercaps.nothing


def test_nothing_that_can_run_code_from_a_file_is_called() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"torch.load", "pickle.load", "pickle.loads", "joblib.load", "eval", "exec"}, path
                if called == "np.load":
                    assert "allow_pickle=False" in ast.unparse(node), path
