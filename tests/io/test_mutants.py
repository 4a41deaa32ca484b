"""Damaged files: never a crash, never data that nobody stored.

A mutant is refused, or the user is warned, or it reads as what its bytes say. For numbers that lie plainly in a file
this means: a byte that changed changes its own pixel and no other. What a changed header describes is read by a second,
simpler reader here, and must be the same.
"""

from __future__ import annotations

import re
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.data.pixels import Pixels
from hypercaps.errors import DataWarning, HypercapsError, SceneError
from hypercaps.io.open import open_scene
from hypercaps.io.readers.envi import read_header
from support.memory import output_of
from support.rasters import GRID, write
from support.sidecar_files import ENMAP, WAVES, enmap_xml

pytestmark = pytest.mark.xdist_group("processes")

CUBE = np.random.default_rng(0).integers(1, 3000, (12, 11, 4))


class Mutant(NamedTuple):
    content: bytes
    changed: set[int]  # places that hold other bytes now; none if bytes moved
    moved: bool


def mutants(content: bytes, count: int, *, seed: int, first: int = 0) -> Iterator[Mutant]:
    """``content`` with bits flipped, bytes set, cut off, put in or taken out, from the byte ``first`` on."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        raw = bytearray(content)
        kind = number % 6
        places = rng.integers(first, len(raw), int(rng.integers(1, 4))).tolist()
        if kind <= 2:
            for place in places:
                raw[place] = raw[place] ^ (1 << int(rng.integers(8))) if kind < 2 else int(rng.integers(256))
            changed = {place for place in places if raw[place] != content[place]}
            yield Mutant(bytes(raw), changed, False)
        elif kind == 3:
            yield Mutant(bytes(raw[: places[0]]), set(), True)
        elif kind == 4:
            raw[places[0] : places[0]] = rng.bytes(int(rng.integers(1, 9)))
            yield Mutant(bytes(raw), set(), True)
        else:
            del raw[places[0] : places[0] + int(rng.integers(1, 9))]
            yield Mutant(bytes(raw), set(), True)


def outcome(path: Path) -> tuple[Pixels, Any] | None:
    """What is read in silence; None if it was refused or the user was warned."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            scene = open_scene(path)
            pixels = scene.read(slice(0, 500), slice(0, 500))
        except HypercapsError as error:
            assert 20 < len(str(error)) < 900 and "\n" not in str(error)
            return None
    assert all(issubclass(one.category, DataWarning) for one in told)
    return None if told else (pixels, scene)


# GeoTIFF

TAGS = [{"wavelength": str(wave), "fwhm": "7", "bbl": "1"} for wave in (400, 500, 600, 700)]
TIFFS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bands apart, big-endian": {"interleave": "band", "ENDIANNESS": "BIG"},
    "deflated tiles": {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate", "predictor": 2},
    "LZW in BigTIFF, with tags": {"compress": "lzw", "BIGTIFF": "YES", "tags": TAGS, "nodata": -1, "blockysize": 4},
}


class Directory(NamedTuple):
    """A TIFF as a second reader sees it."""

    fields: dict[int, bytes]  # by tag, type and count first
    numbers: dict[int, list[int]]


def directory(raw: bytes) -> Directory | None:
    order = "<" if raw[:2] == b"II" else ">"
    big = raw[2:4] in (b"+\x00", b"\x00+")
    try:
        (start,) = struct.unpack_from(order + ("Q" if big else "I"), raw, 8 if big else 4)
        (count,) = struct.unpack_from(order + ("Q" if big else "H"), raw, start)
        at, fields, numbers = start + (8 if big else 2), {}, {}
        for _ in range(count):
            tag, kind, held = struct.unpack_from(order + ("HHQ" if big else "HHI"), raw, at)
            size = {1: 1, 2: 1, 3: 2, 4: 4, 12: 8, 16: 8}.get(kind, 1) * held
            inline = 8 if big else 4
            place = at + (12 if big else 8)
            if size > inline:
                (place,) = struct.unpack_from(order + ("Q" if big else "I"), raw, place)
            value = raw[place : place + size]
            fields[tag] = f"{kind} {held} ".encode() + value
            if kind in (1, 3, 4, 16) and len(value) == size:
                numbers[tag] = list(
                    struct.unpack(f"{order}{held}{dict(zip((1, 3, 4, 16), 'BHIQ', strict=True))[kind]}", value)
                )
            at += 20 if big else 12
    except (struct.error, MemoryError):
        return None
    return Directory(fields, numbers)


