"""What is recorded of a training: its epochs, and how the network was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class EpochRecord(NamedTuple):
    """One line of a training's history."""

    epoch: int  # from 1, counted on over all stages
    loss: float  # mean over the training pixels, while the weights changed
    val_oa: float | None  # overall accuracy of the validation pixels in percent; None without any
    seconds: float  # of this epoch, validation included
    stage: int = 1  # 2: the second network of recipe ``best``


@dataclass(frozen=True)
class History(Sequence[EpochRecord]):
    """The epochs of a training, as a sequence, and which of them was kept."""

    records: tuple[EpochRecord, ...]
    best_epoch: int  # whose weights were kept
    seconds: float
    interrupted: bool  # the user stopped it, and the best epoch so far was kept

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    @property
    def best(self) -> EpochRecord:
        """The epoch whose weights were kept."""
        return next(record for record in self.records if record.epoch == self.best_epoch)


@dataclass(frozen=True)
class Overrides:
    """Settings that the user gave in place of the recipe's; None: the recipe's own."""

    epochs: int | None = None
    batch_size: int | None = None


# The entries that a model file may lack, by their types in JSON
_KINDS = dict.fromkeys(("epochs", "batch_size", "second_epochs", "extra", "seed", "best_epoch"), int) | {
    "name": str,
    "optimizer": str,
    "whitening": str,
    "learning_rate": int | float,
}


@dataclass(frozen=True)
class TrainingRecord:
    """How a network was trained, as the model file keeps it. None: does not apply, or an older file lacks it."""

    name: str | None = None  # of the recipe
    epochs: int | None = None  # planned; of the first stage for recipe ``best``
    batch_size: int | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    overrides: Overrides | None = None
    second_epochs: int | None = None  # of recipe ``best``; 0: the network of the first stage was kept
    extra: int | None = None  # pseudo-labelled pixels in each epoch of the second stage
    seed: int | None = None
    best_epoch: int | None = None
    whitening: str | None = None  # plain, damped or robust, if the user or a comparison chose one
    other: Mapping[str, object] = field(default_factory=dict)  # entries that this version does not use

    def to_json(self) -> dict[str, object]:
        """The record as a JSON object, without the entries that do not apply."""
        values = {"asked" if name == "overrides" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if name != "other" and value is not None} | dict(
            self.other
        )

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> TrainingRecord:
        """The record of a model file of any version; raises TypeError for an entry of another type."""
        read = {name: _entry(values, name, kind) for name, kind in _KINDS.items()}
        other = {name: value for name, value in values.items() if name not in (*_KINDS, "asked")}
        if "asked" not in values:
            return cls(**read, other=other)
        overridden = values["asked"]
        if not isinstance(overridden, dict):
            raise TypeError(f"its recipe has asked {overridden!r}, not an object")
        overrides = Overrides(_entry(overridden, "epochs", int), _entry(overridden, "batch_size", int))
        return cls(**read, overrides=overrides, other=other)

    @property
    def user_overrides(self) -> Overrides:
        """What the user set; older files do not distinguish it from the recipe's own settings."""
        return Overrides(self.epochs, self.batch_size) if self.overrides is None else self.overrides


def _entry(values: Mapping[str, object], name: str, kind: Any) -> Any:
    value = values.get(name)
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"its recipe has {name} {value!r}")
    return value
