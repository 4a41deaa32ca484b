"""How many labels a run was trained on, and how they were drawn."""

from __future__ import annotations

from typing import NamedTuple

from hypercaps.study.records import RunRecord


class LabelBudget(NamedTuple):
    """What runs on a scene must have in common to be compared."""

    share: float  # of each class's pixels; with ``per_class``, of the pixels in training blocks
    per_class: int | None = None  # number of training pixels of each class, instead of the share
    split: str = "random"
    block: int | None = None  # side of the blocks, pixels

    @classmethod
    def of(cls, record: RunRecord) -> LabelBudget:
        # Rounded, so that 1 - 0.9 equals 0.1.
        return cls(round(record.train_share, 6), record.labels_per_class, record.split, record.block)

    @property
    def is_in_paper(self) -> bool:
        """Whether labels were drawn as in the paper: a share of each class, at random."""
        return self.per_class is None and self.split == "random"

    @property
    def short(self) -> str:
        text = percent(self.share) if self.per_class is None else f"{self.per_class} per class"
        return text + self._split_text

    @property
    def text(self) -> str:
        per_class = f"{self.per_class} labels per class"
        labels = f"{percent(self.share)} of the labels" if self.per_class is None else per_class
        return labels + self._split_text

    @property
    def file_name(self) -> str:
        """The budget as part of a file name."""
        number = f"{100 * self.share:.4g}pct" if self.per_class is None else f"{self.per_class}each"
        return number if self.split == "random" else f"{number}-{self.split}{self.block or ''}"

    @property
    def order(self) -> tuple[bool, float, int, bool, int]:
        """Sort key: large shares first, as in the paper; then few labels per class first; random before blocks."""
        return self.per_class is not None, -self.share, self.per_class or 0, self.split != "random", self.block or 0

    @property
    def _split_text(self) -> str:
        return "" if self.split == "random" else f", {self.split} of {self.block}"


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"
