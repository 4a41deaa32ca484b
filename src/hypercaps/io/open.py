"""open_scene and open_labels: a name of the catalogue or a path, decided by the file's content."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
from scipy.io.matlab import MatReadError

from hypercaps.errors import HypercapsError, LabelsError, SceneError, SplitError
from hypercaps.io import catalog
from hypercaps.io.arrays import StoredArray, choose, numpy_arrays
from hypercaps.io.envi import envi_raster, header_of, is_header
from hypercaps.io.matlab import hdf5_arrays, matlab_arrays
from hypercaps.io.mosaic import Mosaic, mosaic
from hypercaps.io.places import Named, address_in, tiles_in
from hypercaps.io.raster import TIFF_MARKS, geotiff_raster
from hypercaps.io.regrid import labels_on_grid
from hypercaps.io.sidecars import image_of, is_metadata, with_sidecar
from hypercaps.io.stored import Bands, StoredRaster, Taken, labels_from, scene_from
from hypercaps.io.wavelengths import Given, with_given
from hypercaps.scene import Labels, Legend, Scene
from hypercaps.splits import Split

Kind = Literal["matlab", "hdf5", "numpy", "tiff", "envi", "product", "safetensors", "unknown"]
P = ParamSpec("P")
T = TypeVar("T")

_READABLE = "GeoTIFF, ENVI, .mat (any version), .npy and .npz files are read"
_MOST_LABELS = 1 << 32  # pixels
# What the readers raise on damaged files; RuntimeError stands for "not implemented" as well.
_DAMAGE = (
    OSError, ValueError, TypeError, KeyError, IndexError, EOFError, MemoryError,
    AttributeError, RuntimeError, ArithmeticError, SyntaxError, struct.error, zlib.error, lzma.LZMAError,
    zipfile.BadZipFile, tokenize.TokenError, MatReadError,
)  # fmt: skip


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
    whole = gathered(name_or_path, SceneError, allow_remote=allow_remote)
    if whole is not None:
        raster = whole.raster if wavelengths is None else with_given(whole.raster, wavelengths)
        return scene_from(raster, whole.tiles)
    path, key = split_spec(spec, "scene", SceneError)
    return _scene_from(path, key, name=path.stem, given=wavelengths)


def open_labels(
    name_or_path: Named,
    *,
    scene: Scene | None = None,
    allow_remote: bool = False,
    progress: catalog.ProgressMaker | None = None,
) -> Labels:
    """Labels by catalogue name, by path, or by PATH:KEY; tiles and addresses as with :func:`open_scene`.

    A label raster that lies on another grid than ``scene`` is brought onto it by nearest neighbour.
    """
    spec = str(name_or_path)
    if isinstance(name_or_path, str | Path) and spec in catalog.names():
        entry = catalog.get_scene(spec)
        path, key = entry.get("labels", progress)
        return _labels_from(path, key, name=spec, legend=entry.legend)
    whole = gathered(name_or_path, LabelsError, allow_remote=allow_remote)
    if whole is not None:
        rows, cols = whole.raster.shape[:2]
        if rows * cols > _MOST_LABELS:
            raise LabelsError(f"these labels span {rows:,} x {cols:,} pixels, which no memory holds: name fewer tiles")
        with _explained(whole.raster.path, LabelsError):
            return _labels_of(whole.raster, scene)
    path, key = split_spec(spec, "labels", LabelsError)
    return _labels_from(path, key, name=path.stem, legend=None, scene=scene)


def gathered(named: Named, error: type[HypercapsError], *, allow_remote: bool = False) -> Mosaic | None:
    """The raster of several tiles, or of what lies at an address; None if one file of this machine is named."""
    tiles = tiles_in(named, error)
    if tiles is None:
        assert isinstance(named, str | Path)
        address = address_in(named, allowed=allow_remote, error=error)
        return None if address is None else Mosaic.of_one(_from_afar(address, error))
    rasters = {tile.path: tile for tile in (_tile(tile, error, allow_remote=allow_remote) for tile in tiles)}
    if len(rasters) == 1:  # a header and its data are one
        return Mosaic.of_one(*rasters.values())
    with _explained(Path(str(tiles[0])), error):
        return mosaic(list(rasters.values()), zero_is_nothing=error is LabelsError)


def _tile(named: str | Path, error: type[HypercapsError], *, allow_remote: bool) -> StoredRaster:
    address = address_in(named, allowed=allow_remote, error=error)
    if address is not None:
        return _from_afar(address, error)
    path, _ = split_spec(str(named), "tile", error)
    with _explained(path, error):
        if sniff(path) not in ("tiff", "envi", "product"):
            raise error(f"{path} is no tile: tiles are GeoTIFF or ENVI files, which say where they lie")
        raster = _raster(path)
    return replace(raster, take=_explaining(raster.take, path, error))


def _from_afar(address: str, error: type[HypercapsError]) -> StoredRaster:
    def failed(cause: BaseException) -> HypercapsError:
        return error(
            f"{address} can't be read ({cause}): the address of a GeoTIFF is expected, download it to make sure"
        )

    try:
        raster = geotiff_raster(Path(Path(unquote(urlsplit(address).path)).name), address)
    except HypercapsError as cause:
        raise error(str(cause)) from None
    except _DAMAGE as cause:
        raise failed(cause) from cause

    def take(rows: slice, cols: slice, bands: Bands) -> Taken:
        try:
            return raster.take(rows, cols, bands)
        except OSError as cause:
            raise failed(cause) from cause

    return replace(raster, take=take)


def open_split(path: str | Path, labels: Labels, *, patch: int = 7) -> Split:
    """A split.npz: flat pixel indices ``train``, ``val`` and ``test``, checked against the labels."""
    path = Path(path).expanduser()
    arrays = {array.key: array for array in _stored(path, SplitError)}
    missing = [key for key in ("train", "val", "test") if key not in arrays]
    if missing:
        raise SplitError(
            f"{path} is not a split: it lacks {', '.join(missing)}; an .npz with the flat pixel indices train, val "
            "and test is expected, as a run's split.npz"
        )
    train, val, test = (arrays[key].load() for key in ("train", "val", "test"))
    how = {"kind": "file", "file": path.name}
    return Split.from_indices(labels, train, val, test, patch=patch, how=how)


def list_arrays(path: Path) -> list[StoredArray]:
    """The arrays in a file, unread."""
    return _stored(path, SceneError)


def sniff(path: Path) -> Kind:
    """What a file is, by its first bytes; plain numbers are ENVI's if its header is beside them."""
    with path.open("rb") as file:
        head = file.read(520)
    if head.startswith(b"\x89HDF\r\n\x1a\n") or head[512:520] == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    if head.startswith((b"MATLAB 5.0", b"MATLAB 7.3")) or path.suffix.lower() == ".mat":
        return "matlab"  # version 4 has no mark of its own
    if head.startswith((b"\x93NUMPY", b"PK\x03\x04")):
        return "numpy"
    if head.startswith(TIFF_MARKS):
        return "tiff"
    if is_metadata(path, head):
        return "product"
    if is_header(path) or header_of(path) is not None:
        return "envi"
    # A safetensors file: the length of its JSON header, and that header.
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    return "unknown"


