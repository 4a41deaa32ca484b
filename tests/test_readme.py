"""Runs the commands and the Python code that the README and the pages of docs/ show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pyogrio
import pytest
import rasterio.features
import scipy.io
import shapely
from typer.testing import CliRunner

from hypercaps import open_labels
from hypercaps.cli import app
from hypercaps.errors import DataWarning
from support.rasters import GRID
from support.rasters import write as write_raster
from support.scenes import make_cube
from support.vectors import write as write_vector

ROOT = Path(__file__).parents[1]
CLASS_NAMES = ["reed", "birch", "sand"]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(page: str) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("hypercaps ")]


def run_command(line: str) -> None:
    args = shlex.split(line, comments=True)[1:]
    if args[0] == "train" and "--method" not in args:
        args += ["--candidates", "lda,logistic"]  # the time is in the networks
    elif args[0] == "train" and "lda" not in args:
        args += ["--epochs", "1"]
    if args[0] == "study":
        args += ["--methods", "rbf-svm"]  # and in the networks
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, f"{line}\n{result.output}"


def test_the_commands_of_the_readme_work_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_cube(rows=60, cols=60)
    for name in ("scene.tif", "next.tif"):
        write_raster(Path(name), cube, "float32", crs="EPSG:32633", transform=GRID)
    shapes = rasterio.features.shapes(labels, mask=labels > 0, transform=GRID)
    fields = [(shapely.geometry.shape(shape), CLASS_NAMES[int(label) - 1]) for shape, label in shapes]
    polygons, kinds = zip(*fields, strict=True)
    write_vector(Path("fields.gpkg"), polygons, {"kind": kinds}, grid=None)
    first, *lines = commands("README.md")
    assert first == "hypercaps train indian-pines --out runs/first"
    run_command(f"{first.replace('first', 'demo')} --method convcapsnet")
    assert [line.split()[1] for line in lines] == ["train", "suggest", "train", "map"]
    for line in lines:
        run_command(line)
        if "suggest" in line:  # step 4 of the loop: somebody enters the classes of the points in a GIS
            label_points(Path("points-1.gpkg"))
    assert {"map.tif", "confidence.tif"} <= {path.name for path in tmp_path.iterdir()}


def label_points(path: Path) -> None:
    """Fill the empty field ``kind`` of suggested points with their true class: three stripes of 20 columns each."""
    meta, _, geometries, values = pyogrio.raw.read(path)
    fields = dict(zip(meta["fields"], values, strict=True))
    assert set(fields["kind"]) == {""}
    fields["kind"] = [CLASS_NAMES[column // 20] for column in fields["col"]]
    path.unlink()
    write_vector(path, list(shapely.from_wkb(geometries)), fields, grid=None)


@pytest.mark.parametrize(("page", "count"), [("docs/data.md", 10), ("docs/methods.md", 3)])
def test_the_commands_of_a_page_work_in_their_order(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cube, labels = make_cube(rows=60, cols=60)
    scipy.io.savemat("cube.mat", {"cube": cube})
    scipy.io.savemat("labels.mat", {"labels": labels})
    lines = commands(page)
    assert len(lines) == count
    for line in lines:
        run_command(line)


def test_the_python_code_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, arrays, netcdf, auto, search = blocks("docs/python.md", "python")
    assert "epochs=50" in code and 'method="auto", split_by="folds"' in auto
    scope: dict[str, object] = {}
    exec(code.replace("epochs=50", "epochs=1"), scope)
    exec(arrays, {})
    assert [entry.name for entry in open_labels("map.tif").legend] == ["water", "bare soil"]
    exec(netcdf, scope)
    assert {"Corn-notill", "Woods"} <= {entry.name for entry in scope["again"].legend}
    with pytest.warns(DataWarning, match="Alfalfa, .* can't be tested"):
        exec(auto.replace('method="auto"', 'method="auto", candidates=["lda", "lda-3"]'), scope)
    assert scope["classes"].shape == (145, 145) and scope["lengths"].shape == (145, 145, 16)
    np.testing.assert_array_equal(scope["same"], scope["classes"])
    exec(search.replace("[1, 3, 7]", "[1, 3]").replace("GroupKFold(5)", "GroupKFold(2)"), scope)
    assert 0.4 < scope["search"].best_score_ < 0.9


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make (\w+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert targets >= {"demo", "test"}
    for target in targets | {"setup", "check", "docs", "bench"}:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_front_page_begins_with_the_commands_of_the_readme() -> None:
    first, *_ = blocks("README.md", "sh")
    assert first == blocks("docs/index.md", "sh")[0]
    assert first.splitlines() == ["pip install -c constraints.txt .", "hypercaps train indian-pines --out runs/first"]


def test_every_linked_file_exists() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page} links to {target}"


def test_every_page_that_the_program_names_exists() -> None:
    """In the help of commands, in messages and in comments."""
    sources = [*ROOT.glob("src/hypercaps/**/*.py"), *ROOT.glob("src/hypercaps/**/*.c")]
    named = {page for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))}
    assert len(named) >= 10
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


def test_every_page_is_in_the_index_once() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", index, flags=re.MULTILINE)
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")} - {"index.md"}
    of_root = {f"../{Path(page).stem.upper()}.md" for page in pages if page.startswith("project/")}
    assert sorted(listed) == sorted({page for page in pages if not page.startswith("project/")} | of_root)
