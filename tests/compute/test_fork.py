"""A forked process can use a model that its parent has used."""

from __future__ import annotations

import subprocess
import sys

import pytest

# OpenMP's threads of the parent are missing in the child, and torch waited for them forever.
SCRIPT = """
import multiprocessing, sys
import torch
from hypercaps import ConvCapsClassifier, Labels, Scene
from hypercaps.compute.devices import threads_in_use
from support.scenes import make_cube

torch.set_num_threads(2)
cube, gt = make_cube()
scene, labels = Scene.from_array(cube), Labels.from_array(gt)
options = {"epochs": 1} if sys.argv[1] == "convcapsnet" else {}
model = ConvCapsClassifier(method=sys.argv[1], split_by="random", **options).fit(scene, labels)
expected = model.predict(scene)

def predict(queue):
    queue.put((threads_in_use(), bool((model.predict(scene) == expected).all())))

context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=predict, args=(queue,))
child.start()
child.join(60)
if child.is_alive():
    child.kill()
    sys.exit("the child hangs")
print(queue.get(timeout=10), threads_in_use())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("method", ["convcapsnet", "rbf-svm"])
def test_a_forked_process_predicts_on_one_thread(method: str) -> None:
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:0] = {paths!r}\n{SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", code, method], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, True) 2" and "Leaking" not in done.stderr
