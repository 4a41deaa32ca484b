"""The catalogue of public scenes: their descriptions, and finding or downloading their files.

A file is searched in the folder ``HYPERCAPS_DATA`` (at any depth, by its name), then in an installed package that
contains it, then in the user's cache; otherwise it is downloaded into the cache.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from hypercaps.data.colors import parse_color
from hypercaps.data.labels import Legend, LegendEntry
from hypercaps.errors import CatalogError, did_you_mean, warn_data
from hypercaps.io.writers.atomic import file_sha256, write_bytes

DATA_VARIABLE = "HYPERCAPS_DATA"  # a folder with downloaded files
MIRROR_VARIABLE = "HYPERCAPS_MIRROR"  # another base URL for downloads

Part = Literal["cube", "labels"]
_PARTS: tuple[Part, ...] = ("cube", "labels")
# Called with a file's name and size in bytes (0: unknown); returns an object for pooch's ``progressbar``.
ProgressMaker = Callable[[str, int], Any]


@dataclass(frozen=True)
class PublicFile:
    """A file of a public scene; ``sha256`` is empty where none was published."""

    path: str  # relative to the base URL
    sha256: str
    bytes: int = 0
    key: str = ""  # of the array in the file

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def url(self) -> str:
        return f"{(os.environ.get(MIRROR_VARIABLE) or _document()['base']).rstrip('/')}/{self.path}"


@dataclass(frozen=True)
class CatalogScene:
    """A public scene of the catalogue."""

    name: str
    title: str
    place: str
    sensor: str
    shape: tuple[int, int, int]
    labelled: int
    range_nm: tuple[float, float]
    pixel_m: float
    licence: str
    citation: str
    legend: Legend
    files: Mapping[Part, PublicFile]
    wavelengths: tuple[float, ...] | None  # nm, where known for every band
    package: str | None  # an installed package that contains the arrays
    package_files: Mapping[Part, PublicFile]

    def locate(self, part: Part) -> Path | None:
        """The local path of this part, unchecked; None if it must be downloaded."""
        file = self.files[part]
        return next(_in_data_folder(file), None) or self._in_package(part) or _in_cache(file)

    def get(self, part: Part, progress: ProgressMaker | None = None) -> tuple[Path, str | None]:
        """The verified file of this part, downloaded if needed, and the key of its array."""
        file = self.files[part]
        candidates = list(_in_data_folder(file))
        if candidates:
            return _first_intact(file, candidates), file.key
        packaged = self._in_package(part)
        if packaged is not None:
            return _first_intact(self.package_files[part], [packaged]), None
        return _first_intact(file, [_in_cache(file) or _download(file, progress)]), file.key

    def _in_package(self, part: Part) -> Path | None:
        spec = None if self.package is None else importlib.util.find_spec(self.package)  # without importing it
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin).parent / self.package_files[part].path
        return path if path.is_file() else None

    def describe(self) -> dict[str, object]:
        """For ``hypercaps scenes --json`` and ``hypercaps info``."""
        return {
            "name": self.name,
            "title": self.title,
            "place": self.place,
            "sensor": self.sensor,
            **dict(zip(("rows", "cols", "bands"), self.shape, strict=True)),
            "classes": [entry._asdict() for entry in self.legend],
            "labelled": self.labelled,
            "range_nm": self.range_nm,
            "wavelengths_nm": self.wavelengths,
            "pixel_m": self.pixel_m,
            "licence": self.licence,
            "citation": self.citation,
            "at_hand": all(self.locate(part) is not None for part in self.files),
            "files": [
                {"url": f.url, "bytes": f.bytes or None, "sha256": f.sha256 or None, "key": f.key}
                for f in self.files.values()
            ],
        }


@cache
def _document() -> Any:
    return tomllib.loads((files("hypercaps.io") / "scenes.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    return list(_document()["scenes"])


def get_scene(name: str) -> CatalogScene:
    """A scene of the catalogue; an unknown name is refused with a list of all."""
    if name not in names():
        available = names()
        raise CatalogError(
            f"there is no public scene {name!r}: known are {', '.join(available)}{did_you_mean(name, available)}"
        )
    entry = _document()["scenes"][name]
    package = entry.get("embedded", {})
    plain = ("title", "place", "sensor", "labelled", "pixel_m", "licence", "citation")
    return CatalogScene(
        name=name,
        **{key: entry[key] for key in plain},
        shape=tuple(entry["shape"]),
        range_nm=tuple(entry["range_nm"]),
        legend=Legend(tuple(LegendEntry(label, text, parse_color(color)) for label, text, color in entry["classes"])),
        files={part: PublicFile(**entry[part]) for part in _PARTS},
        wavelengths=_wavelengths(entry.get("wavelengths"), entry.get("dropped_bands", ())),
        package=package.get("package"),
        package_files={part: PublicFile(**package[part]) for part in _PARTS if package},
    )


def _wavelengths(sensor: str | None, dropped: Sequence[str]) -> tuple[float, ...] | None:
    """The sensor's wavelengths without the bands that were dropped from the file."""
    if sensor is None:
        return None
    gone = set()
    for span in dropped:  # "104-108" or "220", counted from 1
        first, _, last = span.partition("-")
        gone |= set(range(int(first), int(last or first) + 1))
    return tuple(wave for band, wave in enumerate(_document()["wavelengths"][sensor], 1) if band not in gone)


