"""Where the program hypercaps is, and its command lines. Needs neither QGIS nor hypercaps."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

METHODS = (
    "auto", "convcapsnet", "lda", "logistic", "rbf-svm", "rbf-svm-window", "random-forest", "mlp", "se-2d-cnn",
    "3d-cnn", "c-cnn", "capsnet",
)  # fmt: skip
SPLITS = ("folds", "none", "random", "polygons", "blocks")

# QGIS sets these for its own libraries; the Python of hypercaps has others.
_OF_QGIS = (
    "PYTHONHOME", "PYTHONPATH", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "PROJ_LIB", "PROJ_DATA", "GDAL_DATA",
    "GDAL_DRIVER_PATH", "FORCE_COLOR",
)  # fmt: skip
_SUBDATASET = re.compile(r'(?:NETCDF|HDF5):"?(?P<file>[^"]+)"?:(?://)?(?P<key>[^":]+)', re.IGNORECASE)


class CommandError(Exception):
    """What the user has to change, in one sentence."""


@dataclass(frozen=True)
class LayerSource:
    """A layer as QGIS has it."""

    name: str  # in the layer tree
    provider: str  # gdal, ogr, memory, wms, postgres, ...
    source: str  # as QGIS writes it
    parts: Mapping[str, object]  # of the source, by QGIS

    @property
    def file(self) -> str | None:
        """The file behind the layer; None if there is none, or if it lies in an archive."""
        path = self.parts.get("path")
        is_plain = self.provider in ("gdal", "ogr") and not self.parts.get("vsiPrefix")
        return str(path) if is_plain and path and Path(str(path)).exists() else None


def raster_argument(layer: LayerSource) -> str:
    """The scene as hypercaps names it: FILE, or FILE:KEY for one array of NetCDF or HDF5."""
    match = _SUBDATASET.fullmatch(layer.source) if layer.provider == "gdal" else None
    if match and Path(match["file"]).is_file():
        return f"{match['file']}:{match['key']}"
    if layer.file is not None and not layer.parts.get("layerName"):
        return layer.file
    path = str(layer.parts.get("path") or "")
    is_plain = layer.provider == "gdal" and not layer.parts.get("vsiPrefix") and not path.startswith("/vsi")
    if is_plain and Path(path).is_absolute() and not Path(path).exists():
        raise CommandError(f"the file of layer {layer.name!r}, {path}, is not there any more: open it where it is now")
    raise CommandError(
        f"layer {layer.name!r} is not a file on this computer, and hypercaps reads files: save it as GeoTIFF with "
        "Export > Save As, and use that layer"
    )


def vector_argument(layer: LayerSource) -> str | None:
    """The labels as hypercaps names them, FILE or FILE:LAYER; None if they have to be exported first."""
    if layer.file is None or layer.parts.get("subset") or layer.parts.get("layerId") is not None:
        return None
    name = layer.parts.get("layerName")
    if not name:
        return layer.file
    return None if ":" in str(name) else f"{layer.file}:{name}"


def find_program(setting: str, environment: Mapping[str, str]) -> str:
    """The program hypercaps: by the setting, on PATH, or where pip, pipx and uv put programs of a user."""
    if setting:
        return _program_at(Path(setting).expanduser())
    local = Path(environment.get("HOME") or Path.home()) / ".local" / "bin"
    path = os.pathsep.join([environment.get("PATH", ""), str(local)])
    found = shutil.which("hypercaps", path=path)
    if found is None:
        raise CommandError(
            "hypercaps was not found: install it in a Python environment (docs/qgis.md of hypercaps says how), and "
            "name its program in Settings > Options > Processing > Providers > hypercaps"
        )
    return found


def _program_at(path: Path) -> str:
    """The program that a setting names, or that is in the environment that it names."""
    names = [path / folder / name for folder in ("", "bin", "Scripts") for name in ("hypercaps", "hypercaps.exe")]
    for candidate in [path, *names]:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise CommandError(
        f"there is no program hypercaps at {path}: correct it in Settings > Options > Processing > Providers > "
        "hypercaps, or leave it empty to look on PATH"
    )


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for hypercaps: without what QGIS sets for its own Python, GDAL and PROJ."""
    kept = {name: value for name, value in environment.items() if name not in _OF_QGIS}
    return {**kept, "PYTHONIOENCODING": "utf-8", "COLUMNS": "110"}


def split_options(text: str) -> list[str]:
    """Further options, as typed in a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandError(f"the further options {text!r} can't be read: {error}") from None


def _given(**options: object) -> list[str]:
    """Options that have a value; True is a flag."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False or value == "":
            continue
        words.append(f"--{name.rstrip('_').replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return words


@dataclass(frozen=True)
class Labels:
    """Labels as hypercaps names them, and the field that has the class."""

    path: str
    class_field: str


def train_command(
    scene: str,
    labels: Labels,
    out: str,
    *,
    further: str | None = None,
    method: str = "auto",
    split: str = "folds",
    epochs: int | None = None,
    seed: int = 0,
    force: bool = False,
    more: str = "",
) -> list[str]:
    """``further``: more labels with the same field.

    ``auto`` and ``folds``, which hypercaps uses for labels of one's own, are not passed on, so that options may replace
    them.
    """
    options = _given(
        out=out,
        class_field=labels.class_field,
        method=None if method == "auto" else method,
        split=None if split == "folds" else split,
        epochs=epochs,
        seed=seed or None,
        force=force,
    )
    files = [labels.path, *([] if further is None else [further])]
    return _with_progress(["train", scene, *files, *options], more)


def map_command(
    model: str, scene: str, out: str, *, layers: Mapping[str, str], options: Mapping[str, object], more: str = ""
) -> list[str]:
    """``layers``: files of further rasters by name, such as confidence; ``options``: of hypercaps map, by name."""
    return _with_progress(["map", model, scene, *_given(out=out, **layers, **options)], more)


def evaluate_command(model: str, scene: str, labels: Labels, json_file: str, more: str = "") -> list[str]:
    options = _given(json=json_file, class_field=labels.class_field)
    return _with_progress(["evaluate", model, scene, labels.path, *options], more)


def suggest_command(
    model: str,
    scene: str,
    out: str,
    *,
    number: int,
    labels: Labels | None = None,
    mask: str | None = None,
    more: str = "",
) -> list[str]:
    known: tuple[str | None, str | None] = (None, None) if labels is None else (labels.path, labels.class_field)
    options = _given(out=out, n=number, labels=known[0], class_field=known[1], mask=mask)
    return _with_progress(["suggest", model, scene, *options], more)


def _with_progress(words: list[str], more: str) -> list[str]:
    return [*words, *split_options(more), "--progress", "json"]
