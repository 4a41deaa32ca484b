"""Every write: to a temporary name beside the final one, synced, then renamed. Nothing is ever half-written."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.errors import OutputError


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
    if is_any_of(path, inputs):
        raise OutputError(f"{path} is asked for twice or is an input: give the result a name of its own")


def is_any_of(path: Path, others: Iterable[Path]) -> bool:
    """Whether ``path`` is one of the other files, also by a link, or lies in one that is a folder (a Zarr store)."""
    return any(
        path.absolute() == other.absolute()
        or (path.exists() and other.exists() and path.samefile(other))
        or (other.is_dir() and path.resolve().is_relative_to(other.resolve()))
        for other in others
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` all at once, replacing what is there, or leave everything as it was."""
    write_files({path: content})


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Put several files in place, replacing what is there, only when all of them are safely on the disk."""
    with placing(contents) as temporary:
        for path, content in contents.items():
            with explained(path):
                temporary[path].write_bytes(content)


@contextmanager
def placing(paths: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """Names to write files under until all of them are whole: they are then put in place together, or are gone."""
    written = {path: path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial") for path in paths}
    try:
        yield written
        for path, temporary in written.items():
            with explained(path), temporary.open("rb+") as file:
                os.fsync(file.fileno())
        for path, temporary in written.items():
            with explained(path):
                temporary.replace(path)
    finally:
        for temporary in written.values():
            temporary.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
