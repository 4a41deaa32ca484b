"""Progress of fit and predict: in a notebook and a terminal, and nothing in a script unless asked."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.inference import shown_progress
from hypercaps.inference.shown_progress import (
    LinesView,
    NotebookView,
    ShownProgress,
    TerminalView,
    find_view,
)
from support.scenes import QUICK, make_cube

CUBE, TRUTH = make_cube()
SCENE, LABELS = Scene.from_array(CUBE), Labels.from_array(TRUTH)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are shown from their beginning."""
    monkeypatch.setattr(shown_progress, "_PATIENCE", 0.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook:
    """What IPython shows: every display and update."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Notebook:
        assert raw and display_id
        self.shown.append(content)
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """As if this process were a kernel of Jupyter."""
    found, ipython, display = Notebook(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def session(monkeypatch: pytest.MonkeyPatch, stream: Any) -> Any:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_notebook_shows_a_bar_and_then_a_line(notebook: Notebook) -> None:
    classifier = ConvCapsClassifier(**QUICK, recipe="paper").fit(SCENE, LABELS)  # type: ignore[arg-type]
    texts = [content["text/html"] for content in notebook.shown]
    assert any("training <progress" in text and "epoch 1/8" in text for text in texts)
    assert any("classifying <progress" in text for text in texts)
    assert "<progress" not in texts[-1] and "fit: " in texts[-1]
    notebook.shown.clear()
    classifier.predict(SCENE)
    assert "predict: " in notebook.shown[-1]["text/plain"]
    notebook.shown.clear()
    classifier.predict(SCENE, progress=False)
    classifier.fit(SCENE, LABELS, progress=False)
    assert notebook.shown == []


def test_a_short_call_shows_nothing_unless_asked(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a loop of predictions would fill the page with lines."""
    monkeypatch.setattr(shown_progress, "_PATIENCE", 60.0)
    for asked, is_shown in ((None, False), (True, True)):
        with ShownProgress("map", asked) as shown:
            shown.mapping(10, 10)
        assert bool(notebook.shown) == is_shown


def test_folds_are_shown_too(notebook: Notebook) -> None:
    ConvCapsClassifier(method="lda", split_by="folds", folds=2).fit(SCENE, LABELS)
    assert any("comparing" in content["text/plain"] for content in notebook.shown)


def test_a_session_on_a_terminal_shows_one_line_and_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = session(monkeypatch, Terminal())
    ConvCapsClassifier(method="lda").fit(SCENE, LABELS).predict(SCENE)
    assert "classifying [####" in stream.getvalue() and "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_session_whose_output_goes_to_a_file_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = session(monkeypatch, io.StringIO())
    ConvCapsClassifier(method="lda").fit(SCENE, LABELS).predict(SCENE)
    assert stream.getvalue() == ""


SCRIPT = """
import sys; sys.path[:0] = {paths!r}
from hypercaps import ConvCapsClassifier
from support.scenes import make_cube
cube, labels = make_cube()
ConvCapsClassifier(method="lda").fit(cube, labels, progress={asked}).predict(cube, progress={asked})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize("asked", [None, True])
def test_a_script_on_a_terminal_shows_nothing_unless_asked(asked: bool | None) -> None:
    ours, theirs = pty.openpty()
    code = SCRIPT.format(paths=[path for path in sys.path if path], asked=asked)
    done = subprocess.run([sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, timeout=120, check=False)
    os.write(theirs, b"end")
    written = b""
    while not written.endswith(b"end"):
        written += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0 and done.stdout == b""
    assert (b"classifying [" in written) == bool(asked) and (asked or written == b"end")


def test_a_script_that_asks_gets_lines_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("hypercaps.inference.shown_progress._EVERY", 0.0)  # how fast the machine is must not matter
    assert find_view(None) is None and isinstance(find_view(True), LinesView)
    ConvCapsClassifier(**QUICK, recipe="paper").fit(SCENE, LABELS, progress=True)  # type: ignore[arg-type]
    lines = stream.getvalue().splitlines()
    assert lines[-1].startswith("fit: ") and 8 <= len(lines) <= 30 and "\x1b" not in stream.getvalue()


def test_the_callers_own_function_replaces_the_bar(notebook: Notebook) -> None:
    calls: list[tuple[int, int]] = []
    classifier = ConvCapsClassifier(method="lda").fit(SCENE, LABELS, progress=False)
    classifier.map(SCENE, on_progress=lambda done, total: calls.append((done, total)))
    assert calls and notebook.shown == []
    calls.clear()
    classifier.map(SCENE, on_progress=lambda done, total: calls.append((done, total)), progress=True)
    assert calls and notebook.shown


def test_an_interrupted_call_says_so_and_the_next_one_works(notebook: Notebook) -> None:
    classifier = ConvCapsClassifier(method="lda").fit(SCENE, LABELS, progress=False)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        classifier.map(SCENE, on_progress=stop, progress=True)
    assert notebook.shown[-1]["text/plain"].endswith("(stopped)")
    assert classifier.predict(SCENE).all()


def test_updates_are_not_more_frequent_than_an_eye_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = session(monkeypatch, Terminal())
    with ShownProgress("map", None) as shown:
        for done in range(1000):
            shown.mapping(done, 1000)
    assert stream.getvalue().count("\r") < 20


def test_texts_are_escaped() -> None:
    found = Notebook()
    NotebookView(found.display).update("<b>", 0.5, "a < b")
    assert "&lt;b&gt;" in found.shown[0]["text/html"] and "a &lt; b" in found.shown[0]["text/html"]
    stream = Terminal()
    TerminalView(stream).update("training", 1, "x" * 200)
    assert len(stream.getvalue()) < 110
