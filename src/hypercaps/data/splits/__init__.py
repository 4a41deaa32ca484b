"""Which labelled pixels train, validate and test: a Split, and the functions that draw one."""

from hypercaps.data.splits.draw import (
    draw,
    draw_requested_folds,
    split_blocks,
    split_by_share,
    split_per_class,
    split_polygons,
)
from hypercaps.data.splits.folds import Folds, draw_folds
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.data.splits.random import floor_share
from hypercaps.data.splits.request import KINDS, WITHOUT_TEST, SplitDescription, SplitRequest, check_kind
from hypercaps.data.splits.split import Indices, Split
from hypercaps.data.splits.units import Units, count_test_units, label_units, units_per_class

__all__ = [
    "KINDS",
    "WITHOUT_TEST",
    "Folds",
    "Indices",
    "Split",
    "SplitDescription",
    "SplitRequest",
    "Units",
    "check_kind",
    "connected_areas",
    "count_test_units",
    "draw",
    "draw_folds",
    "draw_requested_folds",
    "floor_share",
    "label_units",
    "split_blocks",
    "split_by_share",
    "split_per_class",
    "split_polygons",
    "units_per_class",
]
