"""Folders that are created for results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypercaps.io.writers.atomic import translate_write_errors


@contextmanager
def folders_for(files: Iterable[Path]) -> Iterator[None]:
    """Create the missing folders of files; if writing them fails, remove those that are still empty."""
    created: list[Path] = []
    try:
        for folder in dict.fromkeys(file.absolute().parent for file in files):
            with translate_write_errors(folder):
                for place in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
                    place.mkdir()
                    created.append(place)
        yield
    except BaseException:
        for folder in reversed(created):
            try:
                folder.rmdir()
            except OSError:  # it has files
                break
        raise
