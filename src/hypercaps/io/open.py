"""open_scene, open_labels and open_mask: a name of the catalogue or a path, decided by the file's content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split, SplitDescription
from hypercaps.errors import ClusterError, HypercapsError, LabelsError, SceneError, SplitError
from hypercaps.io import catalog
from hypercaps.io.arrays import StoredArray, choose
from hypercaps.io.detect import explained, explaining, split_spec, stored_arrays, vector_driver
from hypercaps.io.labels.mask import array_mask, raster_mask
from hypercaps.io.labels.merge import LabelFile, merge, renumber
from hypercaps.io.labels.regrid import labels_on_grid
from hypercaps.io.labels.vector import vector_labels, vector_mask
from hypercaps.io.paths import Named, absolute, address_in, tiles_in
from hypercaps.io.raster import Bands, RawWindow, StoredRaster, labels_from, scene_from
from hypercaps.io.tiles import open_tiles_or_remote
from hypercaps.io.wavelengths import Given, with_given

_MOST_LABELS = 1 << 32  # pixels


def open_scene(
    name_or_path: Named,
    *,
    wavelengths: Given | None = None,
    allow_remote: bool = False,
    progress: catalog.ProgressMaker | None = None,
) -> Scene:
    """A scene by catalogue name, by path, or by PATH:KEY for one array of several.

    Tiles of one grid are one scene: a list of paths, a pattern such as ``tiles/*.tif``, or ``@FILE`` with one a line.
    ``wavelengths``: for a file that does not know its own, a text file with one a line, or numbers, in nm or
    micrometres. ``allow_remote``: the address of a GeoTIFF may be named, which is then read over the network.
    """
    spec = str(name_or_path)
    if isinstance(name_or_path, str | Path) and spec in catalog.names():
        entry = catalog.get_scene(spec)
        path, key = entry.get("cube", progress)
        waves = None if entry.wavelengths is None else np.array(entry.wavelengths)
        return _scene_from(path, key, name=spec, wavelengths=waves, given=wavelengths)
    whole = open_tiles_or_remote(name_or_path, SceneError, allow_remote=allow_remote)
    if whole is not None:
        raster = whole.raster if wavelengths is None else with_given(whole.raster, wavelengths)
        return scene_from(raster, whole.tiles)
    path, key = split_spec(spec, "scene", SceneError)
    return _scene_from(path, key, name=path.stem, given=wavelengths)


def open_labels(
    name_or_path: str | Path | Sequence[str | Path],
    *,
    scene: Scene | None = None,
    class_field: str | None = None,
    legend: Legend | None = None,
    allow_remote: bool = False,
    progress: catalog.ProgressMaker | None = None,
) -> Labels:
    """Labels by catalogue name, by path, or by PATH:KEY (PATH:LAYER for vectors); several of them add up.

    Patterns of tiles and addresses are as with :func:`open_scene`.

    A label raster that lies on another grid than ``scene`` is brought onto it by nearest neighbour; polygons, lines and
    points are rasterized onto it, with the class from ``class_field``. Classes of vectors that have a name only are
    numbered in alphabetical order, or as a ``legend``, such as a model's, knows them.
    """
    several = [name_or_path] if isinstance(name_or_path, str | Path) else list(name_or_path)
    if not several:
        raise LabelsError("no label file was given: name at least one")
    files = [_label_file(str(spec), scene, class_field, progress, allow_remote=allow_remote) for spec in several]
    if class_field is not None and not any(is_vector for _, is_vector in files):
        raise LabelsError(
            f"the class field {class_field!r} was given but {several[0]} has no fields: leave it out, or give "
            "polygons, lines or points"
        )
    merged = merge([file for file, _ in files])
    return merged.labels if legend is None else renumber(merged, legend)


def _label_file(
    spec: str,
    scene: Scene | None,
    class_field: str | None,
    progress: catalog.ProgressMaker | None,
    *,
    allow_remote: bool,
) -> tuple[LabelFile, bool]:
    """One label file, and whether it is a vector file."""
    if spec in catalog.names():
        entry = catalog.get_scene(spec)
        path, key = entry.get("labels", progress)
        labels = _labels_from(path, key, name=spec, legend=entry.legend)
        return LabelFile(labels, labels.legend), False
    whole = open_tiles_or_remote(spec, LabelsError, allow_remote=allow_remote)
    if whole is not None:
        rows, cols = whole.raster.shape[:2]
        if rows * cols > _MOST_LABELS:
            raise LabelsError(f"these labels span {rows:,} x {cols:,} pixels, which no memory holds: name fewer tiles")
        with explained(whole.raster.path, LabelsError):
            labels = _labels_of(whole.raster, scene)
        return LabelFile(labels, labels.legend), False
    path, key = split_spec(spec, "labels", LabelsError)
    driver = vector_driver(path)
    if driver is not None:
        return vector_labels(path, driver, key, scene=scene, class_field=class_field), True
    labels = _labels_from(path, key, name=path.stem, legend=None, scene=scene)
    return LabelFile(labels, labels.legend), False


def open_mask(path: str | Path, scene: Scene) -> npt.NDArray[np.bool_]:
    """(rows, columns) of the scene that lie inside a mask.

    That is any polygon, line or point of a vector file (PATH:LAYER), or a raster on any grid where it is neither 0 nor
    nodata, or an array of the scene's size.
    """
    spec = str(path)
    if spec in catalog.names():
        raise LabelsError(f"{spec} is a public scene and no mask: give polygons or a raster")
    address_in(spec, allowed=False, error=LabelsError)
    file, key = split_spec(spec, "mask", LabelsError)
    driver = vector_driver(file)
    if driver is not None:
        inside = vector_mask(file, driver, key, scene)
    else:
        loaded = _load(file, key, 2, "mask", LabelsError)
        with explained(file, LabelsError):
            is_raster = isinstance(loaded, StoredRaster)
            inside = raster_mask(loaded, scene) if is_raster else array_mask(loaded, file, scene)
    if not inside.any():
        raise LabelsError(f"no pixel of scene {scene.name!r} lies inside the mask {path}: give one of the same place")
    return inside


def open_split(path: str | Path, labels: Labels, *, patch: int = 7) -> Split:
    """A split.npz: flat pixel indices ``train``, ``val`` and ``test``, checked against the labels."""
    path = Path(path).expanduser()
    arrays = {array.key: array for array in stored_arrays(path, SplitError)}
    missing = [key for key in ("train", "val", "test") if key not in arrays]
    if missing:
        raise SplitError(
            f"{path} is not a split: it lacks {', '.join(missing)}; an .npz with the flat pixel indices train, val "
            "and test is expected, as a run's split.npz"
        )
    train, val, test = (arrays[key].load() for key in ("train", "val", "test"))
    how = SplitDescription("file", file=path.name)
    return Split.from_indices(labels, train, val, test, patch=patch, how=how)


def list_arrays(path: Path) -> list[StoredArray]:
    """The arrays in a file, unread."""
    return stored_arrays(path, SceneError)


def _load(path: Path, key: str | None, ndim: int, what: str, error: type[HypercapsError]) -> Any:
    chosen = choose(stored_arrays(path, error), key, ndim, path, what, error)
    with explained(path, error):
        array = chosen.load()
        in_file = ndim == 3 or isinstance(array, StoredRaster)  # a cube may stay on disk
        return array if in_file else np.asarray(array)


def _scene_from(
    path: Path,
    key: str | None,
    *,
    name: str,
    wavelengths: npt.NDArray[np.float64] | None = None,
    given: Given | None = None,
) -> Scene:
    cube = _load(path, key, 3, "scene", SceneError)
    if isinstance(cube, StoredRaster):
        with explained(path, SceneError):
            scene = scene_from(cube if given is None else with_given(cube, given))
    else:
        scene = Scene.from_array(cube, name=name, wavelengths=wavelengths)
        if given is not None:  # by the same rules as a raster's; a public scene keeps its bands as they are known
            raster = StoredRaster(path, scene.shape, scene.dtype, _array_taker(cube), wavelengths=wavelengths)
            raster = with_given(raster, given)
            scene = replace(scene, fwhm=raster.fwhm) if wavelengths is not None else scene_from(raster)
    return replace(scene, reader=explaining(scene.reader, path))


def _array_taker(cube: Any) -> Callable[[slice, slice, Bands], RawWindow]:
    return lambda rows, cols, bands: RawWindow(np.asarray(cube[rows, cols])[:, :, bands], None)


def _labels_from(
    path: Path, key: str | None, *, name: str, legend: Legend | None, scene: Scene | None = None
) -> Labels:
    loaded = _load(path, key, 2, "labels", LabelsError)
    if not isinstance(loaded, StoredRaster):
        return Labels.from_array(loaded, legend, name=name)
    with explained(path, LabelsError):
        return _labels_of(loaded, scene)


def _labels_of(raster: StoredRaster, scene: Scene | None) -> Labels:
    labels = labels_from(raster)
    return labels if scene is None else labels_on_grid(labels, raster, scene)


@dataclass(frozen=True)
class Opening:
    """How a worker opens the scene again: what ``open_scene`` takes, with paths that hold in any folder."""

    named: str | tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: str, **options: Any) -> Opening:
        tiles = None if spec in catalog.names() else tiles_in(spec, ClusterError)
        named = absolute(spec) if tiles is None else tuple(absolute(str(tile)) for tile in tiles)
        return cls(named, {key: absolute(str(v)) if isinstance(v, Path) else v for key, v in options.items()})

    def open(self) -> Scene:
        return open_scene(self.named, **self.options)

    def __str__(self) -> str:
        return self.named if isinstance(self.named, str) else f"{self.named[0]} and {len(self.named) - 1} more tiles"
