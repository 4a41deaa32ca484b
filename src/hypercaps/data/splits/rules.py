"""What a user may ask of a split, and what is said of it; shared by all ways to draw one."""

from __future__ import annotations

import warnings
from fractions import Fraction

from hypercaps.errors import DataWarning, SplitError


def floor_share(share: float, count: int) -> int:
    """floor(share * count) in exact decimal arithmetic: 0.29 of 100 is 29, not 28."""
    return int(Fraction(str(share)) * count)


def check_shares(train: float, val: float) -> None:
    if not 0 < train < 1 or not 0 <= val < 1 or Fraction(str(train)) + Fraction(str(val)) >= 1:
        raise SplitError(
            f"shares of {train} for training and {val} for validation don't work: training must be above 0, and "
            "together they must stay below 1 so that pixels are left for the test"
        )


def check_number(n: int, val: float) -> None:
    if n < 1 or not 0 <= val < 1:
        raise SplitError(
            f"{n} training pixels per class and a validation share of {val} don't work: at least 1 pixel and a "
            "share from 0 up to, but not, 1 are expected"
        )


def warn(what: str) -> None:
    warnings.warn(what, DataWarning, stacklevel=4)
