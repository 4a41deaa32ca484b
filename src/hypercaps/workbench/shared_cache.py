"""SharedCache: values that several threads need, each made once, the last ones used kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    """At most ``most`` bytes of values, but always the newest one; ``size`` tells the bytes of a value."""

    def __init__(self, most: int, size: Callable[[V], int]) -> None:
        self._most, self._size, self._held = most, size, 0
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._making: dict[K, threading.Lock] = {}
        self._lock = threading.Lock()

    def peek(self, key: K) -> V | None:
        """A value if it is there."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """A value; threads that want the same one wait for the first of them instead of making it again."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self.peek(key)
            if value is not None:
                return value
            try:
                value = make()
                self._keep(key, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def _keep(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._held += self._size(value)
            while self._held > self._most and len(self._kept) > 1:
                self._held -= self._size(self._kept.popitem(last=False)[1])
