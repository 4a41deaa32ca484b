"""Further results of out-of-fold predictions: doubtful labels, and areas corrected for errors of the map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.labels import DoubtfulLabel
from hypercaps.data.scene import Scene
from hypercaps.inference.areas import ClassArea, class_areas
from hypercaps.inference.calibration import cross_calibrate
from hypercaps.inference.doubtful import doubtful_labels, merge_doubts
from hypercaps.inference.intervals import map_accuracy, predicted_units
from hypercaps.inference.run_metrics import AreaRow, RunMetrics
from hypercaps.io.writers.atomic import write_json
from hypercaps.io.writers.points import doubtful_file, write_doubtful
from hypercaps.io.writers.thumbnails import look_at_map
from hypercaps.selection.folded import FoldedResult
from hypercaps.selection.neighbours import predict_from_neighbours
from hypercaps.training.patches import read_pixels
from hypercaps.training.spec import TrainingSpec

SHOWN = 20  # doubtful labels whose spectra are kept for the report
_HIGH = 0.5  # doubt, from which a label is called doubtful; the file lists all contradictions
_SMALL = 64  # longest side of the picture that comes with the counts


def write_doubtful_labels(folder: Path, classifier: ConvCapsClassifier, scene: Scene) -> int | None:
    """Write the labels that predictions contradict, the most doubtful first; the number of those contradicted with high
    confidence, None without such predictions."""
    selection = classifier.selection_
    if selection is None or classifier.split_.kind != "folds":
        return None
    labels = find_doubtful_labels(selection)
    write_doubtful(folder / doubtful_file(scene), labels, scene)
    write_json(folder / "doubtful.json", _with_spectra(labels[:SHOWN], scene))
    return sum(label.doubt >= _HIGH for label in labels)


def find_doubtful_labels(selection: FoldedResult) -> list[DoubtfulLabel]:
    """Labels that predictions without their unit, or without the pixel itself, contradict."""
    problem = selection.problem
    legend, cols = problem.labels.legend, problem.scene.cols
    probabilities = cross_calibrate(selection.final.raw, problem.truth, problem.fold)
    of_units = doubtful_labels(problem.pixels, problem.truth, probabilities, legend, cols)
    near = predict_from_neighbours(problem, TrainingSpec(seed=problem.folds.seed))
    if near is None:
        return of_units
    # Where whole units are often predicted wrongly, such a prediction contradicts many right labels: it counts less.
    accuracy = float((selection.final.raw.argmax(axis=1) == problem.truth).mean())
    of_units = [replace(label, doubt=accuracy * label.doubt) for label in of_units]
    alone, likely = near
    return merge_doubts(of_units, doubtful_labels(alone.pixels, alone.truth, likely, legend, cols))


def _with_spectra(labels: list[DoubtfulLabel], scene: Scene) -> list[dict[str, object]]:
    pixels = np.array([label.row * scene.cols + label.col for label in labels], dtype=np.int64)
    order = np.argsort(pixels)
    spectra = np.empty((pixels.size, scene.bands))
    for at, read in read_pixels(scene, pixels[order]):
        spectra[order[at]] = read.values
    return [
        {
            "rank": label.rank,
            "row": label.row,
            "col": label.col,
            "label": label.given.label,
            "name": label.given.name,
            "predicted_label": label.predicted.label,
            "predicted": label.predicted.name,
            "doubt": label.doubt,
            "spectrum": spectrum.tolist(),
        }
        for label, spectrum in zip(labels, spectra, strict=True)
    ]


def with_areas(metrics: RunMetrics, classifier: ConvCapsClassifier, map_file: Path) -> RunMetrics:
    """The metrics with the areas of the map's classes, corrected by the confusion matrix of its scores, and the
    accuracy of the map by these areas; as they are without scores."""
    scores = getattr(classifier, "scores_", None)
    if scores is None:
        return metrics
    look = look_at_map(map_file, _SMALL)
    legend, units = classifier.legend_, _mapped_units(classifier)
    mapped = np.array([look.counts[entry.label] for entry in legend])
    rows = class_areas(legend, scores.confusion, mapped, units=units)
    metrics = replace(metrics, areas=tuple(_area_row(row, look.hectares) for row in rows))
    samples = np.asarray(scores.confusion).sum(axis=0) if units is None else units
    map_share = map_accuracy(scores.confusion, mapped, samples)
    if map_share is None:
        return metrics
    accuracy, interval = map_share
    return replace(metrics, map_accuracy=accuracy, map_accuracy_interval=(interval.low, interval.high))


def _area_row(row: ClassArea, hectares: float | None) -> AreaRow:
    """The area in hectares if a pixel's area is known, else in pixels."""
    scale, unit = (1.0, "pixels") if hectares is None else (hectares, "ha")
    return AreaRow(
        row.label,
        row.name,
        scale * row.mapped_pixels,
        scale * row.pixels,
        scale * row.low,
        scale * row.high,
        unit,
        row.checked,
    )


def _mapped_units(classifier: ConvCapsClassifier) -> npt.NDArray[np.float64] | None:
    """(n,) number of units that were predicted as each class; None: pixels were drawn one by one."""
    if classifier.split_.kind == "random":
        return None
    scores = classifier.scores_
    return predicted_units(scores.confusion, np.array([row.units or 0 for row in scores.per_class]))
