"""Charts as PNG bytes: learning curves, reliability, band attribution."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator

from hypercaps.inference.explain import Explanation
from hypercaps.inference.metrics import ConfidenceReport, RejectionRow, ReliabilityBin
from hypercaps.models.history import EpochRecord
from hypercaps.report.figure import COLORS, LONGEST_NAME, figure_png, legend_beside, line_style, text_instead, tidy

_EPOCHS_SHOWN = 60  # of convergence: all of CapsNet, 1D-ConvCapsNet and 3D-CNN, and the rise of the others
Range = tuple[float, ...]  # begins with median, lowest, highest


def curves_picture(records: Sequence[EpochRecord], best_epoch: int) -> bytes:
    """Training loss and validation accuracy by epoch, with the epoch whose weights were kept."""
    epochs = [record.epoch for record in records]
    losses = [record.loss for record in records]
    validated = [(record.epoch, record.val_oa) for record in records if record.val_oa is not None]
    marker = "o" if len(records) < 3 else None
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(epochs, losses, color=COLORS[0], marker=marker)
    if min(losses) > 0:
        left.set_yscale("log")
        left.yaxis.set_major_formatter(_PlainNumbers())
        left.yaxis.set_minor_formatter(_PlainNumbers(labelOnlyBase=False))
    left.set(xlabel="epoch", ylabel="training loss")
    if validated:
        right.plot(*zip(*validated, strict=True), color=COLORS[2], marker=marker)
        right.set(xlabel="epoch", ylabel="validation accuracy [%]")
    else:
        text_instead(right, "no validation pixels")
    second_stage = next((record.epoch for record in records if record.stage == 2), None)
    for ax in (left, right):
        if second_stage is not None:
            ax.axvspan(second_stage - 0.5, epochs[-1] + 0.5, color="0.94", zorder=0, label="second stage")
        ax.axvline(best_epoch, color="0.4", linestyle=":", label=f"kept epoch: {best_epoch}")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        ax.legend(frameon=False, fontsize=8)
    tidy(left, right)
    return figure_png(figure)


class _PlainNumbers(LogFormatter):
    """0.01, where matplotlib would write a power of ten: as a formula, which takes it longer than all of the curves."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def reliability_picture(report: ConfidenceReport) -> bytes:
    """Reliability diagram on the test pixels, and accuracy against the share of pixels kept by --reject."""
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.6", linestyle=":", label="perfect calibration")
    is_fitted = report.calibration not in (None, "none")
    tables = [("before calibration" if is_fitted else "not calibrated", report.before, report.ece_before)]
    if report.ece_after is not None and is_fitted:
        tables.append(("calibrated", report.after, report.ece_after))
    for (name, table, error), color in zip(tables, COLORS, strict=False):
        bins = [row for row in table or () if row.count]
        if bins:
            _draw_reliability(left, bins, color, f"{name} (ECE {error:.3f})")
    left.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
    left.legend(frameon=False, fontsize=8, loc="upper left")
    kept = [row for row in report.rejection if row.accuracy is not None]
    if kept:
        _draw_rejection(right, kept)
    else:
        text = "not calibrated: no validation pixels" if report.calibration is None else "no pixel reaches a threshold"
        text_instead(right, text)
    tidy(left, right)
    return figure_png(figure)


def _draw_reliability(ax: Any, bins: Sequence[ReliabilityBin], color: str, label: str) -> None:
    """Accuracy by confidence; the size of a point is the number of pixels in its bin."""
    confidence, accuracy = [row.confidence for row in bins], [row.accuracy for row in bins]
    total = sum(row.count for row in bins)
    ax.plot(confidence, accuracy, color=color, label=label)
    ax.scatter(confidence, accuracy, s=[8 + 120 * row.count / total for row in bins], color=color)


def _draw_rejection(ax: Any, rows: Sequence[RejectionRow]) -> None:
    """Accuracy of the pixels kept by their share, with the threshold beside each point."""
    points = [(row.kept, row.accuracy or 0.0) for row in rows]
    ax.plot(*zip(*points, strict=True), color=COLORS[2], marker="o")
    low = max(0.0, 1 - 1.15 * max(1 - min(map(min, points)), 0.02))  # margin for the numbers; no zoom into rounding
    for i, (kept, accuracy) in enumerate(points):
        following = points[i + 1 : i + 2]
        # Of points that lie on top of each other only the strictest threshold is shown.
        if all(max(abs(kept - k), abs(accuracy - a)) > 0.03 * (1 - low) for k, a in following):
            text = f"{rows[i].threshold:g}"
            ax.annotate(text, (kept, accuracy), textcoords="offset points", xytext=(-4, -12), size=8)
    high = 1 + 0.03 * (1 - low)
    lowest = min(accuracy for _, accuracy in points)
    ax.set(xlim=(low, high), ylim=(max(0.0, 1 - 1.25 * max(1 - lowest, 0.01)), high))
    ax.set(xlabel="share of pixels kept at each threshold (--reject)", ylabel="accuracy of the pixels kept")


