"""EnMAP and DESIS: band metadata from the XML file beside an image.

A product is a folder: X-SPECTRAL_IMAGE.TIF holds the numbers, X-METADATA.XML their wavelengths, gains and offsets.
Either can be opened, and the other is found by its name in the same folder; files named in the XML are not opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from hypercaps.errors import SceneError
from hypercaps.io.raster import Floats, StoredRaster
from hypercaps.io.wavelengths import BandInfo, with_bands
from hypercaps.io.xml import read_xml

_METADATA = re.compile(r"(?P<product>.+)-METADATA\.XML", re.IGNORECASE)
# GeoTIFF, plain or Cloud Optimized, and the ENVI formats of EnMAP.
_IMAGE = re.compile(r"(?P<product>.+)-SPECTRAL_IMAGE(_COG)?\.(TIFF?|BSQ|BIL|BIP)", re.IGNORECASE)


@dataclass(frozen=True)
class Sidecar:
    """Metadata of a product; values are stored numbers x gain + offset."""

    path: Path
    bands: BandInfo
    gain: Floats | None  # (bands,)
    offset: Floats | None  # (bands,)
    nodata: float | None


def is_metadata(path: Path, head: bytes) -> bool:
    """Whether a file is a product's metadata, by its name and its first bytes."""
    return _METADATA.fullmatch(path.name) is not None and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def image_of(metadata: Path) -> Path:
    """The image that belongs to a product's metadata."""
    images = _matching_files(metadata, _METADATA, _IMAGE)
    if len(images) == 1:
        return images[0]
    if images:
        names = ", ".join(image.name for image in images)
        raise SceneError(f"{metadata} could belong to {names}: name the image instead of the metadata")
    expected = metadata.name[: -len("METADATA.XML")] + "SPECTRAL_IMAGE.TIF"
    raise SceneError(f"there is no image beside the metadata {metadata}: {expected}, for example, is expected")


def with_sidecar(raster: StoredRaster) -> StoredRaster:
    """The raster, completed with the metadata of its product."""
    metadata = _matching_files(raster.path, _IMAGE, _METADATA)
    if not metadata:
        return raster
    if len(metadata) > 1:
        names = ", ".join(path.name for path in metadata)
        raise SceneError(f"{raster.path} has more than one metadata file beside it: keep one of {names}")
    sidecar = read_sidecar(metadata[0], raster.shape[2])
    raster = with_bands(raster, sidecar.bands)
    if raster.scale is None and raster.offset is None:  # an image that was scaled later has its own scale
        raster = replace(raster, scale=sidecar.gain, offset=sidecar.offset)
    if all(value is None for value in raster.nodata):
        raster = replace(raster, nodata=(sidecar.nodata,) * raster.shape[2])
    return raster


def product_files(path: Path) -> list[Path]:
    """The metadata beside an image of a product, or the images beside its metadata."""
    return [*_matching_files(path, _IMAGE, _METADATA), *_matching_files(path, _METADATA, _IMAGE)]


def _matching_files(path: Path, own: re.Pattern[str], other: re.Pattern[str]) -> list[Path]:
    """Files of the same product in the same folder whose names match ``other``."""
    match = own.fullmatch(path.name)
    if match is None:
        return []
    folder = path.parent
    return [
        folder / name
        for name in sorted(entry.name for entry in folder.iterdir())
        if (fits := other.fullmatch(name)) and fits["product"] == match["product"] and (folder / name).is_file()
    ]


def read_sidecar(path: Path, bands: int) -> Sidecar:
    """The metadata of an image of ``bands`` bands."""
    root = read_xml(path)
    described = next(root.iter("bandCharacterisation"), None)
    # EnMAP has <bandID number="1">, DESIS <band>; both use these names elsewhere too.
    of_bands = [] if described is None else [element for element in described if element.tag in ("bandID", "band")]
    if not of_bands:
        raise SceneError(
            f"{path} does not describe bands (bandCharacterisation), as the metadata of EnMAP and DESIS does: get it "
            "again, or remove it to read the image alone"
        )
    if len(of_bands) != bands:
        raise SceneError(
            f"{path} describes {len(of_bands)} bands but the image beside it has {bands}: remove it if it belongs "
            "to another image"
        )
    of_bands = _in_order(of_bands, path)
    waves = _numbers(of_bands, "wavelengthCenterOfBand", path)
    fwhm = _numbers(of_bands, "FWHMOfBand", path)
    if waves is None or not (waves > 0).all():
        raise SceneError(f"{path} does not give every band a wavelength above 0: get it again or remove it")
    gain, offset = _numbers(of_bands, "GainOfBand", path), _numbers(of_bands, "OffsetOfBand", path)
    if gain is not None and not gain.all():
        raise SceneError(f"{path} gives a band a gain of 0, which makes all its values 0: get it again or remove it")
    background = next(root.iter("backgroundValue"), None)
    return Sidecar(
        path,
        BandInfo(waves, _numbers(of_bands, "wavelengthWidthOfBand", path) if fwhm is None else fwhm),
        None if gain is None or (gain == 1).all() else gain,
        None if offset is None or (offset == 0).all() else offset,
        None if background is None else _number(background.text, "backgroundValue", path),
    )


def _in_order(of_bands: list[Element], path: Path) -> list[Element]:
    """Bands in the order of their numbers (EnMAP), or as listed (DESIS)."""
    texts = [band.get("number") for band in of_bands]
    if all(text is None for text in texts):
        return of_bands
    numbers = [_number(text, "number of a band", path) for text in texts]
    if sorted(numbers) != list(range(1, len(numbers) + 1)):
        raise SceneError(f"{path} does not number its bands from 1 to {len(numbers)}: get it again or remove it")
    return [of_bands[at] for at in np.argsort(numbers)]


def _numbers(of_bands: list[Element], name: str, path: Path) -> Floats | None:
    """(bands,), from elements of this name, also with a lower-case first letter; None if no band has one."""
    texts = [band.findtext(name, band.findtext(name[0].lower() + name[1:])) for band in of_bands]
    if all(text is None for text in texts):
        return None
    if None in texts:
        raise SceneError(f"{path} gives only some bands a {name}: all or none are expected, get it again")
    return np.array([_number(text, name, path) for text in texts])


def _number(text: str | None, what: str, path: Path) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = float("nan")
    if not np.isfinite(number):
        raise SceneError(f"{path} gives {(text or '')[:40]!r} as {what}: a finite number is expected")
    return number
