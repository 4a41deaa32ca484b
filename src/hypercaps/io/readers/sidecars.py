"""EnMAP and DESIS: band metadata from the XML file beside an image.

A product is a folder: X-SPECTRAL_IMAGE.TIF holds the numbers, X-METADATA.XML their wavelengths, gains and offsets.
Either can be opened, and the other is found by its name in the same folder; files named in the XML are not opened.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from hypercaps.errors import SceneError
from hypercaps.io.raster import Floats, StoredRaster
from hypercaps.io.readers.band_tags import finite_number
from hypercaps.io.wavelengths import BandInfo, with_bands
from hypercaps.io.xml import read_xml

_METADATA = re.compile(r"(?P<product>.+)-METADATA\.XML", re.IGNORECASE)
# GeoTIFF, plain or Cloud Optimized, and the ENVI formats of EnMAP.
_IMAGE = re.compile(r"(?P<product>.+)-SPECTRAL_IMAGE(_COG)?\.(TIFF?|BSQ|BIL|BIP)", re.IGNORECASE)


def is_metadata(path: Path, head: bytes) -> bool:
    """Whether a file is a product's metadata, by its name and its first bytes."""
    return _METADATA.fullmatch(path.name) is not None and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def image_of(metadata: Path) -> Path:
    images = _matching_files(metadata, _METADATA, _IMAGE)
    if len(images) == 1:
        return images[0]
    if images:
        names = ", ".join(image.name for image in images)
        raise SceneError(f"{metadata} could belong to {names}: name the image instead of the metadata")
    expected = metadata.name[: -len("METADATA.XML")] + "SPECTRAL_IMAGE.TIF"
    raise SceneError(f"there is no image beside the metadata {metadata}: {expected}, for example, is expected")


def with_sidecar(raster: StoredRaster) -> StoredRaster:
    """The raster, completed with the metadata of its product; values are stored numbers x gain + offset."""
    metadata = _matching_files(raster.path, _IMAGE, _METADATA)
    if not metadata:
        return raster
    if len(metadata) > 1:
        names = ", ".join(path.name for path in metadata)
        raise SceneError(f"{raster.path} has more than one metadata file beside it: keep one of {names}")
    path, root = metadata[0], read_xml(metadata[0])
    bands = _bands(root, path, raster.shape[2])
    waves, fwhm = _numbers(bands, "wavelengthCenterOfBand", path), _numbers(bands, "FWHMOfBand", path)
    if waves is None or not (waves > 0).all():
        raise SceneError(f"{path} does not give every band a wavelength above 0: get it again or remove it")
    fwhm = _numbers(bands, "wavelengthWidthOfBand", path) if fwhm is None else fwhm
    gain, offset = _numbers(bands, "GainOfBand", path), _numbers(bands, "OffsetOfBand", path)
    if gain is not None and not gain.all():
        raise SceneError(f"{path} gives a band a gain of 0, which makes all its values 0: get it again or remove it")
    background = next(root.iter("backgroundValue"), None)
    nodata = None if background is None else finite_number(background.text, "backgroundValue", path)
    raster = with_bands(raster, BandInfo(waves, fwhm))
    if raster.scale is None and raster.offset is None:  # an image that was scaled later has its own scale
        gain = None if gain is None or (gain == 1).all() else gain
        raster = replace(raster, scale=gain, offset=None if offset is None or (offset == 0).all() else offset)
    if all(value is None for value in raster.nodata):
        raster = replace(raster, nodata=(nodata,) * raster.shape[2])
    return raster


def product_files(path: Path) -> list[Path]:
    """The metadata beside an image of a product, or the images beside its metadata."""
    return [*_matching_files(path, _IMAGE, _METADATA), *_matching_files(path, _METADATA, _IMAGE)]


def _matching_files(path: Path, own: re.Pattern[str], other: re.Pattern[str]) -> list[Path]:
    """Files of the same product in the same folder whose names match ``other``."""
    match = own.fullmatch(path.name)
    if match is None:
        return []
    return [
        file
        for file in sorted(path.parent.iterdir())
        if (fits := other.fullmatch(file.name)) and fits["product"] == match["product"] and file.is_file()
    ]


def _bands(root: Element, path: Path, count: int) -> list[Element]:
    """The elements of ``count`` bands, in the order of their numbers (EnMAP), or as listed (DESIS)."""
    described = next(root.iter("bandCharacterisation"), None)
    # EnMAP has <bandID number="1">, DESIS <band>; both use these names elsewhere too.
    of_bands = [] if described is None else [element for element in described if element.tag in ("bandID", "band")]
    if not of_bands:
        raise SceneError(
            f"{path} does not describe bands (bandCharacterisation), as the metadata of EnMAP and DESIS does: get it "
            "again, or remove it to read the image alone"
        )
    if len(of_bands) != count:
        raise SceneError(
            f"{path} describes {len(of_bands)} bands but the image beside it has {count}: remove it if it belongs "
            "to another image"
        )
    texts = [band.get("number") for band in of_bands]
    if all(text is None for text in texts):
        return of_bands
    numbers = [finite_number(text, "number of a band", path) for text in texts]
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
    return np.array([finite_number(text, name, path) for text in texts])
