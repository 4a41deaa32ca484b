"""Events to the pages, and which of them may write: the first one whose stream is open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypercaps.workbench.refusals import RefusedError

_LONGEST_QUEUE = 1000
_GRACE = 4.0  # seconds that a writer who reloads the page remains the writer
END = "end"


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: Any


@dataclass(eq=False)
class _Tab:
    client: str
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Event] = field(default_factory=lambda: asyncio.Queue(_LONGEST_QUEUE + 1))
    is_overflown: bool = False

    def put(self, event: Event) -> None:
        """Add an event, in the loop's thread; a page that does not read loses its stream, and connects again."""
        if self.is_overflown:
            return
        if self.queue.qsize() >= _LONGEST_QUEUE:
            self.is_overflown = True
            while not self.queue.empty():
                self.queue.get_nowait()
            event = Event(END, {})
        self.queue.put_nowait(event)


class Hub:
    """Streams of events, one for each open page."""

    def __init__(self) -> None:
        self._tabs: list[_Tab] = []
        self._writer: str | None = None
        self._lock = threading.RLock()
        self._is_closed = False

    # ---- events ------------------------------------------------------------------------------------------------------

    def publish(self, name: str, data: Any) -> None:
        """Send an event to every page, from any thread."""
        with self._lock:
            for tab in self._tabs:
                self._send(tab, Event(name, data))

    def _send(self, tab: _Tab, event: Event) -> None:
        if not tab.loop.is_closed():
            tab.loop.call_soon_threadsafe(tab.put, event)

    async def stream(self, client: str, first: Callable[[], Event]) -> AsyncIterator[Event]:
        """The events for a page until the server or the page ends it; ``first`` makes the one to begin with."""
        tab = self._enter(client)
        try:
            # What happens after this page is on the list can't be missed. In a thread: `first` may wait for a lock.
            yield await asyncio.to_thread(first)
            while not self._is_closed:
                event = await tab.queue.get()
                yield event
                if event.name == END:
                    return
        finally:
            self._leave(tab)

    def close(self) -> None:
        """End all streams."""
        self.publish(END, {})
        self._is_closed = True

    def __len__(self) -> int:
        return len(self._tabs)

    # ---- the writer --------------------------------------------------------------------------------------------------

    def _enter(self, client: str) -> _Tab:
        with self._lock:
            if self._writer is None:
                self._writer = client
            tab = _Tab(client, asyncio.get_running_loop())
            self._tabs.append(tab)
            return tab

    def _leave(self, tab: _Tab) -> None:
        with self._lock:
            self._tabs.remove(tab)
            if tab.client == self._writer and not self._is_open(tab.client) and not tab.loop.is_closed():
                tab.loop.call_later(_GRACE, self._pass_on, tab.client)

    def _pass_on(self, client: str) -> None:
        """Make the next page the writer, unless the last one has come back."""
        with self._lock:
            if self._writer != client or self._is_open(client):
                return
            self._writer = self._tabs[0].client if self._tabs else None
            for tab in self._tabs:
                if tab.client == self._writer:
                    self._send(tab, Event("state", {"writer": True}))

    def _is_open(self, client: str) -> bool:
        return any(tab.client == client for tab in self._tabs)

    def is_writer(self, client: str) -> bool:
        """Whether a page may change something: it is the writer, or nobody is."""
        with self._lock:
            return self._writer is None or self._writer == client

    def check_writer(self, client: str) -> None:
        if not self.is_writer(client):
            raise RefusedError(
                "this project is being edited in another tab or browser: here it can only be viewed", 403
            )
