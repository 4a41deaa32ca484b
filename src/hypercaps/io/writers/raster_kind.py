"""RasterKind: type, nodata value, bands, colours and tags of a GeoTIFF, without the libraries that write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypercaps.data.labels import Legend


@dataclass(frozen=True)
class RasterKind:
    """How the values of a raster are stored and described."""

    dtype: str
    nodata: float
    overviews: str  # GDAL's resampling method for overviews
    bands: tuple[str, ...]  # band descriptions
    colors: Mapping[int, tuple[int, int, int, int]] | None = None
    scale: float = 1.0  # value = stored number * scale
    tags: Mapping[str, str] = field(default_factory=dict)
    band_tags: Mapping[str, str] = field(default_factory=dict)  # of the first band


def class_kind(legend: Legend, tags: Mapping[str, str]) -> RasterKind:
    """A raster of class numbers with colours and names; 0 is no class."""
    return RasterKind(
        dtype="uint8" if int(legend.labels.max(initial=0)) <= 255 else "uint16",
        nodata=0,
        overviews="mode",
        bands=("class",),
        colors={0: (0, 0, 0, 0)} | {entry.label: (*entry.color, 255) for entry in legend},
        tags=tags,
        band_tags={f"CLASS_{entry.label}": entry.name for entry in legend},
    )


def confidence_kind(tags: Mapping[str, str]) -> RasterKind:
    """A raster of the confidence from 0 to 1; NaN is no class."""
    return RasterKind("float32", float("nan"), "average", ("confidence",), tags=tags)
