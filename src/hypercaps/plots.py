"""Pictures, as PNG bytes: whoever asks for one decides where it goes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from hypercaps.scene import Labels, Legend, Rgb
from hypercaps.training import EpochRecord

_LONGEST_SIDE = 1600  # pixels of a drawn raster; larger ones are thinned
_LONGEST_NAME = 48  # letters of a class name in a legend
_BACKGROUND = (245, 245, 245)


def _png(figure: Figure, dpi: int = 130) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", facecolor="white")
    return buffer.getvalue()


def _unit(color: Rgb) -> tuple[float, float, float]:
    r, g, b = color
    return r / 255, g / 255, b / 255


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def colored(classes: npt.NDArray[np.integer[Any]], legend: Legend) -> npt.NDArray[np.uint8]:
    """(rows, columns) labels to (rows, columns, 3) legend colours; light grey where there is no class."""
    table = np.full((max(int(classes.max(initial=0)), int(legend.labels.max())) + 1, 3), _BACKGROUND, dtype=np.uint8)
    for entry in legend:
        table[entry.label] = entry.color
    picture: npt.NDArray[np.uint8] = table[classes]
    return picture


def map_picture(
    classes: npt.NDArray[np.integer[Any]],
    legend: Legend,
    *,
    truth: Labels | None = None,
    title: str = "map",
) -> bytes:
    """The class map with its legend, beside the ground truth where there is one."""
    step = -(-max(classes.shape) // _LONGEST_SIDE)
    panels = [(title, classes)]
    if truth is not None:
        panels.insert(0, ("ground truth", truth.array))
    tall = classes.shape[0] / classes.shape[1]
    width = min(5.0, max(8.0 / tall, 1.8))  # inches of a panel; tall scenes are drawn narrower
    height = min(max(width * tall, 2.0), 8.0)
    figure = Figure(figsize=(width * len(panels), height + 0.4), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for ax, (name, raster) in zip(axes, panels, strict=True):
        ax.imshow(colored(raster[::step, ::step], legend), interpolation="nearest")
        ax.set_title(name, fontsize=11)
        ax.set_xticks([])
        ax.set_yticks([])
    keys = [Patch(color=_unit(entry.color), label=f"{entry.label}  {_short(entry.name)}") for entry in legend]
    if truth is not None or (classes == 0).any():
        keys.append(Patch(facecolor=_unit(_BACKGROUND), edgecolor="0.7", label="no class"))
    legend_box = figure.legend(
        handles=keys,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),  # beside the panels: saving makes room for it
        fontsize=8,
        frameon=False,
        ncols=-(-len(keys) // 24),
        borderaxespad=0.4,
    )
    for text in legend_box.get_texts():
        text.set_parse_math(False)  # a class name is a name, whatever signs are in it
    return _png(figure)


def curves_picture(records: Sequence[EpochRecord], best_epoch: int) -> bytes:
    """Training loss and validation accuracy by epoch, with the epoch whose weights were kept."""
    epochs = [record.epoch for record in records]
    marker = "o" if len(records) < 3 else None
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    losses = [record.loss for record in records]
    left.plot(epochs, losses, color="#1f5fa8", marker=marker)
    if min(losses) > 0:
        left.set_yscale("log")
    left.set(xlabel="epoch", ylabel="training loss")
    measured = [(record.epoch, record.val_oa) for record in records if record.val_oa is not None]
    if measured:
        right.plot(*zip(*measured, strict=True), color="#2e7d32", marker=marker)
        right.set(xlabel="epoch", ylabel="validation accuracy [%]")
    else:
        right.text(0.5, 0.5, "no validation pixels", ha="center", va="center", transform=right.transAxes)
    for ax in (left, right):
        ax.axvline(best_epoch, color="0.4", linestyle=":", label=f"kept: epoch {best_epoch}")
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    return _png(figure)
