"""The archive that QGIS installs."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import hypercaps

ROOT = Path(__file__).resolve().parents[2]
OF_QGIS = {"qgis", "processing"}


def test_the_archive_is_one_folder_with_metadata_and_licence(tmp_path: Path) -> None:
    target = tmp_path / "plugin.zip"
    subprocess.run([sys.executable, ROOT / "qgis" / "build_plugin.py", target], check=True, capture_output=True)
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
        assert {name.split("/")[0] for name in names} == {"hypercaps_qgis"}
        files = {"__init__.py", "metadata.txt", "LICENSE", "README.md", "icon.svg", "algorithms/train.py"}
        assert {f"hypercaps_qgis/{name}" for name in files} <= set(names)
        assert not any("pycache" in name for name in names)
        metadata = configparser.ConfigParser(interpolation=None)
        metadata.read_string(archive.read("hypercaps_qgis/metadata.txt").decode())
    assert metadata["general"]["version"] == hypercaps.__version__
    assert metadata["general"]["hasProcessingProvider"] == "yes"
    assert metadata["general"]["qgisMinimumVersion"] == "3.22"


def test_it_uses_only_qgis_and_the_standard_library() -> None:
    """The Python of QGIS has none of hypercaps' libraries, and may be as old as 3.9."""
    for path in (ROOT / "qgis" / "hypercaps_qgis").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        absolute = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
        used = {str(node.module).split(".")[0] for node in absolute}
        used |= {
            alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        assert used <= OF_QGIS | sys.stdlib_module_names, path
