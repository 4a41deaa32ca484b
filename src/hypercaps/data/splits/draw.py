"""The ways to draw by name, and a split drawn again from its description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypercaps.data.labels import Labels
from hypercaps.data.splits.blocks import split_blocks
from hypercaps.data.splits.polygons import split_polygons
from hypercaps.data.splits.random import split_by_share, split_per_class
from hypercaps.data.splits.split import Split
from hypercaps.errors import SplitError

KINDS = ("random", "polygons", "blocks")  # ways to draw that a user can ask for


def check_kind(kind: str) -> None:
    """Refuse a way to draw that there is not."""
    if kind not in KINDS:
        raise SplitError(f"there is no split {kind!r}: {', '.join(KINDS[:-1])} or {KINDS[-1]} is expected")


def draw(labels: Labels, how: Mapping[str, Any], *, patch: int = 7) -> Split | None:
    """Draw again a split described by ``how``; None where that description can't be drawn from."""
    if how.get("kind") == "polygons":
        shares = {key: how[key] for key in ("train", "val", "per_class", "seed") if key in how}
        return split_polygons(labels, **shares, patch=patch)
    if how.get("kind") == "blocks":
        shares = {key: how[key] for key in ("train", "val", "block", "per_class", "seed") if key in how}
        # The guard band is that of the patches it was drawn for, whatever it is used with.
        return split_blocks(labels, **shares, patch=2 * how["guard"] + 1).with_patch(patch)
    if how.get("kind") == "share":
        return split_by_share(labels, how["train"], how["val"], seed=how["seed"], patch=patch)
    if how.get("kind") == "per-class":
        most = how.get("at_most", 1.0)
        return split_per_class(labels, how["per_class"], how["val"], at_most=most, seed=how["seed"], patch=patch)
    return None
