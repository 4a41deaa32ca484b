"""Which labelled pixels train, validate and test: a Split, and the functions that draw one."""

from hypercaps.data.splits.draw import draw, split_blocks, split_by_share, split_per_class, split_polygons
from hypercaps.data.splits.polygons import connected_areas
from hypercaps.data.splits.random import floor_share
from hypercaps.data.splits.request import KINDS, SplitDescription, SplitRequest, check_kind
from hypercaps.data.splits.split import Indices, Split

__all__ = [
    "KINDS",
    "Indices",
    "Split",
    "SplitDescription",
    "SplitRequest",
    "check_kind",
    "connected_areas",
    "draw",
    "floor_share",
    "split_blocks",
    "split_by_share",
    "split_per_class",
    "split_polygons",
]