def convergence_picture(curves: Mapping[str, Sequence[tuple[str, Sequence[float]]]]) -> bytes:
    """Validation accuracy by epoch: one panel for each title, in it one line for each label."""
    labels = list(dict.fromkeys(label for series in curves.values() for label, _ in series))
    longest = max((len(values) for series in curves.values() for _, values in series), default=0)
    shown = min(longest, _EPOCHS_SHOWN)
    columns = min(max(len(curves), 1), 3)
    rows = -(-max(len(curves), 1) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    keys: dict[str, Line2D] = {}  # one line of each label, for the legend
    for ax, (title, series) in zip(axes, curves.items(), strict=False):
        for label, values in series:
            marker = "o" if len(values) < 3 else None
            epochs = range(1, min(len(values), shown) + 1)
            keys.setdefault(label, _draw_line(ax, epochs, values[:shown], label, labels.index(label), marker))
        ax.set_title(title, fontsize=11).set_parse_math(False)
        ax.set(xlim=(0.5, shown + 0.5), ylim=_accuracy_limits([values[:shown] for _, values in series]))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        xlabel = f"epoch (the first {shown} of up to {longest})" if longest > shown else "epoch"
        ax.set(xlabel=xlabel, ylabel="validation accuracy [%]")
        tidy(ax)
    for ax in axes[len(curves) :]:
        ax.axis("off")
    legend_beside(figure, list(keys.values()))
    return figure_png(figure)


def learning_picture(curves: Mapping[str, Mapping[str, Mapping[int, Range]]]) -> bytes:
    """Accuracy by the number of labels: a panel for each title, in it a line for each label."""
    labels = list(dict.fromkeys(label for lines in curves.values() for label in lines))
    figure = Figure(figsize=(4.4 * len(curves), 3.4), layout="constrained")
    axes = figure.subplots(1, len(curves), squeeze=False, sharey=True).ravel()
    keys: dict[str, Line2D] = {}
    for ax, (title, lines) in zip(axes, curves.items(), strict=True):
        for label, stats in lines.items():
            numbers = sorted(stats)
            median, low, high = np.array([stats[n][:3] for n in numbers]).T
            style = labels.index(label)
            keys.setdefault(label, _draw_line(ax, numbers, median, label, style, "o"))
            ax.fill_between(numbers, low, high, color=line_style(style)[0], alpha=0.12, linewidth=0)
        ticks = sorted({n for stats in lines.values() for n in stats})
        ax.set_xscale("log")
        ax.set_xticks(ticks, [str(n) for n in ticks])
        ax.minorticks_off()
        ax.set_title(title, fontsize=11).set_parse_math(False)
        ax.set(xlabel="labels per class", ylabel="overall accuracy [%]" if ax is axes[0] else None)
        tidy(ax)
    legend_beside(figure, list(keys.values()))
    return figure_png(figure)


def _draw_line(ax: Any, x: Sequence[int], y: Any, label: str, number: int, marker: str | None) -> Line2D:
    color, style = line_style(number)
    name = textwrap.fill(label, LONGEST_NAME)
    line: Line2D = ax.plot(x, y, color=color, linestyle=style, marker=marker, markersize=4, label=name)[0]
    return line


def attribution_picture(explanation: Explanation) -> bytes:
    """The spectrum of an explained pixel or class, and below it the attribution of each band."""
    waves, bands = explanation.wavelengths, explanation.spectrum.size
    x = np.arange(1, bands + 1) if waves is None else waves
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    own = "this pixel" if len(explanation.pixels) == 1 else "mean of the pixels"
    for i, piece in enumerate(unbroken(x)):
        names = (own, "mean of the training scene") if i == 0 else (None, None)
        upper.plot(x[piece], explanation.spectrum[piece], color=COLORS[0], label=names[0])
        upper.plot(x[piece], explanation.scene_mean[piece], color="0.55", linestyle="--", label=names[1])
    upper.set_ylabel("value")
    upper.legend(frameon=False, fontsize=8)
    title = f"Band attribution for {explanation.entry.name}: {explanation.where}"
    upper.set_title(textwrap.fill(title, 80), fontsize=10).set_parse_math(False)
    _draw_attribution(lower, x, explanation.per_pixel)
    lower.set(xlabel="band" if waves is None else "wavelength [nm]", ylabel="against   |   for the class")
    tidy(upper, lower)
    return figure_png(figure)


def _draw_attribution(ax: Any, x: npt.NDArray[Any], per_pixel: npt.NDArray[np.float64]) -> None:
    """Bars of the mean over the pixels (pixels, bands), and the interquartile range of several pixels."""
    widths = np.gradient(x) if x.size > 1 else np.ones(1)
    mean = per_pixel.mean(axis=0)
    ax.bar(x, mean, width=np.minimum(widths, np.median(widths)), color=np.where(mean >= 0, COLORS[2], COLORS[1]))
    if len(per_pixel) > 1:
        low, high = np.percentile(per_pixel, [25, 75], axis=0)
        for i, piece in enumerate(unbroken(x)):
            label = "middle half of the pixels" if i == 0 else None
            ax.fill_between(x[piece], low[piece], high[piece], color="0.5", alpha=0.3, linewidth=0, label=label)
        ax.legend(frameon=False, fontsize=8)
    ax.axhline(0, color="0.4", linewidth=0.8)


def unbroken(x: npt.NDArray[Any]) -> list[npt.NDArray[np.intp]]:
    """Runs of bands between gaps in the wavelengths (bands,): no line is drawn across missing bands."""
    steps = np.diff(x)
    gaps = np.flatnonzero(steps > 3 * np.median(steps)) + 1 if x.size > 2 else np.empty(0, dtype=np.intp)
    return np.split(np.arange(x.size), gaps)


def _accuracy_limits(series: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Axis limits that leave out the steep first epochs, but contain the best value of every line."""
    finite = [values[np.isfinite(values)] for values in (np.asarray(s, dtype=float) for s in series)]
    finite = [values for values in finite if values.size]
    if not finite:
        return 0.0, 100.0
    all_values = np.concatenate(finite)
    low = min(float(np.percentile(all_values, 8)), *(float(values.max()) for values in finite))
    high = float(all_values.max())
    margin = max(0.08 * (high - low), 0.25)
    return max(0.0, low - margin), min(100.0, high) + margin
