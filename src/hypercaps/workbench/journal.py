"""Journal: one line of JSON for each change, on disk before the change is answered.

A line is the CRC-32 of its JSON, a space and the JSON. A line that a crash has cut off was never answered, and is
dropped. If a line in the middle is damaged, everything before it is kept; the rest is moved to a file beside it.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypercaps.io.writers.atomic import open_for_update, translate_write_errors, write_bytes

Entry = Mapping[str, Any]


class Journal:
    """The changes so far, ``entries``, and the file that new ones are appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost: str | None = None  # what damage has cost, in a sentence
        self.lost_lines = 0
        self._descriptor = open_for_update(path)
        content = path.read_bytes()
        self.entries, self._size = _read(content)
        if self._size < len(content):
            self._recover(content[self._size :])

    def append(self, entry: Entry) -> None:
        """Write an entry; when this returns, it survives a crash. After an error the journal is as before."""
        line = _line(entry)
        with translate_write_errors(self.path):
            try:
                written = 0
                while written < len(line):
                    written += os.pwrite(self._descriptor, line[written:], self._size + written)
                os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, self._size)
                raise
        self._size += len(line)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _recover(self, rest: bytes) -> None:
        """Cut the file after its last good line, and keep what follows beside it."""
        if b"\n" in rest:  # not the last line of a process that was killed
            self.lost_lines = rest.count(b"\n")
            aside = next(
                place
                for number in range(1, 1_000_000)
                if not (place := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists()
            )
            write_bytes(aside, rest)
            self.lost = (
                f"The journal of labels was damaged: {len(self.entries):,} changes before the damage were kept, and "
                f"{self.lost_lines:,} after it were lost; they are in {aside.name} of the project."
            )
        os.ftruncate(self._descriptor, self._size)
        os.fsync(self._descriptor)


def _line(entry: Entry) -> bytes:
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(content: bytes) -> tuple[list[Entry], int]:
    """The entries up to the first line that is damaged or cut off, and their length in bytes."""
    entries: list[Entry] = []
    at = 0
    while (end := content.find(b"\n", at)) >= 0:
        line = content[at:end]
        try:
            checksum, text = int(line[:8], 16), line[9:]
            if line[8:9] != b" " or zlib.crc32(text) != checksum:
                break
            entry = json.loads(text)
        except ValueError:
            break
        entries.append(entry)
        at = end + 1
    return entries, at
