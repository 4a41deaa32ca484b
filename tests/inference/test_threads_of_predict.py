"""Predicting from several threads at once, and interrupting it, as docs/python.md promises."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hypercaps import ConvCapsClassifier, Labels, Scene
from support.scenes import QUICK, make_cube

CUBE, TRUTH = make_cube(rows=60, cols=60)
SCENES = [Scene.from_array(CUBE), Scene.from_array(CUBE[::-1].copy()), Scene.from_array(CUBE[:, ::-1].copy())]
LABELS = Labels.from_array(TRUTH)


@pytest.mark.parametrize("method", ["convcapsnet", "lda", "rbf-svm", "random-forest"])
def test_several_threads_give_what_one_gives(method: str) -> None:
    """The same classifier on several scenes, on one scene again, and all its methods, at once."""
    options = QUICK if method == "convcapsnet" else {}
    classifier = ConvCapsClassifier(method=method, **options).fit(SCENES[0], LABELS)  # type: ignore[arg-type]
    calls = [classifier.predict, classifier.predict_proba, classifier.lengths, classifier.familiarity]
    work = [(call, scene) for call in calls for scene in SCENES]
    expected = [call(scene) for call, scene in work]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda one: one[0](one[1]), work * 3))
    for result, right in zip(found, expected * 3, strict=True):
        np.testing.assert_array_equal(result, right)


INTERRUPTED = """
import sys, threading, time; sys.path[:0] = {paths!r}
import os, signal
import numpy as np
from hypercaps import ConvCapsClassifier
from support.scenes import make_cube
cube, labels = make_cube()
options = {{"epochs": 2}} if "{method}" == "convcapsnet" else {{}}
classifier = ConvCapsClassifier(method="{method}", train=0.4, **options).fit(cube, labels)
large = np.tile(cube, (60, 60, 1))
before = classifier.predict(cube)
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
started = time.monotonic()
try:
    classifier.predict(large)
    print("finished")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - started < 30, bool((classifier.predict(cube) == before).all()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason=f"no way to send {signal.SIGINT.name} to oneself")
@pytest.mark.parametrize("method", ["convcapsnet", "rbf-svm"])
def test_ctrl_c_ends_a_prediction_and_the_next_one_works(method: str) -> None:
    code = INTERRUPTED.format(paths=[path for path in sys.path if path], method=method)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.strip() == "interrupted True True", done.stderr