def cache_folder() -> Path:
    """The folder of downloaded files."""
    import pooch  # imports requests: only when needed

    return Path(pooch.os_cache("hypercaps"))


def _in_data_folder(file: PublicFile) -> Iterator[Path]:
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        return
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise CatalogError(f"{DATA_VARIABLE} names {folder}, which is not a folder: correct or unset it")
    yield from sorted(path for path in root.rglob(file.name) if path.is_file())


def _in_cache(file: PublicFile) -> Path | None:
    path = cache_folder() / file.name
    return path if path.is_file() else None


def _first_intact(file: PublicFile, candidates: list[Path]) -> Path:
    expected = _expected_sha256(file)
    try:
        for path in candidates:
            if not expected or file_sha256(path) == expected:
                return path
    except OSError as error:
        raise CatalogError(f"{path} can't be read ({error.strerror}): repair it or move it away") from error
    path = candidates[0]
    raise CatalogError(
        f"{path} is damaged or another file: SHA-256 {expected} was expected and {file_sha256(path)} came "
        f"({path.stat().st_size:,} bytes{f', not {file.bytes:,}' if file.bytes else ''}); delete it, or get it "
        f"again by hand from {file.url}; to use it as it is, give its path in place of the scene's name"
    )


def _pin_file(file: PublicFile) -> Path:
    """Holds the checksum of the first download of a file without a published one."""
    return cache_folder() / f"{file.name}.sha256"


def _expected_sha256(file: PublicFile) -> str:
    """The published checksum, or the pinned one; empty before the first download."""
    if file.sha256:
        return file.sha256
    pin = _pin_file(file)
    return pin.read_text().strip() if pin.is_file() else ""


def _download(file: PublicFile, progress: ProgressMaker | None) -> Path:
    import pooch
    import requests

    expected = _expected_sha256(file)
    bar: Any = progress(file.name, file.bytes) if progress else False
    pooch.get_logger().setLevel("WARNING")
    by_hand = f"get {file.url} by hand and put it into {cache_folder()}, or into a folder named by {DATA_VARIABLE}"
    try:
        path = Path(
            pooch.retrieve(
                file.url,
                known_hash=f"sha256:{expected}" if expected else None,
                fname=file.name,
                path=cache_folder(),
                downloader=pooch.HTTPDownloader(progressbar=bar, timeout=30),
            )
        )
    except requests.exceptions.RequestException as error:
        reason = type(error).__name__ if error.response is None else f"HTTP {error.response.status_code}"
        raise CatalogError(f"{file.name} can't be downloaded ({reason}): {by_hand}") from error
    except ValueError as error:  # pooch found another checksum and deleted the file
        actual = re.search(r"got ([0-9a-f]{64})", str(error))
        raise CatalogError(
            f"{file.name} was damaged in the download from {file.url}: SHA-256 {expected} was expected and "
            f"got {actual[1] if actual else 'another'}; try again later, or {by_hand}"
        ) from error
    except OSError as error:
        raise CatalogError(f"{file.name} can't be kept in {cache_folder()} ({error}): {by_hand}") from error
    finally:
        if bar:
            bar.close()  # pooch closes it only on success
    if not expected:
        actual_sha256 = file_sha256(path)
        write_bytes(_pin_file(file), f"{actual_sha256}\n".encode())
        warn_data(
            f"no SHA-256 of {file.name} has been published: that of this download ({actual_sha256}) is expected from "
            "now on"
        )
    return path
