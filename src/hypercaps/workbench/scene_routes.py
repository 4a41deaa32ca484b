"""Pictures of the scene, and spectra."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from hypercaps.workbench.route_tools import FOREVER, OnBench, as_bytes, in_thread, soon
from hypercaps.workbench.wand import grow

router = APIRouter()


@router.get("/tiles/scene/{bands}/{stretch}/{level}/{x}/{y}")
async def get_scene_tile(bench: OnBench, bands: str, stretch: str, level: int, x: int, y: int) -> Response:
    is_final = bench.view.is_final(level)
    picture = await in_thread(bench.view.picture, bands, stretch, level, x, y)
    return Response(picture, media_type="image/png", headers=FOREVER if is_final else {})


@router.get("/spectrum")
async def get_spectrum(bench: OnBench, row: int, col: int) -> Response:
    bench.check_pixel(row, col)
    values, is_valid = await soon(bench.view.reader.pixel, row, col)
    return as_bytes(values.astype("<f4").tobytes(), final=False, **{"X-Valid": str(int(is_valid))})


@router.get("/spectra/classes")
async def get_class_spectra(bench: OnBench) -> dict[str, Any]:
    return await in_thread(bench.class_spectra)


@router.get("/wand")
async def get_region(
    bench: OnBench, row: int, col: int, tolerance: Annotated[float, Query(ge=0, le=1)]
) -> dict[str, Any]:
    bench.check_pixel(row, col)
    spans = await in_thread(grow, bench.view.reader, row, col, tolerance)
    return {"spans": spans.tolist(), "pixels": int((spans[:, 2] - spans[:, 1]).sum())}
