"""The journal: what was answered is there after a crash, and damage costs no more than what follows it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercaps.errors import OutputError
from hypercaps.workbench.journal import Journal
from hypercaps.workbench.refusals import status_of

pytestmark = pytest.mark.usefixtures("without_waiting_for_the_disk")
ENTRIES = [{"op": "stroke", "id": str(number), "text": "ü\n"} for number in range(5)]


@pytest.fixture(scope="module")
def without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def filled(path: Path) -> bytes:
    journal = Journal(path)
    for entry in ENTRIES:
        journal.append(entry)
    journal.close()
    return path.read_bytes()


def reopened(path: Path) -> Journal:
    journal = Journal(path)
    journal.close()
    return journal


def test_entries_are_found_again(tmp_path: Path) -> None:
    filled(tmp_path / "j")
    journal = reopened(tmp_path / "j")
    assert journal.entries == ENTRIES
    assert journal.lost is None


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(min_value=0))
def test_a_line_that_was_cut_off_is_dropped(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "j"
    content = filled(path)
    cut %= len(content) + 1
    path.write_bytes(content[:cut])
    journal = Journal(path)
    complete = content[:cut].count(b"\n")
    assert journal.entries == ENTRIES[:complete]
    assert journal.lost is None
    journal.append({"op": "new"})
    journal.close()
    assert reopened(path).entries == [*ENTRIES[:complete], {"op": "new"}]


@settings(max_examples=60, deadline=None)
@given(place=st.integers(min_value=0), value=st.integers(min_value=1, max_value=255))
def test_damage_in_the_middle_costs_only_what_follows(
    place: int, value: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damage") / "j"
    content = filled(path)
    place %= len(content)
    damaged = bytearray(content)
    damaged[place] ^= value
    path.write_bytes(damaged)
    journal = reopened(path)
    before = content[:place].count(b"\n")
    assert journal.entries[:before] == ENTRIES[:before]
    assert len(journal.entries) <= max(before, len(ENTRIES))
    if journal.lost is not None:
        aside = path.with_name("j.damaged-1").read_bytes()
        assert path.read_bytes() + aside == bytes(damaged)
        assert f"{len(journal.entries)} changes" in journal.lost


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = filled(tmp_path / "j")
    journal = Journal(tmp_path / "j")
    write = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OutputError, match="disk is full") as caught:
            journal.append({"op": "lost"})
    assert status_of(caught.value) == 507
    assert (tmp_path / "j").read_bytes() == content
    journal.append({"op": "kept"})
    journal.close()
    assert reopened(tmp_path / "j").entries == [*ENTRIES, {"op": "kept"}]
