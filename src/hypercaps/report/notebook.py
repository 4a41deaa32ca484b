"""Scenes, labels, class maps and scores in a notebook: as HTML, and drawn into matplotlib axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hypercaps.data.colors import NO_DATA_COLOR
from hypercaps.data.labels import Labels, Legend
from hypercaps.data.pixels import SelectsBands
from hypercaps.data.scene import Scene
from hypercaps.data.tiling import thinning
from hypercaps.inference.class_map import ClassMap
from hypercaps.inference.metrics import Scores
from hypercaps.io.labels.regrid import crs_name
from hypercaps.report.figure import hex_color, short_name
from hypercaps.report.label_picture import label_picture
from hypercaps.report.map_pictures import LONGEST_SIDE, colored, raster_picture
from hypercaps.report.page import render
from hypercaps.report.quicklook import quicklook
from hypercaps.report.wording import score_text

_THUMBNAIL = 320  # pixels of the longer side of a picture in a notebook
_MOST_BYTES = 1 << 28  # read at most for a picture that is displayed automatically
_MOST_NUMBERS = 20  # classes of a confusion matrix whose cells have numbers

Picture = npt.NDArray[np.uint8]  # (h, w, 3)


@dataclass(frozen=True)
class _Card:
    """What a notebook shows of an object."""

    title: str
    facts: Mapping[str, str]
    picture: bytes | None = None  # PNG
    note: str = ""  # below the facts
    columns: Sequence[str] = ()  # of the table
    rows: Sequence[tuple[str | None, Sequence[str]]] = ()  # colour of a class, or None, and its cells

    def html(self) -> str:
        return render("notebook", card=self)


@singledispatch
def html_of(shown: Any) -> str:
    """What Jupyter shows of a scene, labels, a class map or scores."""
    raise TypeError(f"{type(shown).__name__} has no picture")


@singledispatch
def draw(shown: Any, ax: Axes | None) -> Axes:
    """Draw a scene, labels, a class map or scores into axes, or into new ones."""
    raise TypeError(f"{type(shown).__name__} has no picture")


# ---- scenes ----------------------------------------------------------------------------------------------------------


@html_of.register
def _(scene: Scene) -> str:
    grid = scene.map_grid
    facts = {
        "size": f"{scene.rows} × {scene.cols} pixels, {scene.bands} bands",
        "wavelengths": _wavelengths(scene.wavelengths),
        "type": str(scene.dtype),
        "coordinates": "none" if grid.crs is None else crs_name(grid.crs),
    }
    read = (
        scene.rows * scene.cols * scene.dtype.itemsize * (3 if isinstance(scene.reader, SelectsBands) else scene.bands)
    )
    if read > _MOST_BYTES:
        note = "No picture, because the scene is large: plot() reads it and draws one."
        return _Card(f"Scene {scene.name}", facts, note=note).html()
    look = quicklook(scene, _THUMBNAIL, only_shown=True)
    return _Card(f"Scene {scene.name}", facts, raster_picture(look.picture), f"Picture: {look.caption}.").html()


def _wavelengths(waves: npt.NDArray[np.float64] | None) -> str:
    return "not known" if waves is None else f"{waves.min():.0f} to {waves.max():.0f} nm"


@draw.register
def _(scene: Scene, ax: Axes | None) -> Axes:
    look = quicklook(scene, only_shown=True)
    ax = _image_axes(ax, look.picture, scene.shape[:2])
    ax.set_title(f"{scene.name}: {look.caption}", fontsize=10).set_parse_math(False)
    return ax


# ---- labels and class maps -------------------------------------------------------------------------------------------


@html_of.register
def _(labels: Labels) -> str:
    counts = labels.counts()
    facts = {
        "size": f"{labels.shape[0]} × {labels.shape[1]} pixels",
        "labelled": f"{sum(counts.values()):,} pixels of {len(labels.legend)} classes",
    }
    picture = label_picture(labels.array, _THUMBNAIL)
    return _class_card(f"Labels {labels.name}", facts, picture, labels.legend, counts)


@html_of.register
def _(class_map: ClassMap) -> str:
    sure = class_map.confidence[np.isfinite(class_map.confidence)]
    facts = {
        "size": f"{class_map.shape[0]} × {class_map.shape[1]} pixels",
        "without a class": f"{int((class_map.classes == 0).sum()):,} pixels",
        "mean confidence": f"{sure.mean():.2f}" if sure.size else "none",
    }
    picture = _thinned(class_map, _THUMBNAIL)
    return _class_card(f"Map of {class_map.name}", facts, picture, class_map.legend, class_map.counts())


def _class_card(
    title: str,
    facts: Mapping[str, str],
    picture: npt.NDArray[np.int16],
    legend: Legend,
    counts: Mapping[int, int],
) -> str:
    rows = [(hex_color(entry.color), (str(entry.label), entry.name, f"{counts[entry.label]:,}")) for entry in legend]
    png = raster_picture(colored(picture, legend))
    return _Card(title, facts, png, columns=("class", "name", "pixels"), rows=rows).html()


def _thinned(class_map: ClassMap, longest: int) -> npt.NDArray[np.int16]:
    step = thinning((class_map.shape[0], class_map.shape[1]), longest)
    return class_map.classes[::step, ::step]


@draw.register
def _(labels: Labels, ax: Axes | None) -> Axes:
    picture = label_picture(labels.array, LONGEST_SIDE)
    ax = _image_axes(ax, colored(picture, labels.legend), labels.shape)
    return _add_classes(ax, labels.legend, labels.name, "not labelled" if (picture == 0).any() else None)


@draw.register
def _(class_map: ClassMap, ax: Axes | None) -> Axes:
    ax = _image_axes(ax, colored(_thinned(class_map, LONGEST_SIDE), class_map.legend), class_map.shape)
    return _add_classes(ax, class_map.legend, class_map.name, "no class" if (class_map.classes == 0).any() else None)


def _add_classes(ax: Axes, legend: Legend, title: str, of_zero: str | None) -> Axes:
    """Add title and legend; ``of_zero`` is what 0 means, if it is in the picture."""
    ax.set_title(title, fontsize=10).set_parse_math(False)
    keys = [Patch(color=hex_color(entry.color), label=f"{entry.label}  {short_name(entry.name)}") for entry in legend]
    if of_zero is not None:
        keys.append(Patch(facecolor=hex_color(NO_DATA_COLOR), edgecolor="0.7", label=of_zero))
    box = ax.legend(handles=keys, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    for text in box.get_texts():
        text.set_parse_math(False)  # a "$" in a class name is no formula
    return ax


def _image_axes(ax: Axes | None, picture: Picture, shape: tuple[int, ...]) -> Axes:
    """A picture whose axes count the rows and columns of the scene, also if it is thinned."""
    ax = _new_axes() if ax is None else ax
    ax.imshow(picture, interpolation="nearest", extent=(-0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5))
    ax.set(xlabel="column", ylabel="row")
    return ax


def _new_axes(size: tuple[float, float] | None = None) -> Axes:
    """Axes of a new figure, whose size is in inches."""
    from matplotlib import pyplot  # knows the figures that a notebook shows

    _, ax = pyplot.subplots(figsize=size, layout="constrained")
    return ax


# ---- scores ----------------------------------------------------------------------------------------------------------


@html_of.register
def _(scores: Scores) -> str:
    facts = {
        "overall accuracy": score_text(scores.oa, scores.oa_interval),
        "average accuracy": score_text(scores.aa, scores.aa_interval),
        "kappa": score_text(scores.kappa, scores.kappa_interval),
        "test pixels": f"{scores.n_test:,}",
        "classes tested": f"{sum(row.accuracy is not None for row in scores.per_class)} of {len(scores.per_class)}",
    }
    rows = [
        (None, (str(row.label), row.name, score_text(row.accuracy, row.interval), f"{row.test:,}"))
        for row in scores.per_class
    ]
    note = "" if scores.oa_interval is None else "In brackets: 95 % intervals."
    columns = ("class", "name", "producer's accuracy", "test pixels")
    return _Card("Scores", facts, note=note, columns=columns, rows=rows).html()


@draw.register
def _(scores: Scores, ax: Axes | None) -> Axes:
    """The confusion matrix in percent of each true class."""
    side = max(4.8, 2.5 + 0.32 * len(scores.per_class))
    ax = _new_axes((side, side)) if ax is None else ax
    of_class = scores.confusion.sum(axis=1, keepdims=True)  # (n, 1) test pixels
    share = 100 * scores.confusion / np.maximum(of_class, 1)  # (n, n)
    ax.imshow(share, cmap="Blues", vmin=0, vmax=100)
    names = [short_name(row.name) for row in scores.per_class]
    ticks = range(len(names))
    labels = [*ax.set_xticks(ticks, names, rotation=90, fontsize=8), *ax.set_yticks(ticks, names, fontsize=8)]
    for tick in labels:
        tick.label1.set_parse_math(False)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.set_title(f"percent of each true class; overall accuracy {scores.oa:.1f} %", fontsize=10)
    if len(names) <= _MOST_NUMBERS:
        for (true, predicted), value in np.ndenumerate(share):
            if scores.confusion[true, predicted]:
                ink = "white" if value > 60 else "black"
                ax.text(predicted, true, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)
    return ax
