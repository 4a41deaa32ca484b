"""RunMetrics: what metrics.json and ``evaluate --json`` hold, as a typed record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from hypercaps.inference.metrics import ClassScore, ConfidenceReport, Json

# Keys in the order in which they are written, after those of the scores.
_SPLIT = ("n_train", "n_val", "n_test", "split", "block", "leakage", "patch", "parameters")
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
_EVALUATION = ("method", "recipe", "pseudo_labelled", "seed", "scene", "trained_on")
_REPEAT = ("command", "params", "versions", "model_sha256", "labels_digest", "coverage", "reject")


@dataclass(frozen=True)
class RunMetrics:
    """Scores of a model on a test set, and how they came about. None: unknown, or not part of an evaluation."""

    oa: float  # percent, as aa and kappa
    aa: float
    kappa: float
    per_class: tuple[ClassScore, ...] = ()
    confusion: list[list[int]] = field(default_factory=list)  # true class by row, predicted class by column
    confidence: ConfidenceReport | None = None  # None: not evaluated

    n_train: int | None = None  # pixels
    n_val: int | None = None
    n_test: int = 0
    split: str | None = None  # kind
    block: int | None = None  # side of the blocks of a split by blocks, pixels
    leakage: float | None = None  # share of test pixels with a training pixel inside their patch

    patch: int | None = None
    parameters: int = 0  # of the network
    method: str = ""
    recipe: str | None = None
    pseudo_labelled: int | None = 0  # pseudo-labelled pixels per epoch; 0: only labelled pixels were used
    seed: int | None = None
    scene: str = ""
    trained_on: str | None = None  # name of the scene that the model was trained on; of an evaluation only

    train_seconds: float | None = None  # of a training only, as the following
    best_epoch: int = 0
    epochs: int = 0
    interrupted: bool = False
    both: Mapping[str, RunMetrics] | None = None  # by kind of split, random first

    command: str | None = None  # as typed
    params: Mapping[str, object] | None = None  # parameters of the classifier that differ from their defaults
    versions: Mapping[str, str] | None = None
    model_sha256: str | None = None
    labels_digest: str | None = None
    coverage: float | None = None  # of the map
    reject: float | None = None

    def to_json(self) -> dict[str, object]:
        """The record with the keys and the order of metrics.json."""
        scores = {key: getattr(self, key) for key in ("oa", "aa", "kappa")}
        scores |= {"per_class": [vars(score) for score in self.per_class], "confusion": self.confusion}
        confidence = {} if self.confidence is None else self.confidence.to_json()
        keys = _SPLIT + (_EVALUATION if self.train_seconds is None else _TRAINING)
        both = {} if self.both is None else {"both": to_json_by_split(self.both)}
        repeat = {} if self.model_sha256 is None else {key: getattr(self, key) for key in _REPEAT}
        return {**scores, **confidence, **{key: getattr(self, key) for key in keys}, **both, **repeat}

    @classmethod
    def from_json(cls, figures: Json) -> RunMetrics:
        """Read metrics.json; keys that an older version did not write keep their defaults."""
        given = {item.name: figures[item.name] for item in fields(cls) if item.name in figures}
        given["per_class"] = tuple(ClassScore(**row) for row in figures.get("per_class", ()))
        if "reliability" in figures:
            given["confidence"] = ConfidenceReport.from_json(figures)
        if "both" in figures:
            given["both"] = {kind: cls.from_json(other) for kind, other in figures["both"].items()}
        return cls(**given)


def to_json_by_split(both: Mapping[str, RunMetrics]) -> dict[str, object]:
    return {kind: metrics.to_json() for kind, metrics in both.items()}
