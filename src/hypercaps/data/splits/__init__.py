"""Which labelled pixels train, validate and test: a Split, and the ways to draw one."""

from hypercaps.data.splits.blocks import split_blocks
from hypercaps.data.splits.draw import KINDS, check_kind, draw
from hypercaps.data.splits.polygons import connected_areas, split_polygons
from hypercaps.data.splits.random import split_by_share, split_per_class
from hypercaps.data.splits.rules import floor_share
from hypercaps.data.splits.split import Indices, Split

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
