"""Find what the user named: a file, several tiles of one scene, or a GeoTIFF at an http address."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hypercaps.errors import HypercapsError, SceneError
from hypercaps.io.damage import damage, translate_errors
from hypercaps.io.detect import DetectedFile, detect, detect_file
from hypercaps.io.options import OpenOptions
from hypercaps.io.paths import PathSpec, local_file, remote_address, tile_paths
from hypercaps.io.raster import Bands, RawWindow, StoredRaster
from hypercaps.io.readers.mosaic import Mosaic, mosaic


def find_source(spec: PathSpec, what: str, options: OpenOptions) -> DetectedFile | Mosaic:
    """The file that ``spec`` names, or the opened raster of several tiles or of an address."""
    path = local_file(spec)
    if path is not None:  # the usual case
        return detect_file(path)
    tiles = tile_paths(spec)
    if tiles is None:
        address = remote_address(str(spec), allowed=options.allow_remote)
        return detect(str(spec), what) if address is None else Mosaic.of_one(_open_remote(address))
    rasters = {tile.path: tile for tile in (_open_tile(str(path), options) for path in tiles)}
    if len(rasters) == 1:  # an ENVI header and its data are one raster
        return Mosaic.of_one(*rasters.values())
    with translate_errors(Path(str(tiles[0]))):
        return mosaic(list(rasters.values()))


def _open_tile(spec: str, options: OpenOptions) -> StoredRaster:
    address = remote_address(spec, allowed=options.allow_remote)
    if address is not None:
        return _open_remote(address)
    file = detect(spec, "tile")
    if file.kind not in ("tiff", "envi", "product"):
        raise SceneError(f"{file.path} can't be a tile: tiles are georeferenced GeoTIFF or ENVI files")
    raster: StoredRaster = file.arrays[0].load()
    return replace(raster, take=translate_errors(file.path)(raster.take))


def _open_remote(address: str) -> StoredRaster:
    from hypercaps.io.readers.geotiff import geotiff_raster

    def failed(cause: BaseException) -> SceneError:
        return SceneError(
            f"{address} can't be read ({cause}): the address of a GeoTIFF is expected, download the file to check it"
        )

    try:
        raster = geotiff_raster(Path(Path(unquote(urlsplit(address).path)).name), address)
    except HypercapsError:
        raise
    except damage() as cause:
        raise failed(cause) from cause

    def take(rows: slice, cols: slice, bands: Bands) -> RawWindow:
        try:
            return raster.take(rows, cols, bands)
        except OSError as cause:
            raise failed(cause) from cause

    return replace(raster, take=take)
