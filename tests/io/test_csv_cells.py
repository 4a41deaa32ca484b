"""A spreadsheet executes nothing of what is written, and reading restores it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypercaps.io.csv_cells import from_cell, to_cell
from hypercaps.io.writers.atomic import write_csv


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "-"])
def test_formulas_become_text(text: str) -> None:
    assert to_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["water", "", "'s-Hertogenbosch", "-0.5", "+3", "1e-3", -0.5, 7, None, "a=b"])
def test_other_values_stay(value: object) -> None:
    assert to_cell(value) == value


@given(st.text(alphabet="'=+-@\t1a .", max_size=6))
def test_reading_restores_what_was_written(text: str) -> None:
    assert from_cell(to_cell(text)) == text


def test_every_csv_is_guarded(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ("class", "=x"), [('=HYPERLINK("http://x","y")', -1.5)])
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["class", "'=x"], ['\'=HYPERLINK("http://x","y")', "-1.5"]]
