"""The state of the page, and the stream of events that changes it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent

from hypercaps.workbench.events import Event
from hypercaps.workbench.route_tools import OnBench

router = APIRouter()
Client = Annotated[str, Query(max_length=100)]


@router.get("/state")
def get_state(bench: OnBench, client: Client = "") -> dict[str, Any]:
    return bench.state(client)


@router.get("/events", response_class=EventSourceResponse)
async def get_events(bench: OnBench, client: Client = "") -> AsyncIterator[ServerSentEvent]:
    async for event in bench.hub.stream(client, lambda: Event("state", bench.state(client))):
        # A browser drops an event without data, as FastAPI would send None: the end of a training must arrive.
        yield ServerSentEvent(event=event.name, raw_data=json.dumps(event.data))
