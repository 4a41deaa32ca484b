"""How the QGIS plugin runs hypercaps: lines of progress, messages, failures, cancel. Python stands in for hypercaps."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypercaps_qgis import runner
from hypercaps_qgis.commands import CommandError
from hypercaps_qgis.events import Event, parse_event
from hypercaps_qgis.runner import CancelledError, Outcome, run_command


def run(code: str, is_cancelled: Callable[[], bool] = lambda: False) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    header = "import json, sys, time\ndef say(**event): print(json.dumps(event), file=sys.stderr, flush=True)\n"
    return run_command([sys.executable, "-c", header + code], os.environ, events.append, is_cancelled), events


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        (
            {"event": "progress", "stage": "training", "done": 1, "total": 4, "seconds_left": 150, "text": "epoch 1/4"},
            Event("progress", "training: epoch 1/4, about 2 min left", stage="training", percent=25.0),
        ),
        (
            {"event": "progress", "stage": "downloading", "done": 5, "total": 0, "seconds_left": None, "text": ""},
            Event("progress", "downloading", stage="downloading"),
        ),
        ({"event": "message", "level": "warning", "text": "no CRS"}, Event("message", "no CRS", level="warning")),
        ({"event": "error", "text": "no file"}, Event("error", "no file")),
        ({"event": "result", "files": {"json": "/a"}}, Event("result", files={"json": "/a"})),
        ({"event": "of a later version"}, None),
    ],
)
def test_a_line_is_an_event(fields: dict[str, object], event: Event | None) -> None:
    assert parse_event(json.dumps(fields)) == event


@pytest.mark.parametrize("line", ["CUDA is not available", "[1, 2]", '{"no": "event"}', "{"])
def test_a_line_that_is_no_event_is_a_message(line: str) -> None:
    assert parse_event(line + "\n") == Event("message", line)


def test_output_comes_in_order_and_the_result_at_the_end() -> None:
    outcome, events = run(
        """
say(event="progress", stage="training", done=1, total=2, seconds_left=None, text="")
print("OA 91.0 % \u2014 done")
say(event="message", level="warning", text="few labels")
say(event="result", files={"classes": "/map.tif"}, scores={"oa": 91.0})
"""
    )
    assert outcome == Outcome({"classes": "/map.tif"}, {"oa": 91.0})
    on_stderr = [(event.kind, event.text) for event in events if not event.text.startswith("OA")]
    assert on_stderr == [("progress", "training"), ("message", "few labels")]
    assert [event.text for event in events if event.text.startswith("OA")] == ["OA 91.0 % — done"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("say(event='error', text='there is no file'); sys.exit(2)", "there is no file"),
        ("sys.exit('Traceback: a bug')", "hypercaps ended with code 1: Traceback: a bug"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 often means that memory ran out"),
        ("print('\\u2502 No such option: --progress', file=sys.stderr); sys.exit(2)", "install the current one"),
    ],
)
def test_a_failure_is_a_sentence(code: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(code)


def test_a_program_that_can_not_run_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="can't be run"):
        run_command([str(tmp_path / "hypercaps")], os.environ, lambda event: None, lambda: False)


STUBBORN = """
import signal
asked = []
def note(number, frame):
    asked.append(number)
    open({path!r}, "a").write("x")
    if len(asked) == {times}:
        sys.exit(130)
signal.signal(signal.SIGTERM, note)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("times", [1, 2])
def test_cancel_ends_the_process_and_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(runner, "_ASK_AGAIN", 0.3)
    events: list[Event] = []
    code = "import sys, time\n" + STUBBORN.format(path=str(tmp_path / "asked"), times=times)
    with pytest.raises(CancelledError):
        run_command([sys.executable, "-c", code], os.environ, events.append, lambda: bool(events))
    assert (tmp_path / "asked").read_text() == "x" * times


def test_a_process_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_ASK_AGAIN", 0.1)
    monkeypatch.setattr(runner, "_KILL_AFTER", 0.5)
    events: list[Event] = []
    code = "import sys, time\n" + STUBBORN.format(path=str(tmp_path / "asked"), times=10**6)
    started = time.monotonic()
    with pytest.raises(CancelledError):
        run_command([sys.executable, "-c", code], os.environ, events.append, lambda: bool(events))
    assert time.monotonic() - started < 60


def test_nothing_is_left_running_if_the_caller_fails(tmp_path: Path) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError(event.text)

    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(RuntimeError) as failure:
        run_command([sys.executable, "-c", code], os.environ, fail, lambda: False)
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(failure.value)), 0)
