"""Parts of the site that ``make docs`` builds, without building it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).parents[1] / "docs" / "_ext"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (":ivar scores_: Accuracy.", r":ivar scores\_: Accuracy."),
        ("   :vartype n_features_in_: int", r"   :vartype n_features_in\_: int"),
        (":param train: Share of ``scores_:``", ":param train: Share of ``scores_:``"),
    ],
)
def test_names_of_fitted_attributes_keep_their_last_underscore(line: str, expected: str) -> None:
    spec = importlib.util.spec_from_file_location("fitted_attributes", EXTENSIONS / "fitted_attributes.py")
    assert spec is not None and spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    assert extension.escaped(line) == expected
