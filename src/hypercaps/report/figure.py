"""Helpers that all figures share."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

# Okabe and Ito's colours without yellow: distinguishable for colour-blind readers.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
LONGEST_NAME = 48  # letters of a name in a legend


def figure_png(figure: Figure, dpi: int = 130) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Letters that the font lacks are drawn as boxes; report.html shows such names in the browser's fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", facecolor="white")
    return buffer.getvalue()


def hex_color(rgb: Sequence[int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def short_name(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def line_style(number: int) -> tuple[str, str]:
    """Colour and line style of the line with this number: 21 combinations."""
    return COLORS[number % len(COLORS)], ("-", "--", ":")[number // len(COLORS) % 3]


def tidy(*axes: Any) -> None:
    """A light grid, and no frame at the top and the right."""
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)


def text_instead(ax: Any, text: str) -> None:
    """Text in the middle of an empty chart."""
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)


def legend_beside(figure: Figure, keys: Sequence[Any], ncols: int = 1) -> None:
    """A legend to the right of the panels; saving with a tight box makes space for it."""
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
        text.set_parse_math(False)  # a "$" in a class name is no formula
