"""open_scene, open_labels, open_mask and open_split: from a catalogue name or a path to objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import Labels, Legend
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split, SplitDescription
from hypercaps.errors import ClusterError, LabelsError, SceneError, SplitError
from hypercaps.io import catalog
from hypercaps.io.catalog import CatalogScene, ProgressMaker
from hypercaps.io.damage import READABLE_LABELS, raise_as, translate_errors
from hypercaps.io.detect import DetectedFile, detect, detect_file
from hypercaps.io.file_reader import FileReader
from hypercaps.io.limits import check_labels
from hypercaps.io.options import GivenWavelengths, OpenOptions
from hypercaps.io.paths import PathSpec, absolute, remote_address, tile_paths
from hypercaps.io.raster import Bands, RawWindow, StoredRaster, labels_from, scene_from, without_fill
from hypercaps.io.readers.mosaic import Mosaic
from hypercaps.io.tiles import find_source
from hypercaps.io.wavelengths import with_given

if TYPE_CHECKING:
    from hypercaps.io.labels.merge import LabelFile


def open_scene(
    name_or_path: PathSpec,
    *,
    wavelengths: GivenWavelengths | None = None,
    allow_remote: bool = False,
    progress: ProgressMaker | None = None,
) -> Scene:
    """Open a scene by catalogue name, by path, or by PATH:KEY for one array of several.

    Parameters
    ----------
    name_or_path : str, Path or list of them
        Also several tiles of one grid: a list of paths, a pattern such as ``tiles/*.tif``, or ``@FILE`` with one path
        per line.
    wavelengths : str, Path or (bands,) array, optional
        For a file without wavelengths, a text file with one per line, or numbers, in nm or micrometres.
    allow_remote : bool, default False
        ``name_or_path`` may be the http(s) address of a GeoTIFF, which is read over the network.
    progress : callable, optional
        Makes the progress bar of a download.

    Returns
    -------
    Scene
        Pixels stay in the file and are read by window.

    Examples
    --------
    >>> from hypercaps import open_scene
    >>> open_scene("indian-pines").shape
    (145, 145, 200)
    """
    _check_names(name_or_path, "open_scene", "Scene.from_array")
    options = OpenOptions(wavelengths=wavelengths, allow_remote=allow_remote, progress=progress)
    if isinstance(name_or_path, str | Path) and str(name_or_path) in catalog.names():
        public = catalog.get_scene(str(name_or_path))
        scene = read_scene(detect_file(*public.get("cube", progress)), options, public)
    else:
        scene = read_scene(find_source(name_or_path, "scene", options), options)
    assert isinstance(scene.reader, FileReader)
    return replace(scene, reader=replace(scene.reader, opening=Opening.of(name_or_path, options)))


def _check_names(given: object, function: str, instead: str) -> None:
    """Refuse an array in memory, or anything else than names of files."""
    names = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(name, str | Path) for name in names):
        raise SceneError(f"{function} takes the name of a file, not {type(given).__name__}: use {instead} for an array")


def read_scene(source: DetectedFile | Mosaic, options: OpenOptions, public: CatalogScene | None = None) -> Scene:
    """The scene in a file or in tiles; a public scene has its name and wavelengths from the catalogue."""
    if isinstance(source, Mosaic):
        scene = scene_from(with_given(source.raster, options.wavelengths), source.tiles)
        return replace(scene, tiles=source.windows, reader=FileReader(scene.reader, source.raster.path, scene.shape))
    cube = source.load(3, "scene")
    with translate_errors(source.path):
        if isinstance(cube, StoredRaster):
            scene = scene_from(with_given(cube, options.wavelengths))
        else:
            scene = _array_scene(source.path, cube, options, public)
    return replace(scene, reader=FileReader(scene.reader, source.path, scene.shape))


def _array_scene(path: Path, cube: Any, options: OpenOptions, public: CatalogScene | None) -> Scene:
    waves = None if public is None or public.wavelengths is None else np.array(public.wavelengths)
    scene = Scene.from_array(cube, name=path.stem if public is None else public.name, wavelengths=waves)
    if options.wavelengths is None:
        return scene

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        return RawWindow(np.asarray(cube[rows, cols])[:, :, bands], None)

    # The rules for a raster's wavelengths hold for arrays too; a public scene keeps its bands as catalogued.
    raster = with_given(StoredRaster(path, scene.shape, scene.dtype, take, wavelengths=waves), options.wavelengths)
    return scene_from(raster) if waves is None else replace(scene, fwhm=raster.fwhm)


def open_labels(
    name_or_path: str | Path | Sequence[str | Path],
    *,
    scene: Scene | None = None,
    class_field: str | None = None,
    legend: Legend | None = None,
    allow_remote: bool = False,
    progress: ProgressMaker | None = None,
) -> Labels:
    """Open labels by catalogue name, by path, or by PATH:KEY (PATH:LAYER for vectors); several files are merged.

    Parameters
    ----------
    name_or_path : str, Path or list of them
        Patterns of tiles and addresses are as with :func:`open_scene`.
    scene : Scene, optional
        A label raster on another grid is resampled to the scene's by nearest neighbour; polygons, lines and points are
        rasterized onto it.
    class_field : str, optional
        The attribute of vector labels that holds the class.
    legend : Legend, optional
        Numbers the classes of vectors that have names only, such as a model's legend; default: alphabetically.
    allow_remote, progress
        As with :func:`open_scene`.

    Returns
    -------
    Labels

    Examples
    --------
    >>> from hypercaps import open_labels
    >>> labels = open_labels("indian-pines")
    >>> labels.shape, len(labels.legend), labels.counts()[1]
    ((145, 145), 16, 46)
    """
    from hypercaps.io.labels.merge import merge, renumber

    with raise_as(LabelsError):
        _check_names(name_or_path, "open_labels", "Labels.from_array")
    specs = [name_or_path] if isinstance(name_or_path, str | Path) else list(name_or_path)
    if not specs:
        raise LabelsError("no label file was given: name at least one")
    options = OpenOptions(class_field=class_field, allow_remote=allow_remote, progress=progress)
    with raise_as(LabelsError):
        files = [_label_file(str(spec), scene, options) for spec in specs]
    if class_field is not None and not any(is_vector for _, is_vector in files):
        raise LabelsError(
            f"the class field {class_field!r} was given but {specs[0]} has no fields: leave it out, or give polygons, "
            "lines or points"
        )
    merged = merge([file for file, _ in files])
    return merged.labels if legend is None else renumber(merged, legend)


def _label_file(spec: str, scene: Scene | None, options: OpenOptions) -> tuple[LabelFile, bool]:
    """One label file, and whether it is a vector file."""
    from hypercaps.io.labels.merge import LabelFile

    if spec in catalog.names():
        public = catalog.get_scene(spec)
        labels = read_labels(detect_file(*public.get("labels", options.progress)), public=public)
        return LabelFile(labels, labels.legend), False
    source = find_source(spec, "labels", options)
    if isinstance(source, DetectedFile) and source.vector_driver is not None:
        from hypercaps.io.labels.vector import vector_labels  # imports shapely

        path, driver = source.path, source.vector_driver
        return vector_labels(path, driver, source.key, scene=scene, class_field=options.class_field), True
    if isinstance(source, DetectedFile) and source.kind in ("unknown", "safetensors"):
        raise LabelsError(f"{source.path} has a format that is not supported: {READABLE_LABELS}")
    labels = read_labels(source, scene)
    return LabelFile(labels, labels.legend), False


def read_labels(
    source: DetectedFile | Mosaic, scene: Scene | None = None, public: CatalogScene | None = None
) -> Labels:
    """The labels in an array or a raster, resampled to the grid of ``scene``."""
    if isinstance(source, Mosaic):
        raster = source.label_raster
        check_labels(f"the mosaic of {raster.path.name}", *raster.shape[:2])
    else:
        raster = source.load(2, "labels")
        if not isinstance(raster, StoredRaster):
            if public is not None:
                return Labels.from_array(raster, public.legend, name=public.name)
            return Labels.from_array(without_fill(raster, source.path), name=source.path.stem)
    with translate_errors(raster.path if isinstance(source, Mosaic) else source.path):
        labels = labels_from(raster)
        if isinstance(source, Mosaic):
            labels = replace(labels, tiles=source.windows)
        if scene is None:
            return labels
        from hypercaps.io.labels.regrid import labels_on_grid  # imports rasterio

        return labels_on_grid(labels, raster, scene)


def open_mask(path: str | Path, scene: Scene) -> npt.NDArray[np.bool_]:
    """Open a mask: which pixels of the scene are inside it.

    Parameters
    ----------
    path : str or Path
        A vector file (PATH:LAYER), of which every polygon, line and point is inside; a raster on any grid, inside where
        it is neither 0 nor nodata; or an array of the scene's size, inside where it is not 0.
    scene : Scene
        On its grid the mask is.

    Returns
    -------
    (rows, columns) bool array

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Scene, open_mask
    >>> np.save("mask.npy", np.eye(4))
    >>> open_mask("mask.npy", Scene.from_array(np.zeros((4, 4, 3)))).sum()
    np.int64(4)
    """
    spec = str(path)
    if spec in catalog.names():
        raise LabelsError(f"{spec} is a public scene and not a mask: give polygons or a raster")
    with raise_as(LabelsError):
        remote_address(spec, allowed=False)
        file = detect(spec, "mask")
        if file.vector_driver is not None:
            from hypercaps.io.labels.vector import vector_mask  # imports shapely

            inside = vector_mask(file.path, file.vector_driver, file.key, scene)
        else:
            from hypercaps.io.labels.mask import array_mask, raster_mask  # imports rasterio

            mask = file.load(2, "mask")
            with translate_errors(file.path):
                is_raster = isinstance(mask, StoredRaster)
                inside = raster_mask(mask, scene) if is_raster else array_mask(mask, file.path, scene)
    if not inside.any():
        raise LabelsError(f"no pixel of scene {scene.name!r} is inside the mask {path}: give one of the same area")
    return inside


def open_split(path: str | Path, labels: Labels, *, patch: int = 7) -> Split:
    """Open a split.npz, such as that of a run, checked against the labels.

    Parameters
    ----------
    path : str or Path
        An .npz with the flat pixel indices ``train``, ``val`` and ``test``, (n,) each.
    labels : Labels
        Every pixel of the split must be labelled.
    patch : int, default 7
        Side in pixels of the patches for which leakage is counted.

    Returns
    -------
    Split

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import Labels, open_split
    >>> np.savez("split.npz", train=[0, 1], val=[], test=[5])
    >>> open_split("split.npz", Labels.from_array(np.ones((2, 3), dtype=int))).train
    array([0, 1])
    """
    path = Path(path).expanduser()
    with raise_as(SplitError):
        arrays = {array.key: array for array in detect_file(path).arrays}
    missing = [key for key in ("train", "val", "test") if key not in arrays]
    if missing:
        raise SplitError(
            f"{path} is not a split: it lacks {', '.join(missing)}; an .npz with the flat pixel indices train, val "
            "and test is expected, as a run's split.npz"
        )
    with raise_as(SplitError), translate_errors(path):
        train, val, test = (np.asarray(arrays[key].load()) for key in ("train", "val", "test"))
    how = SplitDescription("file", file=path.name)
    return Split.from_indices(labels, train, val, test, patch=patch, how=how)


@dataclass(frozen=True)
class Opening:
    """What another process needs to open the scene itself: absolute paths and the options."""

    named: str | tuple[str, ...]
    options: OpenOptions = field(default_factory=OpenOptions)

    @classmethod
    def of(cls, spec: PathSpec, options: OpenOptions | None = None) -> Opening:
        options = OpenOptions() if options is None else options
        waves = options.wavelengths
        with raise_as(ClusterError):
            tiles = None if str(spec) in catalog.names() else tile_paths(spec)
            named = absolute(str(spec)) if tiles is None else tuple(absolute(str(tile)) for tile in tiles)
            if isinstance(waves, str | Path):
                waves = absolute(str(waves))
        return cls(named, replace(options, wavelengths=waves, progress=None))  # a bar can't be sent to a worker

    def open(self) -> Scene:
        return open_scene(self.named, wavelengths=self.options.wavelengths, allow_remote=self.options.allow_remote)

    def __str__(self) -> str:
        return self.named if isinstance(self.named, str) else f"{self.named[0]} and {len(self.named) - 1} more tiles"
