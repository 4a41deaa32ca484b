from __future__ import annotations

import numpy as np
import pytest

from hypercaps.data.labels import Legend
from hypercaps.inference.areas import class_areas

# The example of Olofsson et al. 2014, section 5: mapped class by row, true class by column.
NAMES = ["deforestation", "forest gain", "stable forest", "stable non-forest"]
LEGEND = Legend.of(range(1, 5), NAMES)
ERRORS = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]])
MAPPED = np.array([200_000, 150_000, 3_200_000, 6_450_000])
PIXEL = 0.09  # hectares


def test_the_worked_example_of_the_paper() -> None:
    areas = class_areas(LEGEND, ERRORS.T, MAPPED)
    assert [area.name for area in areas] == NAMES
    assert areas[0].pixels == pytest.approx(235_086, abs=1)
    expected = [(21_158, 6_158), (11_686, 3_756), (285_770, 15_510), (581_386, 16_282)]
    for area, (hectares, half) in zip(areas, expected, strict=True):
        assert area.pixels * PIXEL == pytest.approx(hectares, abs=1)
        assert (area.high - area.pixels) * PIXEL == pytest.approx(half, abs=2)
        assert (area.pixels - area.low) * PIXEL == pytest.approx(half, abs=2)
        assert area.checked
    assert areas[0].mapped_pixels == 200_000
    assert sum(area.pixels for area in areas) == pytest.approx(MAPPED.sum())


def test_the_formulas_by_hand_with_fewer_units() -> None:
    units = np.array([10, 7, 20, 30])
    areas = class_areas(LEGEND, ERRORS.T, MAPPED, units=units)
    total = MAPPED.sum()
    for j, area in enumerate(areas):
        share = variance = 0.0
        for i in range(4):
            weight = MAPPED[i] / total
            p = weight * ERRORS[i, j] / ERRORS[i].sum()
            share += p
            smoothed = weight * (ERRORS[i, j] / ERRORS[i].sum() * units[i] + 1 / 4) / (units[i] + 1)
            variance += (weight * smoothed - smoothed**2) / (units[i] - 1)
        assert area.pixels == pytest.approx(total * share)
        assert area.high == pytest.approx(min(total, total * (share + 1.959964 * variance**0.5)))
        assert area.low == pytest.approx(max(0.0, total * (share - 1.959964 * variance**0.5)))


def test_a_few_units_that_are_all_right_do_not_make_an_area_certain() -> None:
    areas = class_areas(Legend.of([1, 2]), np.diag([50, 50]), np.array([400, 600]), units=np.array([3, 3]))
    assert areas[0].low < 300 and areas[0].high > 500


def test_a_mapped_class_without_labels_is_taken_as_it_is() -> None:
    errors = np.array([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    areas = class_areas(Legend.of([1, 2, 3]), errors.T, np.array([100, 100, 50]))
    assert [area.checked for area in areas] == [True, True, False]
    assert (areas[2].pixels, areas[2].low, areas[2].high) == (50, 50, 50)
    assert areas[0].pixels == pytest.approx(90)
    with pytest.raises(ValueError, match="no pixel"):
        class_areas(LEGEND, ERRORS.T, np.zeros(4))


def test_one_unit_is_no_division_by_zero() -> None:
    areas = class_areas(Legend.of([1, 2]), np.array([[3, 1], [1, 3]]), np.array([50, 50]), units=np.ones(2))
    assert all(np.isfinite([area.low, area.high]).all() and area.low < 50 < area.high for area in areas)
