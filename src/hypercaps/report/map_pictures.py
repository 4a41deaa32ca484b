"""Pictures of rasters as PNG bytes: class maps with their legend, and rasters pixel by pixel."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patches import Patch

from hypercaps.data.colors import NO_DATA_COLOR, Rgb
from hypercaps.data.labels import Labels, Legend, LegendEntry
from hypercaps.data.tiling import thinning
from hypercaps.report.figure import figure_png, hex_color, legend_beside, short_name
from hypercaps.report.label_picture import label_picture

LONGEST_SIDE = 1600  # pixels of a drawn raster; larger ones are thinned
Panel = tuple[str, npt.NDArray[np.integer[Any]]]  # a title and (rows, columns) labels


class _Layout(NamedTuple):
    """How the panels of a figure are arranged."""

    width: float  # of a panel, in inches
    height: float
    columns: int
    fontsize: int = 11  # of the titles


def colored(classes: npt.NDArray[np.integer[Any]], legend: Legend) -> npt.NDArray[np.uint8]:
    """(rows, columns) labels to (rows, columns, 3) legend colours; light grey for pixels without a class."""
    return painted(classes, {entry.label: entry.color for entry in legend})


def painted(classes: npt.NDArray[np.integer[Any]], colors: Mapping[int, Rgb]) -> npt.NDArray[np.uint8]:
    """(rows, columns) labels to (rows, columns, 3) colours by label; light grey for the others."""
    table = np.full((max(0, int(classes.max(initial=0)), *colors) + 1, 3), NO_DATA_COLOR, dtype=np.uint8)
    for label, color in colors.items():
        table[label] = color
    return np.asarray(table[classes])


def map_picture(
    classes: npt.NDArray[np.integer[Any]],
    legend: Legend,
    *,
    truth: Labels | None = None,
    title: str = "map",
    marked: LegendEntry | None = None,
) -> bytes:
    """The class map with its legend, beside the ground truth if ``truth`` is given.

    marked : label, name and colour of pixels that only the picture marks: the map has no such number
    """
    panels: list[Panel] = [(title, classes)]
    if truth is not None:
        panels.insert(0, ("ground truth", label_picture(truth.array, LONGEST_SIDE)))
    aspect = classes.shape[0] / classes.shape[1]
    width = min(5.0, max(8.0 / aspect, 1.8))  # tall scenes are drawn narrower
    layout = _Layout(width, min(max(width * aspect, 2.0), 8.0), columns=len(panels))
    unclassified = truth is not None or bool((classes == 0).any())
    colors = Legend(tuple(sorted((*legend, *([] if marked is None else [marked])))))
    return _panels_picture(panels, colors, layout, legend_keys(legend, marked, unclassified=unclassified))


def maps_picture(panels: Sequence[Panel], legend: Legend) -> bytes:
    """Class maps of one scene side by side, each under its title, with one legend for all."""
    aspect = max(raster.shape[0] / raster.shape[1] for _, raster in panels)
    width = min(3.4, max(4.6 / aspect, 1.9))
    layout = _Layout(width, min(max(width * aspect, 1.6), 4.6), columns=min(len(panels), 4), fontsize=9)
    letters = int(width * 11)  # that fit above a panel
    wrapped = [(textwrap.fill(title, letters), raster) for title, raster in panels]
    unclassified = any((raster == 0).any() for _, raster in panels)
    return _panels_picture(wrapped, legend, layout, legend_keys(legend, unclassified=unclassified))


def legend_keys(legend: Legend, marked: LegendEntry | None = None, *, unclassified: bool) -> list[Patch]:
    """Number, name and colour of the classes; without a number what is marked, and pixels without a class."""
    keys = [Patch(color=hex_color(entry.color), label=f"{entry.label}  {short_name(entry.name)}") for entry in legend]
    if marked is not None:
        keys.append(Patch(color=hex_color(marked.color), label=short_name(marked.name)))
    if unclassified:
        keys.append(Patch(facecolor=hex_color(NO_DATA_COLOR), edgecolor="0.7", label="no class"))
    return keys


def _panels_picture(panels: Sequence[Panel], legend: Legend, layout: _Layout, keys: Sequence[Patch]) -> bytes:
    rows = -(-len(panels) // layout.columns)
    title_height = 0.4 + 0.15 * max(title.count("\n") for title, _ in panels)
    size = (layout.width * layout.columns, (layout.height + title_height) * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, layout.columns, squeeze=False).ravel()
    for ax, (title, raster) in zip(axes, panels, strict=False):
        step = thinning((raster.shape[0], raster.shape[1]), LONGEST_SIDE)
        ax.imshow(colored(raster[::step, ::step], legend), interpolation="nearest")
        ax.set_title(title, fontsize=layout.fontsize).set_parse_math(False)
        ax.set_xticks([])
        ax.set_yticks([])
    for ax in axes[len(panels) :]:
        ax.axis("off")
    legend_beside(figure, keys, ncols=-(-len(keys) // 24))
    return figure_png(figure)


def raster_picture(rgb: npt.NDArray[np.uint8]) -> bytes:
    """(h, w, 3) colours, one pixel each."""
    buffer = io.BytesIO()
    imsave(buffer, rgb, format="png")
    return buffer.getvalue()


def confidence_colors(confidence: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    """(h, w) from 0 to 1 to (h, w, 3): dark is unsure, bright is sure, grey is no data."""
    colors = np.round(255 * colormaps["viridis"](np.nan_to_num(confidence))[..., :3]).astype(np.uint8)
    colors[np.isnan(confidence)] = NO_DATA_COLOR
    return np.asarray(colors)
