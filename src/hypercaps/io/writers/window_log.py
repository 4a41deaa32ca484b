"""The finished windows of a partial map: one record of fixed size for each, with checksums.

A record that is empty, damaged or half-written doesn't count: its window is mapped again.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

from hypercaps.data.tiling import TILE
from hypercaps.data.window import Window

_FIELDS = struct.Struct("<6I")  # window, source, values
_SUM = struct.Struct("<I")  # CRC-32 of the fields
RECORD = _FIELDS.size + _SUM.size  # bytes


class FinishedWindow(NamedTuple):
    """A window whose values are on disk."""

    at: Window
    source: int  # checksum of the scene's pixels that it was made from; 0: none were read
    values: int  # CRC-32 of the values of all layers

    def to_bytes(self) -> bytes:
        fields = _FIELDS.pack(*self.at, self.source, self.values)
        return fields + _SUM.pack(zlib.crc32(fields))

    @classmethod
    def from_bytes(cls, record: bytes, shape: tuple[int, int]) -> FinishedWindow | None:
        """None: the record is not that of a window of a map of ``shape``."""
        fields, checksum = record[: _FIELDS.size], record[_FIELDS.size :]
        if _SUM.pack(zlib.crc32(fields)) != checksum:
            return None
        r0, r1, c0, c1, source, values = _FIELDS.unpack(fields)
        at = Window(r0, r1, c0, c1)
        return cls(at, source, values) if _is_of(at, shape) else None


def _is_of(at: Window, shape: tuple[int, int]) -> bool:
    """Whether a window lies in a map and consists of whole tiles."""
    sides = ((at.r0, at.r1, shape[0]), (at.c0, at.c1, shape[1]))
    return all(0 <= a < b <= end and a % TILE == 0 and (b % TILE == 0 or b == end) for a, b, end in sides)


class WindowLog:
    """Records of finished windows, in memory. There is a slot for each tile: every new window finishes at least one."""

    def __init__(self, slots: int) -> None:
        self.size = slots * RECORD  # bytes
        self._slots: list[FinishedWindow | None] = [None] * slots

    @property
    def finished(self) -> list[FinishedWindow]:
        return [window for window in self._slots if window is not None]

    def load(self, content: bytes, shape: tuple[int, int]) -> int:
        """Read the records that an earlier process wrote; the number of those that are damaged."""
        damaged = 0
        for slot in np.flatnonzero(np.frombuffer(content, np.uint8).reshape(-1, RECORD).any(axis=1)).tolist():
            self._slots[slot] = FinishedWindow.from_bytes(content[slot * RECORD : (slot + 1) * RECORD], shape)
            damaged += self._slots[slot] is None
        return damaged

    def discard(self, window: FinishedWindow) -> None:
        self._slots[self._slots.index(window)] = None

    def add(self, window: FinishedWindow) -> int:
        """Remember a window; the offset of its record from the first."""
        slot = self._slots.index(None)
        self._slots[slot] = window
        return slot * RECORD
