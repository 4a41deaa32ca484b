from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from hypercaps.data.labels import Labels, Legend, LegendEntry
from hypercaps.inference.metrics import ConfidenceReport, rejection_table, reliability
from hypercaps.report import plots
from hypercaps.report.map_pictures import colored, legend_keys, map_picture
from hypercaps.report.plots import curves_picture, reliability_picture
from hypercaps.training.loop import EpochRecord


def shape_of(picture: bytes) -> tuple[int, int]:
    return imread(io.BytesIO(picture), format="png").shape[:2]


def test_colours_come_from_the_legend_and_are_grey_without_a_class() -> None:
    legend = Legend.of([1, 300])
    picture = colored(np.array([[0, 1], [300, 7]]), legend)
    assert picture.dtype == np.uint8 and picture.shape == (2, 2, 3)
    assert tuple(picture[0, 1]) == legend.entries[0].color and tuple(picture[1, 0]) == legend.entries[1].color
    assert tuple(picture[0, 0]) == tuple(picture[1, 1]) == (245, 245, 245)


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (1, 1), (4000, 3)])
def test_maps_of_any_shape_make_a_picture_of_moderate_size(shape: tuple[int, int]) -> None:
    classes = np.ones(shape, int)
    height, width = shape_of(map_picture(classes, Legend.of([1, 2]), truth=Labels.from_array(classes)))
    assert 100 < height < 2000 and 100 < width < 2500


def test_what_only_the_picture_marks_has_no_number() -> None:
    legend = Legend.of([1, 2], ["soil", "water"])
    keys = legend_keys(legend, LegendEntry(4, "unlike any label", (40, 40, 40)), unclassified=True)
    assert [key.get_label() for key in keys] == ["1  soil", "2  water", "unlike any label", "no class"]


def test_names_are_drawn_literally() -> None:
    legend = Legend.of(range(1, 41), ["$x_{$", "a" * 90, "50% <b> [red]", "\\frac{"] + [f"n{i}" for i in range(36)])
    assert min(shape_of(map_picture(np.arange(1, 41).reshape(5, 8), legend))) > 100


def test_curves_of_one_epoch_and_without_validation() -> None:
    assert min(shape_of(curves_picture([EpochRecord(1, 0.5, 50.0, 1.0)], 1))) > 100
    records = [EpochRecord(1, 0.5, None, 1.0), EpochRecord(2, 0.0, None, 1.0)]
    assert min(shape_of(curves_picture(records, 2))) > 100


def test_reliability_with_and_without_calibration() -> None:
    sure, right = np.linspace(0.2, 0.95, 40), np.arange(40) % 3 > 0
    bare = ConfidenceReport(reliability(sure, right))
    assert min(shape_of(reliability_picture(bare))) > 100
    table = rejection_table(sure, right)
    assert table[-1].accuracy is None  # nothing is that sure
    calibrated = ConfidenceReport(bare.before, "isotonic", bare.before, table)
    assert min(shape_of(reliability_picture(calibrated))) > 100
    doubtful = ConfidenceReport(bare.before, "isotonic", bare.before, rejection_table(sure / 4, right))
    assert min(shape_of(reliability_picture(doubtful))) > 100


def test_losses_are_written_without_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of a logarithmic axis would be formulas, which take matplotlib longer than the curves."""
    drawn: list[set[str]] = []

    def texts(figure: Figure) -> bytes:
        figure.draw_without_rendering()
        ticks = [figure.axes[0].yaxis.get_majorticklabels(), figure.axes[0].yaxis.get_minorticklabels()]
        drawn.append({label.get_text() for labels in ticks for label in labels} - {""})
        return b""

    monkeypatch.setattr(plots, "figure_png", texts)
    for losses in ((1.0, 0.1, 0.001), (0.6, 0.3, 0.2)):  # decades, and less than one
        plots.curves_picture([EpochRecord(i, loss, None, 1.0) for i, loss in enumerate(losses, 1)], 1)
    assert {"1", "0.1", "0.01", "0.001"} <= drawn[0] and {"0.2", "0.3", "0.4", "0.6"} <= drawn[1]
    assert all(float(text) > 0 for text in drawn[0] | drawn[1])
