"""Base of what displays and draws itself; ``report.notebook`` makes HTML and charts when they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Displayed:
    """Something with a picture: shown by Jupyter as HTML, drawn by ``plot``."""

    def _repr_html_(self) -> str:
        from hypercaps.report.notebook import html_of  # imports matplotlib

        return html_of(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        from hypercaps.report.notebook import draw

        return draw(self, ax)