def split_spec(spec: str, what: str, error: type[HypercapsError]) -> tuple[Path, str | None]:
    """PATH or PATH:KEY to an existing file and a key."""
    path, key = Path(spec).expanduser(), None
    try:
        if not path.exists() and ":" in spec:
            before, _, after = spec.rpartition(":")
            if Path(before).expanduser().exists():
                path, key = Path(before).expanduser(), after
        there, is_folder = path.exists(), path.is_dir()
    except OSError as cause:  # a folder that may not be entered, a name that is too long
        raise error(f"{spec} can't be read: {(cause.strerror or str(cause)).lower()}") from None
    if is_folder:
        raise error(f"{path} is a folder: give the file of the {what} itself")
    if not there:
        raise error(
            f"there is no file {spec!r}, and no public scene of that name: give the path of the {what}, or one of "
            f"{', '.join(catalog.names())}"
        )
    return path, key


def _stored(path: Path, error: type[HypercapsError]) -> list[StoredArray]:
    with _explained(path, error):
        kind = sniff(path)
        if kind == "matlab":
            return matlab_arrays(path)
        if kind == "hdf5":
            return hdf5_arrays(path)
        if kind == "numpy":
            return numpy_arrays(path)
        if kind in ("tiff", "envi", "product"):
            raster = _raster(path)
            shape = raster.shape if raster.shape[2] > 1 else raster.shape[:2]  # one band is a map, not a cube
            return [StoredArray("", shape, lambda: raster)]
    raise error(f"{path} is of a kind that is not read here: {_READABLE}")


