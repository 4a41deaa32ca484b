"""Write dist/hypercaps_qgis.zip, as QGIS installs it (Plugins > Manage and Install Plugins > Install from ZIP).

python qgis/build_plugin.py [FILE]
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "qgis" / "hypercaps_qgis"
SUFFIXES = {".py", ".txt", ".svg", ".md"}


def hypercaps_version() -> str:
    text = (ROOT / "src" / "hypercaps" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def plugin_files() -> dict[str, bytes]:
    """Names in the archive and their contents; the plugin has the version of hypercaps."""
    files = {
        path.relative_to(PLUGIN.parent).as_posix(): path.read_bytes()
        for path in sorted(PLUGIN.rglob("*"))
        if path.suffix in SUFFIXES
    }
    metadata = files["hypercaps_qgis/metadata.txt"].decode()
    metadata = re.sub(r"^version=.*$", f"version={hypercaps_version()}", metadata, flags=re.MULTILINE)
    licence = {"hypercaps_qgis/LICENSE": (ROOT / "LICENSE").read_bytes()}
    return {**files, "hypercaps_qgis/metadata.txt": metadata.encode(), **licence}


def build(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in plugin_files().items():
            # The same files give the same archive
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "hypercaps_qgis.zip"
    build(target)
    print(f"wrote {target}")  # noqa: T201
