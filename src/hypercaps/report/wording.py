"""Sentences that say what a score means and where it holds: every score is shown with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypercaps.inference.calibration import FEWEST_PIXELS
from hypercaps.inference.run_metrics import Bounds, RunMetrics

MUCH_LEAKAGE = 0.05  # above this, the scores of a random split are explained
FEW_PIXELS = 20  # test pixels, below which a score is not reliable

_UNITS = {  # kind of spatial units: one of them, and several
    "points": ("point", "points"),
    "polygons": ("polygon", "polygons"),
    "tiles": ("tile", "tiles"),
    "areas": ("labelled area", "labelled areas"),
    "blocks": ("block", "blocks"),
}

_WIDE = 30.0  # percentage points between the bounds of an interval that tells little

# ---- figures ---------------------------------------------------------------------------------------------------------


def interval_text(bounds: Bounds) -> str:
    return f"{bounds[0]:.1f} to {bounds[1]:.1f}"


def score_text(score: float | None, bounds: Bounds | None) -> str:
    """A score in percent with its interval; with one, a second decimal would suggest false precision."""
    if score is None:
        return "-"
    return f"{score:.2f} %" if bounds is None else f"{score:.1f} % ({interval_text(bounds)})"


def interval_note(metrics: RunMetrics) -> str | None:
    """What the intervals beside the scores are; None if there are none."""
    if metrics.oa_interval is None:
        return None
    sample = f", with the {_count_units(metrics)} as the sample" if metrics.n_units is not None else ""
    counted = " (pieces of one area count as one, in the table too)" if counts_areas(metrics) else ""
    return f"In brackets: 95 % intervals{sample}{counted}."


def too_few_text(metrics: RunMetrics) -> str | None:
    """That the interval of OA is too wide to tell how accurate the map is; None if it is not."""
    if metrics.oa_interval is None or metrics.oa_interval[1] - metrics.oa_interval[0] < _WIDE:
        return None
    low, high = (f"{bound:.0f}" for bound in metrics.oa_interval)
    few = "Too few test pixels" if metrics.n_units is None else f"{_count_units(metrics)} are too few"
    more = unit_names(metrics)[1] if metrics.units in ("points", "polygons") else "areas"
    return (
        f"{few} to tell how accurate the map is: anything from {low} to {high} % is plausible. Label more {more}, "
        "spread over the scene."
    )


def counts_areas(metrics: RunMetrics) -> bool:
    """Whether units may be pieces of one area, which count as one in intervals and in the numbers of units."""
    return metrics.units in ("areas", "blocks")


def unit_names(metrics: RunMetrics) -> tuple[str, str]:
    """What the folds hold out as a whole, in the singular and the plural."""
    return _UNITS.get(metrics.units or "", ("spatial unit", "spatial units"))


def joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


# ---- what was scored -------------------------------------------------------------------------------------------------


def split_text(metrics: RunMetrics) -> str:
    """The split that the scores belong to, and its leakage."""
    if metrics.split == "none":
        return "Split: none (all labels are for training): nothing was scored."
    if metrics.split == "folds":
        how = f"{metrics.folds} folds of whole {unit_names(metrics)[1]}"
        return f"Split: folds ({how}): {_unseen(metrics)}.{_leakage_of_folds(metrics)}"
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


def sample_text(metrics: RunMetrics) -> str:
    """The pixels that the scores of folds are of, and what the final model is trained on."""
    labels = metrics.n_test if metrics.n_train is None else metrics.n_train
    return (
        f"on {_counted(metrics.n_test, 'labelled pixel')}, each predicted by a model that had not seen "
        f"{_its_unit(metrics)} ({metrics.folds} folds, {_count_units(metrics)}); the final model is trained on all "
        f"{labels:,} labels"
    )


def unscored_text(metrics: RunMetrics) -> str | None:
    """That nothing was scored; None if something was."""
    if metrics.oa is not None:
        return None
    labels = "all labels" if metrics.n_train is None else f"all {metrics.n_train:,} labels"
    option = " (--split none)" if metrics.split == "none" else ""
    return f"Nothing was scored: {labels} were used for training{option}."


def unknown_text(metrics: RunMetrics) -> str:
    """What is not known of a map of which nothing was scored."""
    scored = (
        "'--split folds' also trains the model on all labels, and scores each of them by a model that has not seen it."
    )
    if metrics.candidates:
        return (
            "How accurate the map is, is unknown: the figures of the methods compared are those that chose among them. "
            f"{scored}"
        )
    return f"How accurate the map is, is unknown, and its confidence is not calibrated. {scored}"


def untested_names(metrics: RunMetrics) -> list[str]:
    """Classes that the scores say nothing about."""
    without = [row.name for row in metrics.per_class if row.accuracy is None]
    return list(dict.fromkeys([*metrics.untested, *without]))


def tested_share_text(metrics: RunMetrics) -> str | None:
    """How many of the classes the scores are of; None: of all."""
    tested, classes = sum(row.accuracy is not None for row in metrics.per_class), len(metrics.per_class)
    return None if metrics.oa is None or tested == classes else f"of {tested} of {classes} classes"


def untested_text(metrics: RunMetrics) -> str | None:
    """Which classes were not tested, if any."""
    names = untested_names(metrics)
    if not names or metrics.oa is None:
        return None
    where = "with one point" if metrics.units == "points" else f"with labels in one {unit_names(metrics)[0]}"
    reason = f" A class {where} only can't be held out." if metrics.split == "folds" else ""
    them, they = ("this class", "it covers") if len(names) == 1 else ("these classes", "they cover")
    return (
        f"Not tested: {joined(names)}. OA, AA and kappa say nothing about {them}: if {they} much of the scene, the map "
        f"can be far less accurate.{reason}"
    )


def partly_seen_text(metrics: RunMetrics) -> str | None:
    """How many pixels were held out while others of their unit trained, if any."""
    if not metrics.partly_seen or metrics.oa is None:
        return None
    lie, their = ("lies", "its") if metrics.partly_seen == 1 else ("lie", "their")
    return (
        f"{_counted(metrics.partly_seen, 'held-out pixel')} {lie} beside training pixels of {their} own "
        f"{unit_names(metrics)[0]}: those of a class that is in no other one and can't be held out."
    )


def one_area_text(metrics: RunMetrics) -> str | None:
    """Which classes were tested inside of their only labelled area, if any."""
    names = metrics.within_one_area
    if not names or metrics.oa is None:
        return None
    whose = "its labels are" if len(names) == 1 else "the labels of each are"
    return (
        f"Tested near training labels only: {joined(names)}; {whose} one connected area, which was cut into pieces. "
        "Elsewhere accuracy can be far lower: label a second area."
    )


def epochs_text(metrics: RunMetrics, second: int) -> str | None:
    """How long the model was trained; None for a method without epochs. ``second``: epochs of a second network."""
    if metrics.epochs <= 1:
        return None
    stages = f" ({metrics.epochs - second} of a first network and {second} of a second one)" if second else ""
    stopped = "; stopped early by the user" if metrics.interrupted else ""
    return f"{metrics.epochs} epochs{stages}; the weights are those of epoch {metrics.best_epoch}{stopped}."


# ---- where the scores hold -------------------------------------------------------------------------------------------


def question_text(metrics: RunMetrics) -> str | None:
    """Which ground the score of folds describes; None for other splits."""
    if metrics.split != "folds" or metrics.oa is None:
        return None
    units = unit_names(metrics)[1]
    pixels = units if metrics.units == "points" else f"pixels of {units}"
    sentences = (
        f"The score describes ground like the labelled ground: {pixels} that the model has not seen.",
        metrics.distances,
        "On fields or areas without any label nearby, accuracy is lower.",
    )
    return " ".join(filter(None, sentences))


def among_labels(metrics: RunMetrics) -> bool:
    """Whether test pixels lie among the training pixels, so that scores say little about other areas."""
    return metrics.split == "random" or (metrics.leakage or 0.0) > MUCH_LEAKAGE


def map_accuracy_text(metrics: RunMetrics) -> str | None:
    """The share of the map that is right, if classes were not labelled in proportion to their areas; None: unknown."""
    if metrics.map_accuracy is None or metrics.split != "folds":
        return None
    weighted = score_text(metrics.map_accuracy, metrics.map_accuracy_interval)
    return (
        f"Weighted by the area of each class in the map: {weighted}. That is the better estimate for the whole map if "
        "labels of each class are typical, but their numbers are not in proportion to the areas."
    )


def leakage_text(metrics: RunMetrics) -> str | None:
    """What a high leakage means, and how to measure accuracy without it; None if leakage is low."""
    leakage = metrics.leakage or 0.0
    if leakage > MUCH_LEAKAGE:
        share = "most" if leakage > 0.5 else f"{100 * leakage:.0f} % of the"
        reason = f"The patches of {share} test pixels contain training pixels"
    elif metrics.split == "random" and metrics.patch == 1:
        reason = "Patches of one pixel can't contain another one, but test pixels lie beside training pixels"
    else:
        return None
    lower = f"{reason}: expect a lower accuracy away from the labels."
    if metrics.split == "folds":
        return lower
    both = ", and 'hypercaps evaluate --both' shows both" if metrics.split == "random" else ""
    return f"{lower} '--split blocks' measures how much lower it is{both}."


def scene_text(metrics: RunMetrics) -> str | None:
    """Where a score holds if the model was trained on unlabelled pixels of the same scene; None if it was not."""
    folds = metrics.split == "folds"
    known = metrics.leakage is not None or folds
    if not metrics.pseudo_labelled or not known or (metrics.leakage or 0.0) > MUCH_LEAKAGE or metrics.split == "none":
        return None
    labels = "held-out label" if folds else "label of the test set"
    how = (
        "The model was also trained on unlabelled pixels of this scene, with classes propagated to them from the "
        f"training labels, never from a {labels}"
    )
    if metrics.n_test < FEW_PIXELS:
        return f"{how}. Fewer than {FEW_PIXELS} test pixels are too few to say what accuracy to expect elsewhere."
    if metrics.oa_interval is None:
        return f"{how}: expect a lower accuracy in another scene."
    expected = f"an accuracy of {interval_text(metrics.oa_interval)} %"
    where = "on ground like the labelled ground of this scene" if folds else "in the rest of this scene"
    return f"{how}: expect {expected} {where}, and a lower one in another scene."


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


# ---- confidence ------------------------------------------------------------------------------------------------------


def calibration_text(metrics: RunMetrics) -> str | None:
    """What confidence means, and how well it agrees with accuracy; None: it was not evaluated."""
    confidence = metrics.confidence
    if confidence is None:
        return None
    before = f"{100 * confidence.ece_before:.1f} percentage points on average"
    if metrics.claimed is False:
        error = confidence.ece_before if confidence.ece_after is None else confidence.ece_after
        return (
            "Confidence is not valid for this scene, which is not like the training scene: it differs from accuracy by "
            f"{100 * error:.1f} percentage points on average."
        )
    folds = metrics.split == "folds"
    if confidence.ece_after is None:
        reason = "" if folds else ", because there were no validation pixels"
        return f"Confidence is not calibrated{reason}: it is the raw score and differs from accuracy by {before}."
    pixels = "" if confidence.pixels is None else f"{confidence.pixels:,} "
    kind = "labelled pixels of its training" if metrics.split is None else "validation pixels"  # of a model file
    sample = f"{pixels}{'out-of-fold predictions' if folds else kind}"
    if confidence.calibration != "none":
        return (
            f"Confidence, calibrated on {sample} ({confidence.calibration}), differs from accuracy by "
            f"{100 * confidence.ece_after:.1f} percentage points on average ({100 * confidence.ece_before:.1f} before "
            "calibration)."
        )
    if confidence.pixels is not None and confidence.pixels < FEWEST_PIXELS:
        reason = f"{sample} are too few to calibrate on ({FEWEST_PIXELS} or more are needed)"
    else:
        reason = f"on {sample}, calibration did not improve it clearly"
    return (
        f"Confidence is not calibrated, because {reason}: it is the model's own score and differs from accuracy by "
        f"{before}."
    )


# ---- labels ----------------------------------------------------------------------------------------------------------


def doubtful_text(metrics: RunMetrics, file: str = "doubtful.gpkg") -> str | None:
    """How many labels are doubtful, and the file that lists them; None if no label is."""
    if not metrics.doubtful:
        return None
    verb = "is" if metrics.doubtful == 1 else "are"
    return f"{_counted(metrics.doubtful, 'label')} {verb} doubtful: see {file}"


def contradiction_text(metrics: RunMetrics) -> str | None:
    """What it means that labels are doubtful; None if no label is."""
    if not metrics.doubtful:
        return None
    verb = "is" if metrics.doubtful == 1 else "are"
    unit = _its_unit(metrics)
    unseen = "it" if unit == "it" else f"it, or not seen {unit},"
    return (
        f"{_counted(metrics.doubtful, 'label')} {verb} contradicted with high confidence (doubt of 0.5 or more): a "
        f"model that had not seen {unseen} assigns the pixel to another class. Such a label may be wrong, or the class "
        "may look here as it does nowhere else in the labels."
    )


def _unseen(metrics: RunMetrics) -> str:
    return (
        f"each held-out pixel is predicted by a model that had not seen {_its_unit(metrics)}; the final model is "
        "trained on all labels"
    )


def _its_unit(metrics: RunMetrics) -> str:
    return "it" if metrics.units == "points" else f"its {unit_names(metrics)[0]}"


def _count_units(metrics: RunMetrics) -> str:
    one, several = unit_names(metrics)
    return several if metrics.n_units is None else f"{metrics.n_units:,} {one if metrics.n_units == 1 else several}"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _leakage_of_folds(metrics: RunMetrics) -> str:
    if not metrics.leakage:
        return ""
    return (
        f" Leakage {100 * metrics.leakage:.1f} %: that share of the pixels has a training pixel"
        f"{'' if metrics.partly_seen else f' of another {unit_names(metrics)[0]}'} inside its patch."
    )
