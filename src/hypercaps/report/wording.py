"""What a split means, in a sentence: every score is told with it."""

from __future__ import annotations

from collections.abc import Mapping

from hypercaps.inference.run_metrics import RunMetrics

MUCH_LEAKAGE = 0.05  # above this, a random split's figures need a word of explanation


def split_text(metrics: RunMetrics) -> str:
    """The split that scores are of, and its leakage."""
    if metrics.leakage is None:
        return "All labelled pixels; whether the model has seen ground near them is not known."
    kind, leakage = metrics.split, f"leakage {100 * metrics.leakage:.1f} %"
    ways = {
        "random": "pixels at random",
        "polygons": "whole polygons",
        "blocks": f"blocks of {metrics.block} x {metrics.block} pixels",
        "file": "the pixels of a file",
        "given": "pixels chosen by hand",
    }
    whose = "that share of the test pixels has" if metrics.leakage > 0 else "none of the test pixels has"
    return f"Split: {kind} ({ways.get(kind or '', 'unknown')}), {leakage}: {whose} a training pixel inside the patch."


def among_labels(metrics: RunMetrics) -> bool:
    """Whether test pixels lie among the training pixels: scores then say little about other ground."""
    return metrics.split == "random" or (metrics.leakage or 0.0) > MUCH_LEAKAGE


def leakage_text(metrics: RunMetrics) -> str | None:
    """What a high leakage means, and where the honest figure is to be had; None where there is little of it."""
    leakage = metrics.leakage or 0.0
    if leakage > MUCH_LEAKAGE:
        seen = f"The network has seen the ground around {'most' if leakage > 0.5 else 'many'} of its test pixels"
    elif metrics.split == "random" and metrics.patch == 1:
        seen = "Patches of one pixel can't hold another, but test pixels lie side by side with training pixels"
    else:
        return None
    both = ", and 'hypercaps evaluate --both' shows both" if metrics.split == "random" else ""
    return f"{seen}: on ground away from the labels, expect less; '--split blocks' tells how much less{both}."


def scene_text(metrics: RunMetrics) -> str | None:
    """How far a score by other ground reaches where the model has looked at that ground too; None where it hasn't."""
    if not metrics.pseudo_labelled or metrics.leakage is None or metrics.leakage > MUCH_LEAKAGE:
        return None
    return (
        "It has also learned from unlabelled pixels of this scene, by classes that flowed to them from the labels, "
        "never from a label of the test set: expect this accuracy in the rest of this scene, and less in another one."
    )


def both_text(both: Mapping[str, RunMetrics]) -> str:
    """What scores by a random split and by blocks mean, side by side."""
    text = (
        "Two trainings by the same recipe, shares and seed. Random tells how well pixels among the labels are mapped, "
        "blocks how well ground away from them is."
    )
    looked = next((said for metrics in both.values() if (said := scene_text(metrics))), None)
    if any(metrics.interrupted for metrics in both.values()):
        text += " The second training was ended early."
    return text if looked is None else f"{text} Of the model by blocks: {looked[0].lower()}{looked[1:]}"
