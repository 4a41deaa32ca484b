"""Records of runs: their JSON can be read, also that of older versions, and is written with the same keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hypercaps.study.folder import StudyFolder, StudyLog
from hypercaps.study.records import FailedRun, FinishedRun, read_record

PUBLISHED = json.loads((Path(__file__).parents[2] / "docs" / "results" / "results.json").read_text(encoding="utf-8"))
NEW_KEYS = {"split": "random", "block": None, "guard": None, "labels_per_class": None, "history": []}


def test_the_published_results_are_read_and_written_unchanged() -> None:
    for document in PUBLISHED:
        record = read_record(document)
        assert isinstance(record, FinishedRun)
        assert json.loads(json.dumps(record.to_json())) == NEW_KEYS | document


def test_a_record_file_has_a_line_for_each_field(tmp_path: Path) -> None:
    record = replace(read_record(PUBLISHED[0]), history=((1.0, None), (0.5, 90.0)))
    (tmp_path / "runs").mkdir()
    StudyFolder(tmp_path).keep(record)
    assert StudyFolder(tmp_path).records() == [record]
    lines = (tmp_path / "runs" / f"{record.key}.json").read_text().splitlines()
    assert len(lines) == len(record.to_json()) + 1  # braces, and no key
    assert '  "history": [[1.0, null], [0.5, 90.0]],' in lines


def test_a_failed_run_has_the_keys_of_a_finished_one() -> None:
    finished = read_record(PUBLISHED[0])
    setting = {key: PUBLISHED[0][key] for key in ("scene", "method", "recipe", "train_share", "seed")}
    failed = read_record(setting | {"error": "not enough memory"})
    assert isinstance(failed, FailedRun) and failed.error == "not enough memory"
    assert failed.to_json().keys() == finished.to_json().keys() and failed.to_json()["oa"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"oa": None}, {"oa": True}, {"oa": float("inf")}, {"seed": 0.5}, {"scene": 3}, {"epochs": "1"},
        {"per_class": [{"label": 1}]}, {"history": [[1.0]]}, {"changed": []}, {"versions": {"torch": 2}},
    ],
)  # fmt: skip
def test_a_record_with_a_wrong_value_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_record(PUBLISHED[0] | change)


@pytest.mark.parametrize("text", ["", "[]", '{"title": 3}', '{"missing": []}'])
def test_a_damaged_study_log_counts_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    assert StudyFolder(tmp_path).log() == StudyLog()
