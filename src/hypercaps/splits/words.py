"""What a split means, in a sentence: every score is told with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MUCH_LEAKAGE = 0.05  # above this, a random split's figures need a word of explanation


def split_text(metrics: Mapping[str, Any]) -> str:
    """The split that scores are of, and its leakage; ``metrics`` has the keys of metrics.json."""
    if metrics["leakage"] is None:
        return "All labelled pixels; whether the model has seen ground near them is not known."
    kind, leakage = metrics["split"], f"leakage {100 * metrics['leakage']:.1f} %"
    ways = {
        "random": "pixels at random",
        "polygons": "whole polygons",
        "blocks": f"blocks of {metrics.get('block')} x {metrics.get('block')} pixels",
        "file": "the pixels of a file",
        "given": "pixels chosen by hand",
    }
    whose = "that share of the test pixels has" if metrics["leakage"] > 0 else "none of the test pixels has"
    return f"Split: {kind} ({ways.get(kind, 'unknown')}), {leakage}: {whose} a training pixel inside the patch."


def leakage_text(metrics: Mapping[str, Any]) -> str | None:
    """What a high leakage means, and where the honest figure is to be had; None where there is little of it."""
    if metrics["split"] != "random" or metrics["leakage"] <= MUCH_LEAKAGE:
        return None
    much = "most" if metrics["leakage"] > 0.5 else "many"
    return (
        f"The network has seen the ground around {much} of its test pixels: on ground away from the labels, expect "
        "less; '--split blocks' tells how much less, and 'hypercaps evaluate --both' shows both."
    )


def scene_text(metrics: Mapping[str, Any]) -> str | None:
    """How far a score by other ground reaches where the model has looked at that ground too; None where it hasn't."""
    if not metrics.get("pseudo_labelled") or metrics["split"] not in ("blocks", "polygons"):
        return None
    return (
        "It has also learned from unlabelled pixels of this scene, by classes that flowed to them from the labels, "
        "never from a label of the test set: expect this accuracy in the rest of this scene, and less in another one."
    )
