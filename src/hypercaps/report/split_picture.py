"""The pixels of a run's split on the scene's grid: its sets, or its folds in colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps

from hypercaps.data.colors import NO_DATA_COLOR, Rgb
from hypercaps.data.tiling import thinning
from hypercaps.report.figure import COLORS, hex_color
from hypercaps.report.map_pictures import raster_picture
from hypercaps.report.quicklook import LONGEST_SIDE
from hypercaps.report.signatures import SceneRecord

_SETS: dict[str, tuple[str, Rgb]] = {  # in drawing order
    "test": ("test", (204, 204, 204)),
    "val": ("validation", (230, 159, 0)),
    "train": ("training", (0, 114, 178)),
}
_NEVER: Rgb = (96, 96, 96)  # pixels that are never held out

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Key:
    """An entry of the picture's legend."""

    color: str
    text: str


@dataclass(frozen=True, eq=False)
class SplitPicture:
    """A picture of the split with its legend."""

    title: str
    png: bytes
    keys: tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class _Part:
    """Pixels of one colour."""

    name: str
    color: Rgb
    pixels: Integers  # flat indices


def split_picture(file: Path, scene: SceneRecord, kind: str | None) -> SplitPicture:
    """Draw split.npz; in a large scene, training hides validation, and that hides test."""
    with np.load(file, allow_pickle=False) as split:
        if kind == "folds" and "fold" in split.files:
            parts, title = _folds(split["pixels"], split["fold"]), "Folds"
        else:
            used = ("train",) if kind == "none" else tuple(_SETS)
            parts = [_Part(*_SETS[name], split[name]) for name in _SETS if name in used]
            title = "Training pixels" if kind == "none" else "Training, validation and test pixels"
    keys = [Key(hex_color(part.color), f"{part.name} ({part.pixels.size:,})") for part in parts]
    return SplitPicture(title, _draw(parts, scene), tuple(keys if title == "Folds" else reversed(keys)))


def _folds(pixels: Integers, fold: Integers) -> list[_Part]:
    parts = [
        _Part(f"fold {number + 1}", _fold_color(number), pixels[fold == number])
        for number in range(int(fold.max(initial=-1)) + 1)
    ]
    never = pixels[fold < 0]
    return [*parts, _Part("never held out", _NEVER, never)] if never.size else parts


def _fold_color(number: int) -> Rgb:
    """Colours of the figures without black; beyond them, those of a colour map with 20."""
    shared = COLORS[:-1]
    if number < len(shared):
        r, g, b = bytes.fromhex(shared[number].removeprefix("#"))
    else:
        r, g, b = (round(255 * part) for part in colormaps["tab20"](number % 20)[:3])
    return r, g, b


def _draw(parts: Sequence[_Part], scene: SceneRecord) -> bytes:
    step = thinning((scene.rows, scene.cols), LONGEST_SIDE)
    picture = np.full((-(-scene.rows // step), -(-scene.cols // step), 3), NO_DATA_COLOR, dtype=np.uint8)
    for part in parts:
        r, c = np.divmod(part.pixels, scene.cols)
        picture[r // step, c // step] = part.color
    return raster_picture(picture)
