"""Sentences that say what a split means: every score is shown with them."""

from __future__ import annotations

from collections.abc import Mapping

from hypercaps.inference.run_metrics import RunMetrics

MUCH_LEAKAGE = 0.05  # above this, the scores of a random split are explained


def split_text(metrics: RunMetrics) -> str:
    """The split that the scores belong to, and its leakage."""
    if metrics.leakage is None:
        return "All labelled pixels; whether the model was trained on pixels near them is unknown."
    kind, leakage = metrics.split, f"leakage {100 * metrics.leakage:.1f} %"
    kinds = {
        "random": "pixels at random",
        "polygons": "whole polygons",
        "blocks": f"blocks of {metrics.block} x {metrics.block} pixels",
        "file": "the pixels of a file",
        "given": "pixels chosen by hand",
    }
    share = "that share of the test pixels has" if metrics.leakage > 0 else "none of the test pixels has"
    return f"Split: {kind} ({kinds.get(kind or '', 'unknown')}), {leakage}: {share} a training pixel inside its patch."


def among_labels(metrics: RunMetrics) -> bool:
    """Whether test pixels lie among the training pixels, so that scores say little about other areas."""
    return metrics.split == "random" or (metrics.leakage or 0.0) > MUCH_LEAKAGE


def leakage_text(metrics: RunMetrics) -> str | None:
    """What a high leakage means, and how to measure accuracy without it; None if leakage is low."""
    leakage = metrics.leakage or 0.0
    if leakage > MUCH_LEAKAGE:
        reason = f"The patches of {'most' if leakage > 0.5 else 'many'} test pixels contain training pixels"
    elif metrics.split == "random" and metrics.patch == 1:
        reason = "Patches of one pixel can't contain another one, but test pixels lie beside training pixels"
    else:
        return None
    both = ", and 'hypercaps evaluate --both' shows both" if metrics.split == "random" else ""
    return (
        f"{reason}: expect a lower accuracy away from the labels. '--split blocks' measures how much lower it is{both}."
    )


def scene_text(metrics: RunMetrics) -> str | None:
    """Where a score holds if the model was trained on unlabelled pixels of the same scene; None if it was not."""
    if not metrics.pseudo_labelled or metrics.leakage is None or metrics.leakage > MUCH_LEAKAGE:
        return None
    return (
        "The model was also trained on unlabelled pixels of this scene, with classes propagated to them from the "
        "training labels, never from a label of the test set: expect this accuracy in the rest of this scene, and a "
        "lower one in another scene."
    )


def both_text(both: Mapping[str, RunMetrics]) -> str:
    """What the scores of a random split and of a block split mean, side by side."""
    text = (
        "Two trainings with the same recipe, shares and seed. The random split measures how well pixels among the "
        "labels are mapped, the block split how well areas away from them are."
    )
    if any(metrics.interrupted for metrics in both.values()):
        text += " The second training was stopped early."
    of_scene = next(filter(None, map(scene_text, both.values())), None)
    return text if of_scene is None else f"{text} For the block split: {of_scene[0].lower()}{of_scene[1:]}"
