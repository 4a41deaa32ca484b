"""The package: one version everywhere, extras that hold what they name, and what ``make dist`` accepts."""

from __future__ import annotations

import importlib.util
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from types import ModuleType

import pytest

import hypercaps

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: Iterable[str]) -> set[str]:
    """Names of distributions in requirements."""
    found = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {match[0].lower() for match in found if match}


def test_one_version_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {hypercaps.__version__}\n" in citation
    assert re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)[0] == hypercaps.__version__


def test_an_extra_holds_what_it_names_and_nothing_that_is_installed_anyway() -> None:
    extras = {name: names(needed) for name, needed in PROJECT["optional-dependencies"].items()}
    assert {"dask", "distributed"} <= extras["cluster"]
    assert {"fastapi", "uvicorn"} <= extras["serve"]
    assert {"sphinx", "furo", "myst-nb"} <= extras["docs"]
    assert {"xarray", "rioxarray"} <= extras["xarray"] and {"onnx"} <= extras["onnx"]
    for name in ("cluster", "serve", "docs", "xarray", "onnx"):
        assert not extras[name] & names(PROJECT["dependencies"]), name


def test_every_requirement_has_an_exact_version() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in text.splitlines()}
    needed = names(PROJECT["dependencies"]).union(*map(names, PROJECT["optional-dependencies"].values()))
    assert {name.replace("_", "-") for name in needed} - {"hypercaps"} <= pinned


@pytest.fixture
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_dist", ROOT / "release" / "check_dist.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WHEEL = {
    "hypercaps/py.typed": "",
    "hypercaps/io/scenes.toml": "",
    "hypercaps/compute/native/_kernels_baseline.so": "",
    "hypercaps-0.dist-info/licenses/LICENSE": "",
    **{f"hypercaps/workbench/static/{name}": "" for name in ("app.js", "app.css", "index.html", "icon.svg")},
    "hypercaps/workbench/static/licences.txt": f"ol 10\n\ntext\n\n{'-' * 80}\n\nuplot 1\n\ntext\n",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"hypercaps/compute/native/_kernels_baseline.so": None}, "lacks the compiled kernels"),
        ({"hypercaps/workbench/static/app.js": None}, "lacks hypercaps/workbench/static/app.js"),
        ({"hypercaps-0.dist-info/licenses/LICENSE": None}, "lacks the licence of hypercaps"),
        ({"hypercaps/workbench/static/licences.txt": "ol 10\n\ntext\n"}, "lacks the licences of uplot"),
        ({"hypercaps/workbench/frontend/src/main.ts": ""}, "has hypercaps/workbench/frontend"),
    ],
)
def test_a_wheel_without_kernels_page_or_licences_is_refused(
    checks: ModuleType, tmp_path: Path, change: dict[str, str | None], said: str | None
) -> None:
    wheel = tmp_path / "hypercaps-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (WHEEL | change).items():
            if text is not None:
                archive.writestr(name, text)
    if said is None:
        checks.check_wheel(wheel)
    else:
        with pytest.raises(SystemExit, match=said):
            checks.check_wheel(wheel)


@pytest.mark.parametrize("missing", [None, "src/hypercaps/workbench/static/app.js", "LICENSE", "hatch_build.py"])
def test_a_source_distribution_without_the_page_is_refused(
    checks: ModuleType, tmp_path: Path, missing: str | None
) -> None:
    page = [f"src/hypercaps/workbench/static/{name}" for name in (*checks.PAGE, "sources.sha256")]
    files = [*page, "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "hatch_build.py"]
    files += ["src/hypercaps/workbench/frontend/src/main.ts", "src/hypercaps/compute/native/kernels.c"]
    sdist = tmp_path / "hypercaps-0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in files:
            if name != missing:
                archive.addfile(tarfile.TarInfo(f"hypercaps-0/{name}"), BytesIO())
    if missing is None:
        checks.check_sdist(sdist)
    else:
        with pytest.raises(SystemExit, match=f"lacks {missing}"):
            checks.check_sdist(sdist)
