"""Trainings, maps, suggestions, explanations, comparisons and exports."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.responses import FileResponse

from hypercaps.workbench.map_store import changed_pixels, compare, map_tile
from hypercaps.workbench.refusals import RefusedError, not_found
from hypercaps.workbench.requests import ExportRequest, OptionsRequest, TrainingRequest, ViewRequest
from hypercaps.workbench.route_tools import BYTES, OnBench, Writer, as_bytes, in_thread, soon
from hypercaps.workbench.spans import spans_of

router = APIRouter()
_MOST_SPANS = 100_000
_PATIENCE = 30.0  # seconds to wait for an explanation


@router.get("/tiles/map/{training}/{revision}/{level}/{x}/{y}")
async def get_map_tile(bench: OnBench, training: str, revision: int, level: int, x: int, y: int) -> Response:
    if not 0 <= level < bench.view.levels or x < 0 or y < 0:
        raise not_found(f"level {level}")
    values = bench.desk.trainings.map(training)
    is_final = revision == bench.desk.revision(training)
    return as_bytes(await soon(map_tile, values, level, x, y), final=is_final)


@router.post("/train")
def post_train(bench: OnBench, client: Writer, request: TrainingRequest) -> dict[str, Any]:
    return bench.desk.train(request.view, request.chosen())


@router.post("/options")
def post_options(bench: OnBench, client: Writer, request: OptionsRequest) -> dict[str, Any]:
    return bench.desk.choose(request.chosen())


@router.post("/view")
def post_view(bench: OnBench, client: Writer, request: ViewRequest) -> dict[str, Any]:
    bench.desk.look(request.view)
    return {}


@router.post("/cancel")
def post_cancel(bench: OnBench, client: Writer) -> dict[str, Any]:
    bench.desk.cancel()
    return {}


@router.get("/trainings/{training}")
def get_training(bench: OnBench, training: str) -> dict[str, Any]:
    return bench.desk.about(training)


@router.post("/trainings/{training}/show")
def post_show(bench: OnBench, client: Writer, training: str) -> dict[str, Any]:
    bench.desk.show(training)
    return bench.desk.map_state()


@router.post("/trainings/{training}/restore")
def post_restore(bench: OnBench, client: Writer, training: str) -> dict[str, Any]:
    return bench.restore(client, training)


@router.get("/trainings/{training}/errors")
def get_errors(bench: OnBench, training: str, truth: int | None = None, predicted: int | None = None) -> dict[str, Any]:
    pixels = bench.desk.trainings.errors(training, truth, predicted)
    return {"spans": spans_of(pixels, bench.scene.cols)[:_MOST_SPANS].tolist(), "pixels": len(pixels)}


@router.get("/trainings/{training}/doubtful")
def get_doubtful(bench: OnBench, training: str) -> dict[str, Any]:
    return {"pixels": bench.desk.trainings.doubtful(training)}


@router.get("/trainings/{training}/compare/{other}")
async def get_comparison(bench: OnBench, training: str, other: str) -> dict[str, Any]:
    maps = (bench.desk.trainings.map(training), bench.desk.trainings.map(other))
    return await in_thread(compare, *maps)


@router.get("/trainings/{training}/compare/{other}/spans")
async def get_changes(
    bench: OnBench,
    training: str,
    other: str,
    before: Annotated[int | None, Query(alias="from")] = None,
    after: Annotated[int | None, Query(alias="to")] = None,
) -> dict[str, Any]:
    maps = (bench.desk.trainings.map(training), bench.desk.trainings.map(other))
    pixels = await in_thread(changed_pixels, *maps, before, after)
    spans = spans_of(pixels, bench.scene.cols)
    return {"spans": spans[:_MOST_SPANS].tolist(), "pixels": len(pixels), "complete": len(spans) <= _MOST_SPANS}


@router.get("/suggestions")
def get_suggestions(bench: OnBench, count: Annotated[int, Query(ge=1, le=1000)] = 20) -> dict[str, Any]:
    return {"points": bench.desk.suggestions(count)}


@router.get("/explain")
async def get_explanation(bench: OnBench, row: int, col: int) -> dict[str, Any]:
    bench.check_pixel(row, col)
    answer, confidence = bench.desk.explain(row, col)
    try:
        explanation = await asyncio.wait_for(asyncio.wrap_future(answer), _PATIENCE)
    except TimeoutError:
        raise RefusedError("the worker is busy with a training: ask again when it has ended", 409) from None
    return {**explanation, "confidence": confidence}


@router.post("/export")
async def post_export(bench: OnBench, client: Writer, request: ExportRequest) -> dict[str, Any]:
    number, job = bench.desk.export(request.training)
    await asyncio.wrap_future(job.outcome)
    return await in_thread(bench.desk.exported, number)


@router.get("/runs/{training}/{file}")
def get_run_file(bench: OnBench, training: str, file: str) -> Response:
    path = bench.desk.run_file(training, file)
    return FileResponse(path, media_type=BYTES, filename=path.name)  # to be saved, not to be shown
