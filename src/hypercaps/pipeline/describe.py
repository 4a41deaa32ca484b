"""Describe a scene, label file or model for ``hypercaps info``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.errors import HypercapsError, LabelsError, ModelFileError, SceneError
from hypercaps.io import catalog
from hypercaps.io.damage import raise_as
from hypercaps.io.detect import DetectedFile
from hypercaps.io.labels.regrid import crs_name
from hypercaps.io.open import read_labels, read_scene
from hypercaps.io.options import OpenOptions
from hypercaps.io.readers.mosaic import Mosaic
from hypercaps.io.tiles import find_source

if TYPE_CHECKING:
    from hypercaps.inference.scene_shift import PreparedScene

Facts = dict[str, object]  # as JSON takes them, in the order in which they are shown


@dataclass(frozen=True)
class Description:
    """What was found at a path or under a name."""

    kind: str  # scene, labels, vector labels, model or public scene
    facts: Facts
    legend: Legend = field(default_factory=lambda: Legend(()))
    counts: Mapping[int, int] = field(default_factory=dict)  # pixels or features of each label, for labels
    counted: str = "pixels"  # or features

    def to_json(self) -> Facts:
        return {"kind": self.kind} | self.facts


def describe(
    what: str, *, wavelengths: Path | None = None, class_field: str | None = None, allow_remote: bool = False
) -> Description:
    """Describe a public scene, a model file, a scene or a label file."""
    about = _describe(what, OpenOptions(wavelengths, class_field, allow_remote))
    if wavelengths is not None and about.kind != "scene":
        raise SceneError(f"--wavelengths are for a scene's file, and {what} is a {about.kind}: leave them out")
    if class_field is not None and about.kind != "vector labels":
        raise SceneError(f"--class-field is for polygons, lines or points, and {what} is a {about.kind}: leave it out")
    return about


@dataclass(frozen=True)
class FileReport:
    """Everything that helps to find out why a file is not read as expected."""

    about: Description | None  # None: it can't be read
    error: HypercapsError | None
    file: Facts
    structure: list[str]
    reading: Facts  # how a window was read, or the error and its causes
    versions: dict[str, str]

    def to_json(self) -> Facts:
        """The description, as without this report, and the report beside it."""
        details = {"file": self.file, "structure": self.structure, "reading": self.reading, "versions": self.versions}
        return ({} if self.about is None else self.about.to_json()) | {"verbose": details}


def report_file(what: str, options: OpenOptions) -> FileReport:
    """Describe a file as far as it can be read, and what is in it."""
    from hypercaps.io.structure import file_facts, in_words, library_versions, structure_lines

    source = None if what in catalog.names() else find_source(what, "scene, labels or model", options)
    file: Facts = {} if not isinstance(source, DetectedFile) else file_facts(source.path, source.kind)
    structure = structure_lines(source) if isinstance(source, DetectedFile) else []
    about, failed = None, None
    try:
        about = _describe(what, options)
        reading = _read_middle(what, options) if about.kind == "scene" else {}
    except HypercapsError as error:
        failed, reading = error, {"error": str(error), "causes": in_words(error)}
    return FileReport(about, failed, file, structure, reading, library_versions())


def _read_middle(what: str, options: OpenOptions) -> Facts:
    """How a window in the middle of a scene is read."""
    scene = read_scene(find_source(what, "scene", options), options)
    row, col = scene.rows // 2, scene.cols // 2
    pixels = scene.read(slice(max(row - 32, 0), row + 32), slice(max(col - 32, 0), col + 32))
    values = pixels.values[pixels.valid]
    facts: Facts = {"window": f"{pixels.valid.shape[0]} x {pixels.valid.shape[1]} in the middle"}
    facts["valid"] = float(pixels.valid.mean())
    return facts | ({"lowest": float(values.min()), "highest": float(values.max())} if values.size else {})


def _describe(what: str, options: OpenOptions) -> Description:
    if what in catalog.names():
        public = catalog.get_scene(what)
        return Description("public scene", {**public.describe()}, public.legend)
    source = find_source(what, "scene, labels or model", options)
    if isinstance(source, Mosaic):
        several = {"tiles": len(source.tiles), "covered": source.covered} if len(source.tiles) > 1 else {}
        if source.raster.shape[2] > 1:
            return _of_scene(read_scene(source, options), {"file": what, **several})
        with raise_as(LabelsError):
            return _of_labels(read_labels(source), {"file": what, **several})
    file: Facts = {"file": str(source.path)}
    if source.kind == "safetensors" or source.path.suffix == ".safetensors":
        return _of_model(source.path, file)
    if source.vector_driver is not None:
        from hypercaps.io.labels.describe import describe_vector  # imports shapely

        content = describe_vector(source.path, source.vector_driver, source.key, options.class_field)
        return Description("vector labels", file | content.facts, content.legend, content.counts, "features")
    if len(source.arrays) > 1:
        file["arrays"] = [str(array) for array in source.arrays]
    ndims = {len(array.shape) for array in source.arrays if source.key in (None, array.key)}
    if 3 in ndims or 2 not in ndims:  # a file with neither gets the scene's error
        return _of_scene(read_scene(source, options), file)
    try:
        with raise_as(LabelsError):
            return _of_labels(read_labels(source), file)
    except LabelsError as error:
        raise SceneError(f"{what} is neither a scene nor labels: {error}") from error


def _of_model(path: Path, file: Facts) -> Description:
    from hypercaps.inference.model_file import read_model  # loads torch, which scenes do not need

    model = read_model(path)
    widths = {"fwhm_nm": None if model.fwhm is None else model.fwhm.tolist()}
    facts = model.describe() | {"method": model.title}
    facts.pop("out_of_fold", None)  # 'hypercaps evaluate' shows it
    for key in ("weight", "own_calibration", "partners"):
        facts.pop(key, None)
    if model.partners:
        facts["average"] = [{"method": one.method, "patch": one.patch, "weight": one.weight} for one in model.members]
    return Description("model", file | facts | _wavelengths(model.wavelengths) | widths, model.legend)


def describe_new_scene(path: Path, open_new: Callable[[], Scene]) -> Description:
    """Compare a scene with the training scene of a model file, which is read first."""
    from hypercaps.inference.model_file import read_model
    from hypercaps.inference.scene_shift import compare_scene

    model = read_model(path)
    if model.statistics is None:
        raise ModelFileError(
            f"{path} is too old to have statistics of its training scene to compare with: train it again"
        )
    scene = open_new()
    prepared = compare_scene(model, scene)
    shift = prepared.shift
    facts: Facts = {
        "model": str(path),
        "training scene": model.scene,
        "scene": scene.name,
        **({} if shift is None else shift.to_json()),
        "finding": prepared.tag,
        "confidence": _validity(prepared),
    }
    return Description("comparison", facts)


def _validity(prepared: PreparedScene) -> str:
    if prepared.unchecked:
        return "not checked"
    return "valid" if prepared.is_claimed else "not valid for this scene"


def _of_scene(scene: Scene, file: Facts) -> Description:
    ground = scene if scene.lookup is None else scene.lookup  # the grid of its maps
    grid = ground.transform
    facts: Facts = {
        "name": scene.name,
        "rows": scene.rows,
        "cols": scene.cols,
        "bands": scene.bands,
        "dtype": str(scene.dtype),
        **_wavelengths(scene.wavelengths),
        "crs": None if ground.crs is None else crs_name(ground.crs),
        # Along a row and down a column, in units of the CRS, also for a rotated grid.
        "pixel_size": None if grid is None else [math.hypot(grid[0], grid[3]), math.hypot(grid[1], grid[4])],
    }
    swath = {} if scene.lookup is None else {"map_rows": ground.shape[0], "map_cols": ground.shape[1]}
    return Description("scene", file | facts | swath)


def _of_labels(labels: Labels, file: Facts) -> Description:
    counts = labels.counts()
    facts: Facts = {
        "name": labels.name,
        "rows": labels.shape[0],
        "cols": labels.shape[1],
        "labelled": sum(counts.values()),
        "classes": [
            {"label": e.label, "name": e.name, "color": list(e.color), "pixels": counts[e.label]} for e in labels.legend
        ],
    }
    return Description("labels", file | facts, labels.legend, counts)


def _wavelengths(waves: npt.NDArray[np.float64] | None) -> Facts:
    return {
        "wavelengths_nm": None if waves is None else waves.tolist(),
        "wavelength_range_nm": None if waves is None else [float(waves.min()), float(waves.max())],
    }
