"""Atomic writes: to a temporary file beside the final one, synced, then renamed. Nothing is ever half-written."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import OutputError
from hypercaps.io.csv_cells import to_cell

_LINK = "it is a link; give the name of the file itself"


@contextmanager
def translate_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system while writing ``path`` into an OutputError of one sentence."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "the disk is full; free some space or choose another place"
        elif error.errno == errno.ELOOP:
            reason = _LINK
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            reason = "it is not writable; choose another place"
        elif error.errno == errno.ENOENT and not path.absolute().parent.exists():
            reason = f"there is no folder {path.parent}; make it first"
        else:
            reason = f"{error.strerror or error}; choose another place"
        raise OutputError(f"{path} can't be written: {reason}") from error


def check_output(
    path: Path, suffixes: Iterable[str] = (), *, inputs: Iterable[Path] = (), new_folder: bool = False
) -> None:
    """Refuse an output file that can't be written or would replace an input, before any work is done.

    ``new_folder``: its folder may be missing, and is created when the file is written.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise OutputError(f"{path} can't be written: its name must end in {' or '.join(sorted(suffixes))}")
    check_name(path)
    with translate_write_errors(path):
        if path.is_dir():
            raise OutputError(f"{path} can't be written: it is a folder; give a file name")
        folder = path.absolute().parent
        if new_folder:
            folder = next(place for place in (folder, *folder.parents) if place.exists())
        if not folder.is_dir():
            raise OutputError(f"{path} can't be written: there is no folder {path.parent}; make it first")
        if not os.access(folder, os.W_OK):
            raise OutputError(f"{path} can't be written: {folder} is not writable; choose another place")
        if is_any_of(path, inputs):
            raise OutputError(f"{path} is asked for twice or is an input: give the result a name of its own")
        refuse_special(path)


def check_name(path: Path, *, is_folder: bool = False) -> None:
    """Refuse an output without a name of its own, such as '.', or whose name is no text, which GDAL can't write."""
    if not path.name:
        why = "give the results a folder with a name" if is_folder else "it is a folder; give a file name"
        raise OutputError(f"{path} can't be written: {why}")
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise OutputError(f"{path} can't be written: its name is not valid text (UTF-8); choose another") from None


def refuse_special(path: Path) -> None:
    """Refuse an output whose name belongs to a link, a device, a pipe or a folder: only files are replaced."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFLNK: _LINK, stat.S_IFDIR: "it is a folder; give a file name"}
    reason = kinds.get(stat.S_IFMT(mode), "it is a device or a pipe; give the name of a file")
    raise OutputError(f"{path} can't be written: {reason}")


def open_for_update(path: Path) -> int:
    """A descriptor to read and write a file, which is created if there is none; links are not followed."""
    with translate_write_errors(path):
        refuse_special(path)
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def is_any_of(path: Path, others: Iterable[Path]) -> bool:
    """Whether ``path`` is one of the other files, also through a link, or lies in a folder of them (a Zarr store)."""
    return any(
        path.absolute() == other.absolute()
        or (path.exists() and other.exists() and path.samefile(other))
        or (other.is_dir() and path.resolve().is_relative_to(other.resolve()))
        for other in others
    )


def check_space(path: Path, needed: int) -> None:
    """Refuse an output for which less than ``needed`` bytes are free."""
    at = next(place for place in (path, *path.absolute().parents) if place.exists())
    free = shutil.disk_usage(at).free
    if free < needed:
        raise OutputError(
            f"{path} can't be written: about {needed / 1e6:.1f} MB are needed and {free / 1e6:.1f} MB are free, the "
            "disk is full; free some space or choose another place"
        )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, replacing an existing one, or leave everything as it was."""
    write_files({path: content})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files, replacing existing ones only when all of them are on disk."""
    with write_all_or_nothing(contents) as temporary:
        for path, content in contents.items():
            with translate_write_errors(path):
                temporary[path].write_bytes(content)


@contextmanager
def write_all_or_nothing(paths: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """Temporary names by final path: files written to them are renamed together at the end, or all are deleted."""
    names = {path: path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial") for path in paths}
    for path in names:
        with translate_write_errors(path):
            refuse_special(path)
    try:
        yield names
        for path, temporary in names.items():
            with translate_write_errors(path), temporary.open("rb+") as file:
                os.fsync(file.fileno())
        for path, temporary in names.items():
            with translate_write_errors(path):
                refuse_special(path)  # it may have appeared meanwhile
                temporary.replace(path)
    finally:
        for temporary in names.values():
            temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(to_cell, header))
    writer.writerows(map(to_cell, row) for row in rows)
    write_bytes(path, text.getvalue().encode(errors="replace"))


def write_npz(path: Path, **arrays: npt.NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())
