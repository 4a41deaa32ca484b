"""Pictures, as PNG bytes: whoever asks for one decides where it goes."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from hypercaps.data.labels import Labels, Legend, Rgb
from hypercaps.data.tiling import thinning
from hypercaps.inference.metrics import ConfidenceReport
from hypercaps.training.loop import EpochRecord

LONGEST_SIDE = 1600  # pixels of a drawn raster; larger ones are thinned
_LONGEST_NAME = 48  # letters of a class name in a legend
_BACKGROUND = (245, 245, 245)
_EPOCHS_SHOWN = 50  # of convergence: the capsule networks' whole training, and where the others rise
# Okabe and Ito's colours without yellow, told apart by colour-blind eyes too.
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
Panel = tuple[str, npt.NDArray[np.integer[Any]]]  # a title and (rows, columns) labels


def _png(figure: Figure, dpi: int = 130) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; report.html has it in the browser's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
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
    panels: list[Panel] = [(title, classes)]
    if truth is not None:
        panels.insert(0, ("ground truth", truth.array))
    tall = classes.shape[0] / classes.shape[1]
    width = min(5.0, max(8.0 / tall, 1.8))  # inches of a panel; tall scenes are drawn narrower
    height = min(max(width * tall, 2.0), 8.0)
    gaps = truth is not None or bool((classes == 0).any())
    return _panels_picture(panels, legend, size=(width, height), across=len(panels), gaps=gaps)


def maps_picture(panels: Sequence[Panel], legend: Legend) -> bytes:
    """Class maps of one scene side by side, each under its title, with one legend for all."""
    tall = max(raster.shape[0] / raster.shape[1] for _, raster in panels)
    width = min(3.4, max(4.6 / tall, 1.9))
    height = min(max(width * tall, 1.6), 4.6)
    letters = int(width * 11)  # that fit above a panel
    titled = [(textwrap.fill(title, letters), raster) for title, raster in panels]
    gaps = any((raster == 0).any() for _, raster in panels)
    return _panels_picture(titled, legend, size=(width, height), across=min(len(panels), 4), gaps=gaps, fontsize=9)


def _panels_picture(
    panels: Sequence[Panel],
    legend: Legend,
    *,
    size: tuple[float, float],  # width and height of a panel in inches
    across: int,
    gaps: bool,  # whether there are pixels without a class to explain
    fontsize: int = 11,
) -> bytes:
    down = -(-len(panels) // across)
    lines = max(title.count("\n") for title, _ in panels)
    figure = Figure(figsize=(size[0] * across, (size[1] + 0.4 + 0.15 * lines) * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (name, raster) in zip(axes, panels, strict=False):
        step = thinning((raster.shape[0], raster.shape[1]), LONGEST_SIDE)
        ax.imshow(colored(raster[::step, ::step], legend), interpolation="nearest")
        ax.set_title(name, fontsize=fontsize).set_parse_math(False)
        ax.set_xticks([])
        ax.set_yticks([])
    for ax in axes[len(panels) :]:
        ax.axis("off")
    keys = [Patch(color=_unit(entry.color), label=f"{entry.label}  {_short(entry.name)}") for entry in legend]
    if gaps:
        keys.append(Patch(facecolor=_unit(_BACKGROUND), edgecolor="0.7", label="no class"))
    _legend_beside(figure, keys, ncols=-(-len(keys) // 24))
    return _png(figure)


def _legend_beside(figure: Figure, keys: Sequence[Any], ncols: int = 1) -> None:
    """A legend to the right of the panels: saving makes room for it."""
    box = figure.legend(
        handles=keys,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=8,
        frameon=False,
        ncols=ncols,
        borderaxespad=0.4,
    )
    for text in box.get_texts():
        text.set_parse_math(False)  # a class name is a name, whatever signs are in it


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
    second = next((record.epoch for record in records if record.stage == 2), None)
    for ax in (left, right):
        if second is not None:
            ax.axvspan(second - 0.5, epochs[-1] + 0.5, color="0.94", zorder=0, label="second stage")
        ax.axvline(best_epoch, color="0.4", linestyle=":", label=f"kept: epoch {best_epoch}")
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8)
    return _png(figure)


def reliability_picture(report: ConfidenceReport) -> bytes:
    """How often pixels are right at their confidence, and accuracy against what is kept."""
    tables = {"before calibration": report.before, "calibrated": report.after}
    errors = {"before calibration": report.ece_before, "calibrated": report.ece_after}
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="as it says")
    for (name, table), color in zip(tables.items(), _LINES, strict=False):
        rows = [row for row in table if row.count]
        if not rows:
            continue
        total = sum(row.count for row in rows)
        at, right_share = [row.confidence for row in rows], [row.accuracy for row in rows]
        left.plot(at, right_share, color=color, label=f"{name}: error {errors[name]:.3f}")
        left.scatter(at, right_share, s=[8 + 120 * row.count / total for row in rows], color=color)
    left.set(xlabel="confidence", ylabel="share of test pixels that is right", xlim=(0, 1.02), ylim=(0, 1.02))
    kept = [(row.kept, row.accuracy, row.threshold) for row in report.rejection if row.accuracy is not None]
    if kept:
        right.plot([share for share, _, _ in kept], [good for _, good, _ in kept], color=_LINES[2], marker="o")
        low = min(min(share, good) for share, good, _ in kept)
        low = max(0.0, 1 - 1.15 * max(1 - low, 0.02))  # room for the numbers, and no zoom into rounding
        for i, (share, good, threshold) in enumerate(kept):
            last = i + 1 == len(kept)
            # Points that lie on each other share one number: the strictest.
            if last or max(abs(share - kept[i + 1][0]), abs(good - kept[i + 1][1])) > 0.03 * (1 - low):
                right.annotate(f"{threshold:g}", (share, good), textcoords="offset points", xytext=(-4, -12), size=8)
        above = 1 + 0.03 * (1 - low)
        right.set(xlim=(low, above), ylim=(max(0.0, 1 - 1.25 * max(1 - min(good for _, good, _ in kept), 0.01)), above))
        right.set(xlabel="share kept, at each least confidence (--reject)", ylabel="share of it that is right")
    else:
        text = "not calibrated: no validation pixels" if report.calibration is None else "nothing is kept"
        right.text(0.5, 0.5, text, ha="center", va="center", transform=right.transAxes)
    left.legend(frameon=False, fontsize=8, loc="upper left")
    for ax in (left, right):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def convergence_picture(curves: Mapping[str, Sequence[tuple[str, Sequence[float]]]]) -> bytes:
    """Validation accuracy by epoch: one panel for each title, in it one line for each label."""
    labels = list(dict.fromkeys(label for series in curves.values() for label, _ in series))
    looks = {label: (_LINES[i % len(_LINES)], ("-", "--", ":")[i // len(_LINES) % 3]) for i, label in enumerate(labels)}
    longest = max((len(values) for series in curves.values() for _, values in series), default=0)
    shown = min(longest, _EPOCHS_SHOWN)
    across = min(max(len(curves), 1), 3)
    down = -(-max(len(curves), 1) // across)
    figure = Figure(figsize=(4.4 * across, 3.4 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    keys: dict[str, Line2D] = {}  # of each label, one of its lines
    for ax, (title, series) in zip(axes, curves.items(), strict=False):
        for label, values in series:
            line = ax.plot(
                range(1, min(len(values), shown) + 1),
                values[:shown],
                color=looks[label][0],
                linestyle=looks[label][1],
                marker="o" if len(values) < 3 else None,
                markersize=4,
                label=textwrap.fill(label, _LONGEST_NAME),
            )[0]
            keys.setdefault(label, line)
        ax.set_title(title, fontsize=11).set_parse_math(False)
        ax.set_xlim(0.5, shown + 0.5)
        ax.set_ylim(*_interesting([values[:shown] for _, values in series]))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.set_xlabel(f"epoch (the first {shown} of up to {longest})" if longest > shown else "epoch")
        ax.set_ylabel("validation accuracy [%]")
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[len(curves) :]:
        ax.axis("off")
    _legend_beside(figure, list(keys.values()))
    return _png(figure)


def learning_picture(curves: Mapping[str, Mapping[str, Mapping[int, tuple[float, float, float]]]]) -> bytes:
    """Accuracy by the number of labels: a panel for each title, in it a line for each label; (median, low, high)."""
    labels = list(dict.fromkeys(label for lines in curves.values() for label in lines))
    figure = Figure(figsize=(4.4 * len(curves), 3.4), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False, sharey=True).ravel()
    keys: dict[str, Any] = {}
    for ax, (title, lines) in zip(axes, curves.items(), strict=True):
        for label, stats in lines.items():
            numbers = sorted(stats)
            middle, low, high = np.array([stats[n] for n in numbers]).T
            i = labels.index(label)
            look: dict[str, Any] = {
                "color": _LINES[i % len(_LINES)],
                "linestyle": ("-", "--", ":")[i // len(_LINES) % 3],
            }
            name = textwrap.fill(label, _LONGEST_NAME)
            keys.setdefault(label, ax.plot(numbers, middle, marker="o", markersize=4, label=name, **look)[0])
            ax.fill_between(numbers, low, high, color=look["color"], alpha=0.12, linewidth=0)
        every = sorted({n for stats in lines.values() for n in stats})
        ax.set_xscale("log")
        ax.set_xticks(every, [str(n) for n in every])
        ax.minorticks_off()
        ax.set_title(title, fontsize=11).set_parse_math(False)
        ax.set(xlabel="labels of each class", ylabel="overall accuracy [%]" if ax is axes[0] else None)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    _legend_beside(figure, list(keys.values()))
    return _png(figure)


def listening_picture(
    relevance: npt.NDArray[np.float64],  # (pixels, bands)
    spectrum: npt.NDArray[np.float64],  # (bands,)
    mean: npt.NDArray[np.float64],  # (bands,)
    wavelengths: npt.NDArray[np.float64] | None,  # (bands,) nm
    *,
    title: str,
) -> bytes:
    """What a class capsule listened to along the spectrum, below the spectrum itself."""
    bands = spectrum.size
    x = np.arange(1, bands + 1) if wavelengths is None else wavelengths
    pieces = unbroken(x)
    widths = np.gradient(x) if bands > 1 else np.ones(1)
    widths = np.minimum(widths, np.median(widths))
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for piece in pieces:
        first = piece is pieces[0]
        upper.plot(x[piece], spectrum[piece], color=_LINES[0], label="here" if first else None)
        upper.plot(x[piece], mean[piece], color="0.55", linestyle="--", label="mean of the scene" if first else None)
    upper.set_ylabel("value")
    upper.legend(frameon=False, fontsize=8)
    middle = relevance.mean(axis=0)
    lower.bar(x, middle, width=widths, color=np.where(middle >= 0, _LINES[2], _LINES[1]))
    if len(relevance) > 1:
        low, high = np.percentile(relevance, [25, 75], axis=0)
        for piece in pieces:
            label = "half of the pixels" if piece is pieces[0] else None
            lower.fill_between(x[piece], low[piece], high[piece], color="0.5", alpha=0.3, linewidth=0, label=label)
        lower.legend(frameon=False, fontsize=8)
    lower.axhline(0, color="0.4", linewidth=0.8)
    lower.set(xlabel="band" if wavelengths is None else "wavelength [nm]", ylabel="against   |   for the class")
    for ax in (upper, lower):
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    upper.set_title(textwrap.fill(title, 80), fontsize=10).set_parse_math(False)
    return _png(figure)


def unbroken(x: npt.NDArray[Any]) -> list[npt.NDArray[np.intp]]:
    """Runs of bands (bands,) nm without a gap: where bands are missing, a line would cross it."""
    steps = np.diff(x)
    gaps = np.flatnonzero(steps > 3 * np.median(steps)) + 1 if x.size > 2 else np.empty(0, dtype=np.intp)
    return np.split(np.arange(x.size), gaps)


def raster_picture(rgb: npt.NDArray[np.uint8]) -> bytes:
    """(h, w, 3) colours as they are, a pixel each."""
    buffer = io.BytesIO()
    imsave(buffer, rgb, format="png")
    return buffer.getvalue()


def confidence_colors(confidence: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    """(h, w) from 0 to 1 to (h, w, 3): dark is unsure, bright is sure; grey where there is nothing."""
    colors = np.round(255 * colormaps["viridis"](np.nan_to_num(confidence))[..., :3]).astype(np.uint8)
    colors[np.isnan(confidence)] = _BACKGROUND
    return np.asarray(colors)


def _interesting(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Limits that leave out the steep first epochs, but no method: its best is always inside."""
    known = [values[np.isfinite(values)] for values in (np.asarray(s, dtype=float) for s in series)]
    known = [values for values in known if values.size]
    if not known:
        return 0.0, 100.0
    every = np.concatenate(known)
    low = min(float(np.percentile(every, 8)), *(float(values.max()) for values in known))
    high = float(every.max())
    margin = max(0.08 * (high - low), 0.25)
    return max(0.0, low - margin), min(100.0, high) + margin
