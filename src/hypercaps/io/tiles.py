"""Several tiles, or what lies at an address, as one raster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hypercaps.errors import HypercapsError, LabelsError
from hypercaps.io.detect import DAMAGE, explained, explaining, raster_of, sniff, split_spec
from hypercaps.io.paths import Named, address_in, tiles_in
from hypercaps.io.raster import Bands, RawWindow, StoredRaster
from hypercaps.io.readers.geotiff import geotiff_raster
from hypercaps.io.readers.mosaic import Mosaic, mosaic


def open_tiles_or_remote(named: Named, error: type[HypercapsError], *, allow_remote: bool = False) -> Mosaic | None:
    """The raster of several tiles, or of what lies at an address; None if one file of this machine is named."""
    tiles = tiles_in(named, error)
    if tiles is None:
        assert isinstance(named, str | Path)
        address = address_in(named, allowed=allow_remote, error=error)
        return None if address is None else Mosaic.of_one(_from_afar(address, error))
    rasters = {tile.path: tile for tile in (_tile(tile, error, allow_remote=allow_remote) for tile in tiles)}
    if len(rasters) == 1:  # a header and its data are one
        return Mosaic.of_one(*rasters.values())
    with explained(Path(str(tiles[0])), error):
        return mosaic(list(rasters.values()), zero_is_nothing=error is LabelsError)


def _tile(named: str | Path, error: type[HypercapsError], *, allow_remote: bool) -> StoredRaster:
    address = address_in(named, allowed=allow_remote, error=error)
    if address is not None:
        return _from_afar(address, error)
    path, _ = split_spec(str(named), "tile", error)
    with explained(path, error):
        if sniff(path) not in ("tiff", "envi", "product"):
            raise error(f"{path} is no tile: tiles are GeoTIFF or ENVI files, which say where they lie")
        raster = raster_of(path)
    return replace(raster, take=explaining(raster.take, path, error))


def _from_afar(address: str, error: type[HypercapsError]) -> StoredRaster:
    def failed(cause: BaseException) -> HypercapsError:
        return error(
            f"{address} can't be read ({cause}): the address of a GeoTIFF is expected, download it to make sure"
        )

    try:
        raster = geotiff_raster(Path(Path(unquote(urlsplit(address).path)).name), address)
    except HypercapsError as cause:
        raise error(str(cause)) from None
    except DAMAGE as cause:
        raise failed(cause) from cause

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        try:
            return raster.take(rows, cols, bands)
        except OSError as cause:
            raise failed(cause) from cause

    return replace(raster, take=take)
