"""Classes, strokes, undo and redo, and labels as tiles."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Header, Request, Response

from hypercaps.workbench.bench import Stroke
from hypercaps.workbench.label_exchange import exported, upload_folder
from hypercaps.workbench.refusals import not_found
from hypercaps.workbench.requests import ClassRequest, StepRequest, StrokeRequest
from hypercaps.workbench.route_tools import OnBench, Writer, as_bytes, in_thread, soon
from hypercaps.workbench.spans import checked_spans

router = APIRouter()


@router.get("/tiles/labels/{version}/{level}/{x}/{y}")
async def get_label_tile(bench: OnBench, version: int, level: int, x: int, y: int) -> Response:
    if not 0 <= level < bench.view.levels or x < 0 or y < 0:
        raise not_found(f"level {level}")
    is_final = version == bench.labels.version
    content = await soon(bench.label_tile, level, x, y)
    return as_bytes(content, final=is_final and version == bench.labels.version)


@router.post("/classes")
def post_class(bench: OnBench, client: Writer, request: ClassRequest) -> dict[str, Any]:
    return bench.change_classes(client, request.model_dump())


@router.post("/strokes")
def post_stroke(bench: OnBench, client: Writer, request: StrokeRequest) -> dict[str, Any]:
    spans = checked_spans(request.spans, (bench.scene.rows, bench.scene.cols))
    return bench.paint(Stroke(client, request.stroke, request.tool, request.class_, spans))


@router.post("/undo")
def post_undo(bench: OnBench, client: Writer, request: StepRequest) -> dict[str, Any]:
    return bench.undo(client, request.step)


@router.post("/redo")
def post_redo(bench: OnBench, client: Writer, request: StepRequest) -> dict[str, Any]:
    return bench.redo(client, request.step)


@router.post("/labels/import")
async def post_labels(
    bench: OnBench,
    client: Writer,
    request: Request,
    x_name: Annotated[str, Header(max_length=1000)],
    x_class_field: Annotated[str, Header(max_length=1000)] = "",
) -> dict[str, Any]:
    name, class_field = unquote(x_name), unquote(x_class_field) or None
    with upload_folder(bench.folder, name) as path:
        with path.open("wb") as file:
            async for chunk in request.stream():
                file.write(chunk)
        return await in_thread(bench.import_file, client, path, name, class_field)


@router.get("/labels/export/{kind}")
async def get_labels(bench: OnBench, kind: str) -> Response:
    content = await in_thread(exported, bench.labels.snapshot(), bench.scene, kind)
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", bench.project.name) or "labels"
    disposition = f'attachment; filename="{stem}-labels.{kind}"'
    return as_bytes(content, final=False, **{"Content-Disposition": disposition})
