"""Which labelled pixels train, validate and test: a Split, and the ways to draw one."""

from hypercaps.splits.again import KINDS, check_kind, draw
from hypercaps.splits.asked import floor_share
from hypercaps.splits.at_random import split_by_share, split_per_class
from hypercaps.splits.blocks import split_blocks
from hypercaps.splits.polygons import connected_areas, split_polygons
from hypercaps.splits.split import Indices, Split

__all__ = [
    "KINDS",
    "Indices",
    "Split",
    "check_kind",
    "connected_areas",
    "draw",
    "floor_share",
    "split_blocks",
    "split_by_share",
    "split_per_class",
    "split_polygons",
]