def plainly_read(raw: bytes, found: Directory) -> np.ndarray | None:
    """The cube of a TIFF without compression, or None where this simple reader does not know."""
    numbers = {256: [0], 257: [0], 258: [1], 259: [1], 266: [1], 277: [1], 284: [1], 339: [1]} | found.numbers
    width, height, samples = (numbers[tag][0] for tag in (256, 257, 277))
    kinds = {1: "u", 2: "i", 3: "f"}
    bits, formats = numbers[258], numbers[339]
    if numbers[259] != [1] or numbers[266] != [1] or len({*bits}) > 1 or len({*formats}) > 1 or 322 in numbers:
        return None
    if formats[0] not in kinds or bits[0] not in (8, 16, 32, 64) or (formats[0] == 3 and bits[0] < 32):
        return None
    dtype = np.dtype(f"{'<' if raw[:2] == b'II' else '>'}{kinds[formats[0]]}{bits[0] // 8}")
    planes = samples if numbers[284] == [2] else 1
    rows = min(found.numbers.get(278, [height])[0], height)
    per_plane = -(-height // rows)
    of_planes = []
    for plane in range(planes):
        strips = []
        for strip in range(per_plane):
            place = numbers[273][plane * per_plane + strip]
            lines = min(rows, height - strip * rows)
            values = np.frombuffer(raw, dtype, lines * width * samples // planes, place)
            strips.append(values.reshape(lines, width, samples // planes))
        of_planes.append(np.concatenate(strips))
    return np.concatenate(of_planes, axis=2)


def blocks_of(changed: set[int], found: Directory) -> set[int]:
    starts = found.numbers.get(324, found.numbers.get(273, []))
    return {int(np.searchsorted(starts, place, side="right")) - 1 for place in changed}


@pytest.mark.parametrize("kind", TIFFS)
def test_geotiffs(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", CUBE, crs="EPSG:32633", transform=GRID, **TIFFS[kind])
    whole = path.read_bytes()
    original = directory(whole)
    assert original is not None
    silent = refused = 0
    for mutant in mutants(whole, 150, seed=len(kind), first=2):
        path.write_bytes(mutant.content)
        started = time.monotonic()
        result = outcome(path)
        assert time.monotonic() - started < 20
        if result is None:
            refused += 1
            continue
        silent += 1
        pixels, _ = result
        found = directory(mutant.content)
        assert found is not None
        if found.fields != original.fields or mutant.content[:4] != whole[:4]:  # it describes something else now
            expected = plainly_read(mutant.content, found) if kind in list(TIFFS)[:2] else None
            if expected is not None and pixels.values.shape == expected.shape:
                np.testing.assert_array_equal(pixels.values, expected.astype(np.float32))
            continue
        differs = (pixels.values != CUBE).any(axis=2)
        if mutant.moved:
            assert not differs.any(), kind  # bytes at the end that nothing lies in
        elif kind == "deflated tiles":
            assert not differs.any()  # its blocks have checksums
        elif kind.startswith("LZW"):
            rows = {row for block in blocks_of(mutant.changed, original) for row in range(block * 4, block * 4 + 4)}
            assert set(np.argwhere(differs)[:, 0].tolist()) <= rows
        else:
            expected = plainly_read(mutant.content, found)
            assert expected is not None and differs.sum() <= len(mutant.changed)
            np.testing.assert_array_equal(pixels.values, expected)
    assert refused > 20 and silent > 0  # most damage is noticed, some can't be


# ENVI

LAYOUTS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
HEADER = (
    "ENVI\ndescription = {a cube}\nsamples = 11\nlines = 12\nbands = 4\nheader offset = 0\ndata type = 2\n"
    "interleave = bil\nbyte order = 0\nreflectance scale factor = 100\ndata ignore value = 7\n"
    "wavelength units = Nanometers\nwavelength = {400, 500,\n 600, 700}\nfwhm = {5, 6, 7, 8}\nbbl = {1, 1, 1, 1}\n"
)


def envi(folder: Path) -> Path:
    (folder / "a.hdr").write_text(HEADER)
    path = folder / "a.img"
    path.write_bytes(CUBE.transpose(LAYOUTS["bil"]).astype("<i2").tobytes())
    return path


def as_described(header: str, raw: bytes) -> np.ndarray:
    """The physical values that a header describes, read in the simplest way."""
    fields = {
        " ".join(key.lower().split()): value.strip()
        for key, value in re.findall(
            r"^([^;=\n][^=\n]*)=[ \t]*(\{[^}]*\}|[^\n]*)", re.sub(r"\r\n?", "\n", header), re.MULTILINE
        )
    }
    rows, cols, bands = (int(fields[key]) for key in ("lines", "samples", "bands"))
    dtype = np.dtype(TYPES[int(fields["data type"])]).newbyteorder(">" if int(fields.get("byte order", 0)) else "<")
    layout = LAYOUTS[fields["interleave"].lower()]
    sizes = [(rows, cols, bands)[axis] for axis in layout]
    stored = np.frombuffer(raw, dtype, rows * cols * bands, int(fields.get("header offset", 0))).reshape(sizes)
    cube = stored.transpose([layout.index(axis) for axis in range(3)]).astype(np.float64)
    cube[cube == float(fields.get("data ignore value", "nan"))] = np.nan
    return cube / float(fields.get("reflectance scale factor", 1))


def check_as_described(pixels: Pixels, header: str, raw: bytes) -> None:
    expected = as_described(header, raw)
    valid = np.isfinite(expected).all(axis=2) & (np.abs(expected) < 3e38).all(axis=2)
    np.testing.assert_array_equal(pixels.valid, valid)
    np.testing.assert_allclose(pixels.values[valid], expected[valid], rtol=1e-6)


def test_headers_of_envi(tmp_path: Path) -> None:
    path = envi(tmp_path)
    header, silent = tmp_path / "a.hdr", 0
    for mutant in mutants(header.read_bytes(), 240, seed=1, first=5):
        header.write_bytes(mutant.content)
        if (result := outcome(path)) is not None:
            silent += 1
            check_as_described(result[0], mutant.content.decode("latin-1"), path.read_bytes())
    assert 20 < silent < 200


FIELDS = {
    "samples": ["0", "-11", "11.5", "1e3", "10", "12", "99999999999999", ""],
    "lines": ["0", "11", "13", "twelve", "9" * 400],
    "bands": ["0", "3", "5", "2147483648", "1000000000000"],
    "header offset": ["1", "-1", "1056", "18446744073709551616"],
    "data type": ["1", "12", "4", "5", "6", "0", "77", "-2"],
    "interleave": ["bsq", "bip", "BIL", "tile", ""],
    "byte order": ["1", "2", "-1", "big"],
    "reflectance scale factor": ["0", "-1", "nan", "inf", "1e-320", "1e4"],
    "data ignore value": ["nan", "inf", "1e400", "300", "-9999.5", "x"],
    "wavelength": ["{}", "{1, 2, 3}", "{1,2,3,4,5}", "{nan,1,2,3}", "400", "{4, 3, 2, 1}"],
    "fwhm": ["{1}", "{a,b,c,d}"],
    "bbl": ["{0,0,0,0}", "{1,0,1,1}", "{2,1,1,1}"],
    "map info": ["{}", "{UTM}", "{UTM, 1, 1, 1e999, 2, 30, 30, 33, North, WGS-84}", "{Arbitrary, 1, 1, 0, 0, 1, 1}"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in FIELDS.items() for value in values])
def test_fields_of_envi_headers(key: str, value: str, tmp_path: Path) -> None:
    path = envi(tmp_path)
    text = re.sub(rf"^{key} = (\{{[^}}]*\}}|.*)$", "", HEADER, flags=re.MULTILINE) + f"{key} = {value}\n"
    (tmp_path / "a.hdr").write_text(text)
    if (result := outcome(path)) is not None:
        check_as_described(result[0], text, path.read_bytes())


def test_numbers_of_envi(tmp_path: Path) -> None:
    path = envi(tmp_path)
    whole, silent = path.read_bytes(), 0
    for mutant in mutants(whole, 200, seed=2):
        path.write_bytes(mutant.content)
        if (result := outcome(path)) is None:
            assert mutant.moved  # it is shorter or longer than its header says
            continue
        assert not mutant.moved
        silent += 1
        check_as_described(result[0], HEADER, mutant.content)
        touched = {place // 2 for place in mutant.changed}
        stored = np.frombuffer(mutant.content, "<i2") != np.frombuffer(whole, "<i2")
        assert set(np.flatnonzero(stored).tolist()) <= touched
    assert silent > 80


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_as_a_header(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("hdr") / "a.hdr"
    path.write_bytes(b"ENVI\n" + raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            fields = read_header(path)
        except SceneError:
            return
    assert all(key == " ".join(key.lower().split()) for key in fields)


WORDS = st.text(
    st.characters(codec="utf-8", exclude_characters="={};\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=12
)
KEYS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(KEYS.map(str.lower), st.one_of(WORDS, st.lists(WORDS.filter(lambda w: "," not in w), max_size=5))),
    st.data(),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, str | list[str]], data: st.DataObject
) -> None:
    """In any case, with any blanks, comments between, and lists over several lines."""
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    blank = st.sampled_from(["", " ", "\t", "  "])
    lines = []
    for key, value in fields.items():
        name = data.draw(st.sampled_from([key, key.upper(), key.title()]))
        if isinstance(value, list):
            comma = data.draw(st.sampled_from([",", ", ", f",{end} "]))
            value = "{" + comma.join(value) + "}"
        lines.append(f"{data.draw(blank)}{name}{data.draw(blank)}={data.draw(blank)}{value}")
        lines += data.draw(st.sampled_from([[], ["; a comment = 1"], [""]]))
    path = tmp_path_factory.mktemp("hdr") / "a.hdr"
    path.write_bytes(("ENVI" + end + end.join(lines) + end).encode())
    found = read_header(path)
    assert set(found) == set(fields)
    for key, value in fields.items():
        if isinstance(value, list):
            inside = found[key].replace("\n", " ").removeprefix("{").removesuffix("}")
            assert [item.strip() for item in inside.split(",")] == ([item.strip() for item in value] or [""])
        else:
            assert found[key] == value.strip()


# XML


def test_metadata_of_enmap(tmp_path: Path) -> None:
    write(tmp_path / f"{ENMAP}-SPECTRAL_IMAGE.TIF", CUBE, crs="EPSG:32633", transform=GRID)
    path = tmp_path / f"{ENMAP}-METADATA.XML"
    whole = enmap_xml(tuple(sorted(WAVES))).encode()
    silent = 0
    for mutant in mutants(whole, 300, seed=3, first=1):
        path.write_bytes(mutant.content)
        result = outcome(tmp_path / f"{ENMAP}-SPECTRAL_IMAGE.TIF")
        if result is None:
            continue
        silent += 1
        pixels, scene = result
        text = mutant.content.decode("utf-8")

        def said(name: str, text: str = text) -> list[float]:
            return [float(number) for number in re.findall(rf"<{name}>([^<]*)<", text)]

        assert scene.wavelengths.tolist() == said("wavelengthCenterOfBand")
        assert scene.fwhm is None or scene.fwhm.tolist() == said("FWHMOfBand")
        gain, offset = said("GainOfBand") or [1.0] * 4, said("OffsetOfBand") or [0.0] * 4
        nodata = said("backgroundValue")
        valid = (nodata[0] != CUBE).all(axis=2) if nodata else np.ones(CUBE.shape[:2], dtype=bool)
        np.testing.assert_array_equal(pixels.valid, valid)
        np.testing.assert_allclose(pixels.values[valid], (CUBE * gain + offset)[valid], rtol=1e-5)
    assert 5 < silent < 250


# Files that claim to be larger than all disks


def tiff(entries: dict[int, tuple[int, list[int]]]) -> bytes:
    """A BigTIFF with these fields and nothing else: (type, numbers) by tag, at most 8 bytes each."""
    fields = b""
    for tag, (kind, values) in sorted(entries.items()):
        packed = struct.pack(f"<{len(values)}{ {3: 'H', 4: 'I', 16: 'Q', 2: 'B'}[kind] }", *values)
        fields += struct.pack("<HHQ", tag, kind, len(values)) + packed.ljust(8, b"\0")
    return struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16) + struct.pack("<Q", len(entries)) + fields + bytes(8)


BASE = {256: (4, [20_000_000]), 257: (4, [5_000_000]), 258: (3, [16, 16]), 259: (3, [1]), 262: (3, [1]), 277: (3, [2]),
        284: (3, [1]), 338: (3, [0]), 339: (3, [1, 1])}  # fmt: skip
HUGE: dict[str, Callable[[], bytes]] = {
    "one strip": lambda: tiff(BASE | {273: (16, [400]), 278: (4, [5_000_000]), 279: (16, [400_000_000_000_000])}),
    "too few tiles": lambda: tiff(BASE | {322: (4, [256]), 323: (4, [256]), 324: (16, [400]), 325: (16, [600])}),
    "a list of tiles that is not there": lambda: tiff(
        BASE | {322: (4, [256]), 323: (4, [256]), 324: (16, [400]), 325: (16, [600])}
    ).replace(struct.pack("<HHQ", 324, 16, 1), struct.pack("<HHQ", 324, 16, 3_051_757_813)),
    "one tile, never written": lambda: tiff(
        BASE | {322: (4, [20_000_000]), 323: (4, [5_000_000 + 16]), 324: (16, [0]), 325: (16, [0])}
    ),
    "a tile as large as GDAL takes, never written, zero nodata": lambda: tiff(
        BASE
        | {256: (4, [1 << 30]), 257: (4, [1 << 18]), 322: (4, [1 << 30]), 323: (4, [1 << 18])}
        | {324: (16, [0]), 325: (16, [0]), 42113: (2, [48, 0])}
    ),
}


def test_kilobytes_that_claim_400_terabytes(tmp_path: Path) -> None:
    paths = [envi(tmp_path)]
    text = HEADER.replace("samples = 11", "samples = 20000000").replace("lines = 12", "lines = 2500000")
    (tmp_path / "a.hdr").write_text(text)
    for number, made in enumerate(HUGE.values()):
        paths.append(tmp_path / f"{number}.tif")
        paths[-1].write_bytes(made())
        assert paths[-1].stat().st_size < 1024
    code = f"""
import time
from hypercaps.errors import SceneError
from hypercaps.io.open import open_scene
for path in {[str(path) for path in paths]!r}:
    started = time.monotonic()
    try:
        open_scene(path)
        print("opened")
    except SceneError as error:
        print("refused", time.monotonic() - started, peak(), str(error).replace(chr(10), " "))
"""
    lines = output_of(code).splitlines()
    assert len(lines) == len(paths)
    for line in lines:
        how, seconds, megabytes, _ = line.split(maxsplit=3)
        assert how == "refused" and float(seconds) < 5 and float(megabytes) < 300, line
