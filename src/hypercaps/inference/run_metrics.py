"""RunMetrics: what metrics.json and ``evaluate --json`` hold, as a typed record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from hypercaps.inference.metrics import ClassScore, ConfidenceReport, Json

Bounds = tuple[float, float]  # of a 95 % interval, in percent

# Keys in the order in which they are written, after those of the scores.
_SCORES = ("oa", "aa", "kappa", "oa_interval", "aa_interval", "kappa_interval")
_INTERVALS = ("oa_interval", "aa_interval", "kappa_interval", "map_accuracy_interval")
_SPLIT = (
    *("n_train", "n_val", "n_test", "split", "block", "folds", "units", "n_units", "untested"),
    "within_one_area",
    "partly_seen",
    "distances",
    *("leakage", "patch", "parameters"),
)
_TRAINING = (
    "train_seconds",
    "best_epoch",
    "epochs",
    "interrupted",
    "seed",
    "method",
    "recipe",
    "pseudo_labelled",
    "scene",
)
_EVALUATION = ("method", "recipe", "pseudo_labelled", "seed", "scene", "trained_on", "scene_shift", "claimed")
_REPEAT = ("command", "inputs", "params", "versions", "model_sha256", "labels_digest", "coverage", "reject", "unknown")


@dataclass(frozen=True)
class Baseline:
    """LDA, trained and tested on the same pixels as the model."""

    method: str
    oa: float  # percent, as `RunMetrics.oa`
    seconds: float
    oa_interval: Bounds | None = None

    @classmethod
    def from_json(cls, row: Json) -> Baseline:
        return cls(**{**row, "oa_interval": _bounds(row.get("oa_interval"))})


@dataclass(frozen=True)
class CandidateRow:
    """One candidate of ``--method auto`` in the comparison."""

    name: str  # e.g. "lda" or "convcapsnet-7-propagated"
    method: str
    description: str  # the settings in words
    outcome: str  # e.g. "chosen", "weight 0.40" (in the average), "behind after 1 of 5 folds, ...", "not run: ..."
    oa: float | None = None  # percent of the out-of-fold pixels that were compared; None: not run
    oa_interval: Bounds | None = None
    log_loss: float | None = None
    folds: int = 0  # folds that were run
    seconds: float = 0.0
    is_default: bool = False  # part of what is kept unless another candidate is clearly better

    @classmethod
    def from_json(cls, row: Json) -> CandidateRow:
        return cls(**{**row, "oa_interval": _bounds(row["oa_interval"])})


@dataclass(frozen=True)
class AreaRow:
    """Area of a class, corrected by the confusion matrix (Olofsson et al. 2014), with a 95 % interval."""

    label: int
    name: str
    mapped: float  # counted in the map
    area: float
    low: float
    high: float
    unit: str  # "ha" or "pixels"
    checked: bool  # False: no labelled pixel was mapped as this class, so that its area is not corrected


@dataclass(frozen=True)
class RunMetrics:
    """Scores of a model on a test set, and how they came about. None: unknown, or not part of an evaluation."""

    oa: float | None  # percent, as aa and kappa; None: nothing was scored (``--split none``)
    aa: float | None
    kappa: float | None
    per_class: tuple[ClassScore, ...] = ()
    confusion: list[list[int]] = field(default_factory=list)  # true class by row, predicted class by column
    confidence: ConfidenceReport | None = None  # None: not evaluated
    oa_interval: Bounds | None = None  # 95 %, with spatial units as the sample
    aa_interval: Bounds | None = None
    kappa_interval: Bounds | None = None

    n_train: int | None = None  # pixels
    n_val: int | None = None
    n_test: int = 0
    split: str | None = None  # kind
    block: int | None = None  # side of the blocks of a split by blocks, pixels
    folds: int | None = None  # number of folds of a split into folds
    units: str | None = None  # what the folds hold out as a whole: points, polygons, tiles, areas or blocks
    n_units: int | None = None
    untested: tuple[str, ...] = ()  # names of the classes that could not be held out
    within_one_area: tuple[str, ...] = ()  # of those that were tested inside of their only labelled area
    partly_seen: int = 0  # test pixels of units of which other pixels trained: of a class that is in no other unit
    distances: str | None = None  # how far from labels the test pixels are, compared with the ground to be mapped
    leakage: float | None = None  # share of test pixels with a training pixel inside their patch

    patch: int | None = None
    parameters: int = 0  # of the network
    method: str = ""
    recipe: str | None = None
    pseudo_labelled: int | None = 0  # pseudo-labelled pixels per epoch; 0: only labelled pixels were used
    seed: int | None = None
    scene: str = ""
    trained_on: str | None = None  # name of the scene that the model was trained on; of an evaluation only
    scene_shift: str | None = None  # how the scene differs from that one, in sentences; of an evaluation only
    claimed: bool | None = None  # whether accuracy and confidence of the training hold in such a scene

    train_seconds: float | None = None  # of a training only, as the following
    best_epoch: int = 0
    epochs: int = 0
    interrupted: bool = False
    both: Mapping[str, RunMetrics] | None = None  # by kind of split, random first
    baseline: Baseline | None = None  # None: not computed
    candidates: tuple[CandidateRow, ...] = ()  # of ``--method auto``
    areas: tuple[AreaRow, ...] = ()
    map_accuracy: float | None = None  # percent: user's accuracies weighted by the areas of classes in the map
    map_accuracy_interval: Bounds | None = None
    doubtful: int | None = None  # number of labels that out-of-fold predictions contradict

    command: str | None = None  # as typed
    inputs: Mapping[str, object] | None = None  # scene, labels and how they were opened: options of the command
    params: Mapping[str, object] | None = None  # parameters of the classifier that differ from their defaults
    versions: Mapping[str, str] | None = None
    model_sha256: str | None = None
    labels_digest: str | None = None
    coverage: float | None = None  # of the map
    reject: float | None = None
    unknown: float | None = None

    def to_json(self) -> dict[str, object]:
        """The record with the keys and the order of metrics.json."""
        scores = {key: getattr(self, key) for key in _SCORES}
        scores |= {"per_class": [score.to_json() for score in self.per_class], "confusion": self.confusion}
        confidence = {} if self.confidence is None else self.confidence.to_json()
        keys = _SPLIT + (_EVALUATION if self.train_seconds is None else _TRAINING)
        both = {} if self.both is None else {"both": to_json_by_split(self.both)}
        evidence = {
            "baseline": None if self.baseline is None else vars(self.baseline),
            "candidates": [vars(row) for row in self.candidates],
            "areas": [vars(row) for row in self.areas],
            "map_accuracy": self.map_accuracy,
            "map_accuracy_interval": self.map_accuracy_interval,
            "doubtful": self.doubtful,
        }
        repeat = {} if self.model_sha256 is None else {key: getattr(self, key) for key in _REPEAT}
        return {**scores, **confidence, **{key: getattr(self, key) for key in keys}, **evidence, **both, **repeat}

    @classmethod
    def from_json(cls, figures: Json) -> RunMetrics:
        """Read metrics.json; keys that an older version did not write keep their defaults."""
        given = {item.name: figures[item.name] for item in fields(cls) if item.name in figures}
        given["per_class"] = tuple(ClassScore.from_json(row) for row in figures.get("per_class", ()))
        given |= {key: _bounds(figures.get(key)) for key in _INTERVALS}
        given |= {key: tuple(figures.get(key, ())) for key in ("untested", "within_one_area")}
        given["baseline"] = Baseline.from_json(figures["baseline"]) if figures.get("baseline") else None
        given["candidates"] = tuple(CandidateRow.from_json(row) for row in figures.get("candidates", ()))
        given["areas"] = tuple(AreaRow(**row) for row in figures.get("areas", ()))
        if "reliability" in figures:
            given["confidence"] = ConfidenceReport.from_json(figures)
        if "both" in figures:
            given["both"] = {kind: cls.from_json(other) for kind, other in figures["both"].items()}
        return cls(**given)


def to_json_by_split(both: Mapping[str, RunMetrics]) -> dict[str, object]:
    return {kind: metrics.to_json() for kind, metrics in both.items()}


def _bounds(values: list[float] | None) -> Bounds | None:
    return None if values is None else (values[0], values[1])
