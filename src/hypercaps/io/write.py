"""Every write: to a temporary name beside the final one, synced, then renamed. Nothing is ever half-written."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.errors import NotGeoreferencedWarning
from rasterio.io import MemoryFile

from hypercaps.errors import OutputError
from hypercaps.scene import Legend, Scene


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write ``path`` into one sentence each."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full; free some space or choose another place"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason = "it is not writable; choose another place"
        else:
            reason = f"{error.strerror or error}; choose another place"
        raise OutputError(f"{path} can't be written: {reason}") from error


def check_output(path: Path, suffixes: Iterable[str] = (), *, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output file at once that could not be written, or that would replace an input."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise OutputError(f"{path} can't be written: its name must end in {' or '.join(sorted(suffixes))}")
    with explained(path):
        _check_place(path, inputs)


def _check_place(path: Path, inputs: Iterable[Path]) -> None:
    if path.is_dir():
        raise OutputError(f"{path} can't be written: it is a folder; give a file name")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"{path} can't be written: there is no folder {path.parent}; make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{path} can't be written: {path.parent} is not writable; choose another place")
    if any(path.absolute() == other.absolute() or (path.exists() and other.exists() and path.samefile(other))
           for other in inputs):  # fmt: skip
        raise OutputError(f"{path} is asked for twice or is an input: give the result a name of its own")


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` all at once, replacing what is there, or leave everything as it was."""
    write_files({path: content})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Put several files in place, replacing what is there, only when all of them are safely on the disk."""
    written: dict[Path, Path] = {}  # temporary name: final name
    try:
        for path, content in contents.items():
            with explained(path):
                temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
                written[temporary] = path
                with temporary.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        for temporary, path in written.items():
            with explained(path):
                temporary.replace(path)
    finally:
        for temporary in written:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def write_npz(path: Path, **arrays: npt.NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def class_map_tiff(classes: npt.NDArray[np.integer[Any]], legend: Legend, scene: Scene) -> bytes:
    """Class numbers (rows, columns) as a GeoTIFF with the legend's colour table; 0 is nodata."""
    dtype = np.uint8 if int(legend.labels.max()) <= np.iinfo(np.uint8).max else np.uint16
    colors = {0: (0, 0, 0, 0)} | {entry.label: (*entry.color, 255) for entry in legend}
    return _geotiff(classes.astype(dtype), scene, nodata=0, colors=colors)


def confidence_tiff(confidence: npt.NDArray[np.float32], scene: Scene) -> bytes:
    """Confidence (rows, columns) as a float32 GeoTIFF; NaN is nodata."""
    return _geotiff(confidence.astype(np.float32), scene, nodata=float("nan"))


def _geotiff(
    array: npt.NDArray[Any],
    scene: Scene,
    *,
    nodata: float,
    colors: dict[int, tuple[int, int, int, int]] | None = None,
) -> bytes:
    """A GeoTIFF's bytes. Made in memory: GDAL may lose a full disk's error, a plain write does not."""
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "height": array.shape[0],
        "width": array.shape[1],
        "count": 1,
        "dtype": array.dtype.name,
        "nodata": nodata,
        "compress": "deflate",
        "crs": scene.crs,
    }
    if scene.transform is not None:
        profile["transform"] = rasterio.Affine(*scene.transform)
    with warnings.catch_warnings():
        # Scenes without georeference give the same files without it: nothing to warn about.
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with MemoryFile() as memory:
            with memory.open(**profile) as raster:
                raster.write(array, 1)
                if colors is not None:
                    raster.write_colormap(1, colors)
            content: bytes = memory.read()
    return content
