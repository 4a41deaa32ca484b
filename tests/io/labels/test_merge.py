"""Several label files merged into one, and class names numbered by a model's legend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely

from hypercaps.data.labels import Labels, Legend, LegendEntry
from hypercaps.errors import DataWarning, LabelsError
from hypercaps.io.labels.merge import LabelFile, merge, number_classes, renumber
from hypercaps.io.open import open_labels
from support.vectors import GRID, KINDS, SQUARES, names, scene_on, write


def numbered(array: Any, **called: str) -> LabelFile:
    """Labels with the numbers of a file; classes given as c2="water" have names."""
    names_of = {int(key[1:]): name for key, name in called.items()}
    legend = Legend.of(range(1, 10), [names_of.get(n, f"class {n}") for n in range(1, 10)])
    labels = Labels.from_array(np.atleast_2d(array), legend, name="numbers")
    return LabelFile(labels, labels.legend)


def lettered(array: Any, *called: str, name: str = "names") -> LabelFile:
    """Labels of classes that have names only."""
    labels = Labels.from_array(np.atleast_2d(array), Legend.of(range(1, len(called) + 1), sorted(called)), name=name)
    return LabelFile(labels, labels.legend, frozenset(labels.legend.labels.tolist()))


def test_names_are_joined_and_numbered_in_alphabetical_order() -> None:
    labels, legend, invented = merge([lettered([1, 2, 0, 0], "soil", "tree"), lettered([0, 0, 1, 2], "moss", "soil")])
    assert names(labels) == [(1, "moss"), (2, "soil"), (3, "tree")] and invented == {1, 2, 3}
    assert labels.array.tolist() == [[2, 3, 1, 2]] and labels.name == "names + names"
    assert len({entry.color for entry in legend}) == 3  # both files had the first default colours


def test_numbers_are_kept_and_names_get_the_same_numbers() -> None:
    one = numbered([2, 5, 0, 0, 0, 0], c2="water", c5="soil")
    labels, _, invented = merge([lettered([0, 0, 1, 2, 3, 0], "moss", "soil", "water"), one])
    assert names(labels) == [(2, "water"), (5, "soil"), (6, "moss")] and invented == {6}
    assert labels.array.tolist() == [[2, 5, 6, 5, 2, 0]]


def test_unnamed_classes_are_identified_by_number() -> None:
    labels, _, _ = merge([numbered([1, 2, 0, 0]), numbered([0, 0, 2, 3], c2="water", c3="soil")])
    assert names(labels) == [(1, "class 1"), (2, "water"), (3, "soil")] and labels.array.tolist() == [[1, 2, 2, 3]]


def test_one_number_with_two_names_is_two_classes() -> None:
    files = [numbered([1, 2, 0, 0], c1="water", c2="tree"), numbered([0, 0, 1, 2], c1="tree", c2="soil")]
    with pytest.warns(DataWarning, match="its class 2, soil, becomes 3, because 2 is tree"):
        labels, _, _ = merge(files)
    assert names(labels) == [(1, "water"), (2, "tree"), (3, "soil")] and labels.array.tolist() == [[1, 2, 2, 3]]


def test_two_classes_of_a_file_never_become_one() -> None:
    with pytest.raises(LabelsError, match="two classes of 'numbers' would become one"):
        number_classes([numbered([1, 2], c2="tree"), numbered([2, 3], c3="tree")])


def test_pixels_with_two_classes_are_left_unlabelled_with_a_warning() -> None:
    files = [lettered([1, 1, 2, 2], "a", "b"), lettered([1, 2, 2, 0], "a", "c"), lettered([0, 1, 0, 0], "b")]
    with pytest.warns(DataWarning, match=r"files of different classes overlap.*\(a and b: 1, a and c: 1, b and c: 1\)"):
        labels, _, _ = merge(files)
    assert labels.array.tolist() == [[1, 0, 0, 2]]
    with pytest.raises(LabelsError, match="1 x 4 pixels but 'numbers' 1 x 2"):
        merge([files[0], numbered([1, 2])])


def test_groups_of_all_files_stay_apart() -> None:
    first = Labels.from_array([[1, 1, 0, 0, 0, 0]], groups=np.array([[3, 4, 0, 0, 0, 0]], np.int32))
    raster = numbered([0, 0, 2, 2, 0, 2])
    labels, _, _ = merge([LabelFile(first, first.legend), raster])
    assert labels.groups is not None and labels.groups.tolist() == [[3, 4, 5, 5, 0, 6]]
    assert merge([raster, raster]).labels.groups is None  # no polygons are known: a split finds connected areas


def test_names_are_numbered_by_the_legend_of_a_model() -> None:
    model = Legend(
        (LegendEntry(1, "soil", (1, 1, 1)), LegendEntry(2, "tree", (2, 2, 2)), LegendEntry(4, "water", (3, 3, 3)))
    )
    file = lettered([1, 2, 3, 3], "meadow", "soil", "water")
    labels = renumber(file, model)
    assert labels.array.tolist() == [[5, 1, 4, 4]]  # a class that the model lacks gets a new number
    assert names(labels) == [(1, "soil"), (4, "water"), (5, "meadow")]
    # The file that the model was trained on keeps its numbers, also of a class that was not in that scene.
    trained_on = lettered([1, 2, 3, 4], "soil", "tree", "unseen", "water")
    assert renumber(trained_on, model) is trained_on.labels
    assert renumber(numbered([1, 2]), model).array.tolist() == [[1, 2]]  # numbers of a file are kept


def test_files_of_all_kinds_are_merged(tmp_path: Path) -> None:
    scene = scene_on()
    polygons = write(tmp_path / "a.gpkg", SQUARES, {"kind": KINDS})
    points = write(
        tmp_path / "b.geojson", [shapely.Point(50.5, 3.5), shapely.Point(2.5, 2.5)], {"kind": ["moss", "tree"]}
    )
    raster = np.zeros((40, 60), np.uint8)
    raster[35:, 50:] = 3
    grid = rasterio.Affine(*GRID)
    with rasterio.open(
        tmp_path / "c.tif", "w", driver="GTiff", width=60, height=40, count=1, dtype="uint8", crs="EPSG:32633",
        transform=grid,
    ) as file:  # fmt: skip
        file.write(raster, 1)
    labels = open_labels([polygons, points, str(tmp_path / "c.tif")], scene=scene, class_field="kind")
    assert names(labels) == [(3, "class 3"), (4, "moss"), (5, "soil"), (6, "tree"), (7, "water")]
    assert labels.counts() == {3: 50, 4: 1, 5: 28, 6: 16, 7: 120}
    assert labels.groups is not None and len(np.unique(labels.groups)) == 1 + 3 + 1 + 1  # the point is in a polygon
    with pytest.raises(LabelsError, match="name at least one"):
        open_labels([], scene=scene)
    with pytest.raises(LabelsError, match=r"no field 'kind'"):
        open_labels([polygons, write(tmp_path / "d.gpkg", SQUARES, {"n": [1, 2, 3]})], scene=scene, class_field="kind")
