"""What split to draw (`SplitRequest`), and how a split was drawn, as a model file records it (`SplitDescription`)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

from hypercaps.errors import SplitError, did_you_mean

KINDS = ("random", "polygons", "blocks", "folds", "none")
WITHOUT_TEST = ("folds", "none")  # all labelled pixels train: scores come from folds, or there is none


def check_kind(kind: str) -> None:
    """Refuse an unknown kind of split."""
    if kind not in KINDS:
        expected = f"{', '.join(KINDS[:-1])} or {KINDS[-1]} is expected{did_you_mean(kind, KINDS)}"
        raise SplitError(f"there is no split {kind!r}: {expected}")


@dataclass(frozen=True)
class SplitRequest:
    """A split to draw with :func:`draw`, e.g. ``SplitRequest("blocks", train=0.3, block=12)``.

    Parameters
    ----------
    kind : "random" draws pixels of each class, "polygons" whole polygons, "blocks" whole squares of pixels; with
        "folds" all labelled pixels train, and spatial units of them are held out in turn for the score; with "none" all
        train and there is no score
    train, val : share (0 to 1) of each class's pixels for training and validation; the rest is the test set
    per_class : number of training pixels of each class. It replaces ``train`` for random pixels and polygons; for
        blocks, ``train`` is the share of pixels in training blocks, from which ``per_class`` pixels are drawn
    block : side of the blocks in pixels, at least that of a patch; for folds, the longest side of a unit
    seed : of the random number generator
    patch : side of the patches in pixels, for which leakage is counted
    guard : width of the guard band between blocks in pixels, None for half a patch; blocks only
    at_most : largest share of a class that trains where ``per_class`` is more than that; random pixels only
    folds : number of folds, None for 5 or as many as there are units; folds only
    """

    kind: str = "random"
    train: float = 0.2
    val: float = 0.1
    per_class: int | None = None
    block: int = 16
    seed: int = 0
    patch: int = 7
    guard: int | None = None
    at_most: float = 1.0
    folds: int | None = None

    def __post_init__(self) -> None:
        check_kind(self.kind)
        train, val = self.train, self.val
        if self.uses_train and not (0 < train < 1 and 0 <= val < 1 and Fraction(str(train)) + Fraction(str(val)) < 1):
            percent = f"; {train:g} % is {train / 100:g}" if 1 <= train < 100 else ""
            raise SplitError(
                f"shares of {train} for training and {val} for validation don't work: training must be above 0, and "
                f"together they must stay below 1 so that pixels are left for the test{percent}"
            )
        if self.per_class is not None and (self.per_class < 1 or not 0 <= val < 1):
            raise SplitError(
                f"{self.per_class} training pixels per class and a validation share of {val} don't work: at least 1 "
                "pixel and a share from 0 to below 1 are expected"
            )
        self._check_folds()
        if self.kind == "blocks":
            self._check_block(max(self.guarded_patch, 2))
        elif self.kind == "folds":
            self._check_block(2)

    @property
    def uses_train(self) -> bool:
        """Whether the share ``train`` has an effect."""
        return self.kind == "blocks" or (self.per_class is None and self.kind not in WITHOUT_TEST)

    @property
    def guarded_patch(self) -> int:
        """Side of the patches that the guard band keeps apart, in pixels."""
        return self.patch if self.guard is None else 2 * self.guard + 1

    def _check_folds(self) -> None:
        if self.per_class is not None and self.kind in WITHOUT_TEST:
            raise SplitError(
                f"{self.per_class} training pixels per class and the split {self.kind!r} don't work together: all "
                "labelled pixels train with it"
            )
        if self.folds is None:
            return
        if self.kind != "folds":
            raise SplitError(
                f"a number of folds has a meaning with the split 'folds' only, and the split is {self.kind!r}: leave "
                "it out, or ask for folds"
            )
        folds = _whole(self.folds)
        if folds < 2:
            raise SplitError(
                f"the number of folds is {self.folds!r}: a whole number of 2 or more is expected, because each fold is "
                "tested by a model that was trained on the others"
            )
        object.__setattr__(self, "folds", folds)

    def _check_block(self, least: int) -> None:
        side = _whole(self.block)
        if side < least:
            patch = self.guarded_patch
            apart = f"keep patches of {patch} x {patch} apart" if self.kind == "blocks" else "be held out"
            raise SplitError(f"blocks of {self.block!r} pixels can't {apart}: give a whole number of at least {least}")
        object.__setattr__(self, "block", side)  # a plain int, for JSON


def _whole(value: object) -> int:
    """A whole number (numpy's too) as a Python int; 0 if it is none."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return 0


_TEXT = ("kind", "file", "digest", "labels", "units")


@dataclass(frozen=True)
class SplitDescription:
    """How a split was drawn and what it contains: the ``split`` part of a model file. None: not recorded."""

    kind: str = "given"  # share, per-class, polygons, blocks, folds, none, file or given
    file: str | None = None  # name of the split file
    train: float | None = None
    per_class: int | None = None
    val: float | None = None
    block: int | None = None
    guard: int | None = None
    seed: int | None = None
    at_most: float | None = None
    n_train: int | None = None  # pixels of each set
    n_val: int | None = None
    n_test: int | None = None
    leakage: float | None = None
    patch: int | None = None
    digest: str | None = None  # of the three sets
    labels: str | None = None  # digest of the labels that it was drawn from
    folds: int | None = None  # number of folds
    units: str | None = None  # kind of the units that folds hold out together: see Units

    @classmethod
    def of(cls, request: SplitRequest) -> SplitDescription:
        """The description of a split that is drawn by ``request``, without what only the drawn split can tell."""
        kind, blocks = request.kind, request.kind == "blocks"
        without_test = kind in WITHOUT_TEST
        if kind == "random":
            kind = "share" if request.per_class is None else "per-class"
        return cls(
            kind=kind,
            train=request.train if request.uses_train else None,
            per_class=request.per_class,
            val=None if without_test else request.val,
            block=request.block if blocks or kind == "folds" else None,
            guard=request.guarded_patch // 2 if blocks else None,
            seed=None if kind == "none" else request.seed,
            at_most=request.at_most if kind == "per-class" and request.at_most < 1 else None,
            folds=request.folds,
        )

    def request(self, *, patch: int) -> SplitRequest | None:
        """The request that draws this split again, with leakage counted for ``patch``; None: it was not drawn."""
        kind = self.kind_requested
        if kind not in KINDS:
            return None
        names = ("train", "val", "per_class", "block", "seed", "guard", "at_most", "folds")
        recorded = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return SplitRequest(kind, patch=patch, **recorded)

    @property
    def kind_requested(self) -> str:
        """The kind as a user names it: random for ``share`` and ``per-class``."""
        return "random" if self.kind in ("share", "per-class") else self.kind

    def to_json(self) -> dict[str, object]:
        """The keys of a model file's ``split``, without those that are not recorded."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> SplitDescription:
        """Read ``to_json``'s record; older files lack some keys, and unknown keys are ignored."""
        values: Any = {f.name: record[f.name] for f in fields(cls) if record.get(f.name) is not None}
        for name, value in values.items():
            if name != "seed" and not isinstance(value, str if name in _TEXT else (int, float)):
                raise TypeError(f"its split has the {name} {value!r}")
        return cls(**values)
