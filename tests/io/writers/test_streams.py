"""Outputs that are pipes and devices."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hypercaps.errors import OutputError
from hypercaps.io.writers.streams import check_stream, is_stream, write_stream


def test_pipes_and_devices_are_streams(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "file").touch()
    assert all(is_stream(path) for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/null")))
    assert not any(is_stream(tmp_path / name) for name in (".", "file", "nowhere"))


def test_a_pipe_gets_everything(tmp_path: Path) -> None:
    pipe, content = tmp_path / "pipe", os.urandom(300_000)  # more than a pipe holds at once
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    check_stream(pipe)
    write_stream(pipe, content)
    reader.join()
    assert received == [content] and pipe.is_fifo()


def test_a_device_that_is_full() -> None:
    with pytest.raises(OutputError, match="/dev/full can't be written: the disk is full"):
        write_stream(Path("/dev/full"), b"1")