def _raster(path: Path) -> StoredRaster:
    """The raster of a GeoTIFF or an ENVI file, with what the metadata of its product says."""
    if sniff(path) == "product":
        path = image_of(path)
    raster = geotiff_raster(path) if sniff(path) == "tiff" else envi_raster(path)
    return with_sidecar(raster)


@contextmanager
def _explained(path: Path, error: type[HypercapsError]) -> Iterator[None]:
    """What goes wrong in opening a file, in one sentence."""
    try:
        yield
    except HypercapsError as cause:
        raise cause if isinstance(cause, error) or not isinstance(cause, SceneError) else error(str(cause)) from None
    except PermissionError:
        raise error(f"{path} can't be read: permission denied") from None
    except FileNotFoundError:
        raise error(f"there is no file {path}: give the path of one") from None
    except _DAMAGE as cause:
        raise _damaged(path, error, cause) from cause


def _damaged(path: Path, error: type[HypercapsError], cause: BaseException) -> HypercapsError:
    size = f" ({path.stat().st_size:,} bytes)" if path.is_file() else ""
    return error(
        f"{path}{size} is truncated, damaged or not what its name says "
        f"({type(cause).__name__}): a whole file was expected, get it again; {_READABLE}"
    )


def _load(path: Path, key: str | None, ndim: int, what: str, error: type[HypercapsError]) -> Any:
    chosen = choose(_stored(path, error), key, ndim, path, what, error)
    try:
        array = chosen.load()
        in_file = ndim == 3 or isinstance(array, StoredRaster)  # a cube may stay on disk
        return array if in_file else np.asarray(array)
    except _DAMAGE as cause:
        raise _damaged(path, error, cause) from cause


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
        with _explained(path, SceneError):
            scene = scene_from(cube if given is None else with_given(cube, given))
    else:
        scene = Scene.from_array(cube, name=name, wavelengths=wavelengths)
        if given is not None:  # by the same rules as a raster's; a public scene keeps its bands as they are known
            raster = StoredRaster(path, scene.shape, scene.dtype, _array_taker(cube), wavelengths=wavelengths)
            raster = with_given(raster, given)
            scene = replace(scene, fwhm=raster.fwhm) if wavelengths is not None else scene_from(raster)
    return replace(scene, reader=_explaining(scene.reader, path))


def _array_taker(cube: Any) -> Callable[[slice, slice, Bands], Taken]:
    return lambda rows, cols, bands: Taken(np.asarray(cube[rows, cols])[:, :, bands], None)


def _explaining(read: Callable[P, T], path: Path, error: type[HypercapsError] = SceneError) -> Callable[P, T]:
    """Damage inside a file that is read by window shows only then."""

    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (OSError, ValueError) as cause:  # ValueError: a file that became shorter than what is mapped
            if isinstance(cause, HypercapsError):
                raise
            raise _damaged(path, error, cause) from cause

    return reading


def _labels_from(
    path: Path, key: str | None, *, name: str, legend: Legend | None, scene: Scene | None = None
) -> Labels:
    loaded = _load(path, key, 2, "labels", LabelsError)
    if not isinstance(loaded, StoredRaster):
        return Labels.from_array(loaded, legend, name=name)
    with _explained(path, LabelsError):
        return _labels_of(loaded, scene)


def _labels_of(raster: StoredRaster, scene: Scene | None) -> Labels:
    labels = labels_from(raster)
    return labels if scene is None else labels_on_grid(labels, raster, scene)
