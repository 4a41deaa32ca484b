"""RasterKind: type, nodata value, bands, colours and tags of a GeoTIFF, without the libraries that write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
