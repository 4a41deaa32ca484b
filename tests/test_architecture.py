"""Packages import only packages before them, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hypercaps

SRC = Path(hypercaps.__file__).parent

# A package imports itself and packages of earlier rows. ARCHITECTURE.md lists them in the same order.
LAYERS = [
    ["errors"], ["compute", "data"], ["models", "io"], ["training"], ["inference"], ["selection"], ["classifier"],
    ["loading"], ["sklearn"], ["report"], ["pipeline"], ["study", "workbench"], ["cli"],
]  # fmt: skip
PACKAGES = [package for layer in LAYERS for package in layer]
HOMES = {
    "torch": {"compute", "models", "training", "inference", "selection", "classifier"},
    "rasterio": {"io"},
    "h5py": {"io"},
    "defusedxml": {"io"},
    "isal": {"io"},
    "h5netcdf": set(),
    "xarray": {"io"},
    "rioxarray": set(),
    "IPython": {"inference"},
    "zarr": {"io"},
    "pyogrio": {"io"},
    "shapely": {"io"},
    "dask": {"compute"},
    "distributed": {"compute"},
    "scipy": {"data", "io", "training", "inference", "selection", "study", "workbench"},
    "pooch": {"io"},
    "matplotlib": {"report"},
    "sklearn": {"models", "inference", "classifier", "sklearn"},
    "psutil": {"compute"},
    "threadpoolctl": {"compute"},
    "jinja2": {"report"},
    "typer": {"cli"},
    "rich": {"cli"},
    "fastapi": {"workbench"},
    "starlette": {"workbench"},
    "pydantic": {"workbench"},
    "anyio": {"workbench"},
    "uvicorn": {"workbench"},
}
# The only imports against the order, made when they are used: what io and report do for methods of Scene and others.
UPWARD = {
    ("data/display.py", "hypercaps.report.notebook.html_of"),
    ("data/display.py", "hypercaps.report.notebook.draw"),
    ("data/scene.py", "hypercaps.io.readers.xarray.scene_from_xarray"),
    ("data/scene.py", "hypercaps.io.readers.georeference.given_georeference"),
    ("data/labels.py", "hypercaps.io.readers.xarray.legend_of"),
    ("data/labels.py", "hypercaps.io.readers.xarray.map_by_names"),
}


def package_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def may_import(package: str) -> set[str]:
    level = next(number for number, layer in enumerate(LAYERS) if package in layer)
    return {package, *(other for layer in LAYERS[:level] for other in layer)}


def imports(path: Path, *, loaded: bool = False) -> set[str]:
    """Names that a file imports; with ``loaded`` without those that only its annotations use."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if loaded:
        tree.body = [node for node in tree.body if not _is_for_types(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


FILES = sorted(path for path in SRC.rglob("*.py") if path not in (SRC / "__init__.py", SRC / "__main__.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_package_imports_only_packages_before_it(path: Path) -> None:
    package = package_of(path)
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "hypercaps" and rest != "__version__" and (path.relative_to(SRC).as_posix(), name) not in UPWARD:
            assert rest.split(".")[0] in may_import(package), f"{package} imports {name}"
    for name in imports(path, loaded=True):
        if (top := name.partition(".")[0]) in HOMES:
            assert package in HOMES[top], f"{package} imports {name}"


def test_every_package_is_on_the_list_and_in_the_architecture() -> None:
    assert {package_of(path) for path in FILES} == set(PACKAGES)
    page = (SRC.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = [line.split("`")[1].rstrip("/") for line in page.splitlines() if line.startswith("| `")]
    assert listed == PACKAGES


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def test_help_answers_without_torch() -> None:
    code = """
import sys
from typer.testing import CliRunner
from hypercaps.cli import app
for command in ([], ["train"], ["map"], ["evaluate"], ["scenes"], ["scenes", "download"], ["info"],
                ["methods"], ["study"], ["explain"], ["suggest"], ["serve"]):
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output
    assert "xample" in result.output or not command, command
print(sorted({"torch", "numpy", "rasterio", "sklearn", "matplotlib"} & set(sys.modules)))
"""
    assert run_python(code).strip() == "[]"


def test_importing_hypercaps_imports_nothing_heavy_and_shows_the_public_names() -> None:
    assert run_python("import hypercaps, sys; print('torch' in sys.modules, 'numpy' in sys.modules)") == "False False\n"
    assert set(hypercaps.__all__) == {
        "ClassMap", "ConvCapsClassifier", "HypercapsError", "Labels", "Legend", "Scene", "SceneCache", "Scores",
        "Split", "load_model", "open_labels", "open_mask", "open_scene", "open_split", "split_blocks",
        "split_by_share", "split_per_class", "split_polygons",
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
