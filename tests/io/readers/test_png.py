"""PNG files as labels: class numbers in grey or as positions in a palette."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.marks import PNG_MARK
from hypercaps.io.open import open_labels, open_mask
from hypercaps.io.readers.png import _count_inflated
from hypercaps.pipeline.describe import describe
from support.vectors import names, scene_on

CLASSES = np.zeros((40, 60), np.uint8)
CLASSES[2:9, 3:20], CLASSES[20:30, 5:50] = 1, 2
PALETTE = bytes([0, 0, 0, 10, 200, 30, 0, 0, 255, 0, 0, 0])


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(array: np.ndarray, color: int, size: tuple[int, int] | None = None) -> bytes:
    """A PNG of an array (rows, columns), or (rows, columns, channels)."""
    rows, cols = size or array.shape[:2]
    big = array.astype(array.dtype.newbyteorder(">"))
    lines = b"".join(b"\x00" + line.tobytes() for line in big)
    header = struct.pack(">IIBBBBB", cols, rows, 8 * array.itemsize, color, 0, 0, 0)
    palette = chunk(b"PLTE", PALETTE) if color == 3 else b""
    return PNG_MARK + chunk(b"IHDR", header) + palette + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_palette_gives_classes_and_colours(is_placed: bool, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(CLASSES, 3))
    scene = scene_on() if is_placed else scene_on(None, crs=None)
    labels = open_labels(tmp_path / "a.png", scene=scene)
    np.testing.assert_array_equal(labels.array, CLASSES)
    assert [entry.color for entry in labels.legend] == [(10, 200, 30), (0, 0, 255)]
    np.testing.assert_array_equal(open_mask(tmp_path / "a.png", scene), CLASSES > 0)
    assert describe(str(tmp_path / "a.png")).kind == "labels"


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_grey_values_are_class_numbers(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(CLASSES.astype(dtype), 0))
    labels = open_labels(tmp_path / "a.png", scene=scene_on())
    np.testing.assert_array_equal(labels.array, CLASSES)
    assert names(labels) == [(1, "class 1"), (2, "class 2")]
    (tmp_path / "a.png").write_bytes(png(np.where(CLASSES == 0, 255, CLASSES).astype(dtype), 0))
    with pytest.warns(DataWarning, match="pixels of 255 are taken as unlabelled"):
        np.testing.assert_array_equal(open_labels(tmp_path / "a.png", scene=scene_on()).array, CLASSES)


def test_pictures_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(np.dstack([CLASSES] * 3), 2))
    with pytest.raises(LabelsError, match=r"full colour.*palette"):
        open_labels(path, scene=scene_on())
    path.write_bytes(png(CLASSES, 0, size=(1 << 20, 1 << 20)))
    with pytest.raises(LabelsError, match="PNG files are read up to"):
        open_labels(path, scene=scene_on())
    path.write_bytes(png(CLASSES, 0, size=(80, 60)))  # more rows than there are
    with pytest.raises(LabelsError):
        open_labels(path, scene=scene_on())
    path.write_bytes(png(CLASSES[:30], 0))
    with pytest.raises(LabelsError, match="30 x 60 pixels"):
        open_labels(path, scene=scene_on()).check_fits(scene_on())


def test_a_picture_that_inflates_to_more_than_its_rows(tmp_path: Path) -> None:
    content = zlib.compress(bytes(50 << 20))
    assert _count_inflated(zlib.decompressobj(), content, 3 << 20) <= 5 << 20
    whole = png(CLASSES, 0)
    (tmp_path / "a.png").write_bytes(whole[: whole.index(b"IDAT") - 4] + chunk(b"IDAT", content) + chunk(b"IEND", b""))
    with pytest.raises(LabelsError, match="truncated, damaged"):
        open_labels(tmp_path / "a.png", scene=scene_on())
    # Nothing is inflated for a size that is refused.
    huge = png(CLASSES, 0, size=(1 << 20, 1 << 20))
    (tmp_path / "a.png").write_bytes(huge[: huge.index(b"IDAT") - 4] + chunk(b"IDAT", b"no") + chunk(b"IEND", b""))
    with pytest.raises(LabelsError, match="PNG files are read up to"):
        open_labels(tmp_path / "a.png", scene=scene_on())


def test_narrow_pictures(tmp_path: Path) -> None:
    from PIL import Image

    for array in (CLASSES, CLASSES[:, 5:6], CLASSES[3:4]):
        for bits in (1, 8):
            picture = Image.fromarray((array > 0).astype(np.uint8) * (255 if bits == 1 else 1))
            (picture.convert("1") if bits == 1 else picture).save(tmp_path / "a.png")
            np.testing.assert_array_equal(open_labels(tmp_path / "a.png").array, array > 0)


def test_damaged_pictures(tmp_path: Path) -> None:
    content, rng = png(CLASSES, 3), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content[: rng.integers(9, len(content))]) if rng.random() < 0.3 else bytearray(content)
        damaged[rng.integers(8, len(damaged))] ^= 1 << int(rng.integers(8))
        (tmp_path / "a.png").write_bytes(damaged)
        with pytest.raises(LabelsError):
            open_labels(tmp_path / "a.png", scene=scene_on())


def test_formats_that_are_not_read_name_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(100))
    with pytest.raises(LabelsError, match=r"GeoPackage.*Shapefile \(also zipped\).*KML, CSV, PNG, GeoTIFF"):
        open_labels(tmp_path / "a.jpg", scene=scene_on())
