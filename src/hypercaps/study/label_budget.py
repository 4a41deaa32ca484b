"""How many labels a run had and how they were drawn; and accuracy by the number of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class LabelBudget(NamedTuple):
    """What runs must have in common to be set side by side, beside their scene."""

    share: float  # of each class's pixels; with ``per_class``, of those that lie in training blocks
    per_class: int | None = None  # training pixels of each class, in place of the share
    split: str = "random"
    block: int | None = None  # side of the blocks

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> LabelBudget:
        # 1 - 0.9 is 0.1; records of older versions know nothing but shares drawn at random.
        share, block = round(record["train_share"], 6), record.get("block")
        return cls(share, record.get("labels_per_class"), record.get("split") or "random", block)

    @property
    def as_the_paper(self) -> bool:
        """Whether the paper's figures for this share are of the same kind."""
        return self.per_class is None and self.split == "random"

    @property
    def short(self) -> str:
        text = percent(self.share) if self.per_class is None else f"{self.per_class} each"
        return f"{text}{self._by}"

    @property
    def text(self) -> str:
        labels = f"{percent(self.share)} of the labels" if self.per_class is None else f"{self.per_class} of each class"
        return f"{labels}{self._by}"

    @property
    def in_names(self) -> str:
        """For the names of files."""
        number = f"{100 * self.share:.4g}pct" if self.per_class is None else f"{self.per_class}each"
        return number if self.split == "random" else f"{number}-{self.split}{self.block or ''}"

    @property
    def order(self) -> tuple[Any, ...]:
        """Large shares first, as in the paper; then numbers of labels from the fewest; random before blocks."""
        return self.per_class is not None, -self.share, self.per_class or 0, self.split != "random", self.block or 0

    @property
    def _by(self) -> str:
        return "" if self.split == "random" else f", {self.split} of {self.block}"


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"
