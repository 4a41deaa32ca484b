"""A trained capsule network is mapped, scored and described without torch, and the other large libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning

from hypercaps import ConvCapsClassifier, Labels, Scene, load_model
from hypercaps.compute import native
from hypercaps.inference.predict import map_scores
from support.scenes import QUICK, make_cube

HEAVY = [
    "torch",
    "sklearn",
    "scipy.stats",
    "scipy.sparse",
    "matplotlib",
    "pandas",
    "dask",
    "distributed",
    "h5py",
    "zarr",
]
RUN = """
import json, sys
block, heavy, *arguments = json.loads(sys.argv[1])
if block:
    sys.modules["torch"] = None  # as if it were not installed
from hypercaps.cli import app
sys.argv = ["hypercaps", *arguments]
try:
    app()
finally:
    print(json.dumps(sorted(name for name in heavy if sys.modules.get(name) is not None)), file=sys.stderr)
"""


class Files:
    """A scene, its labels, and models of two methods."""

    def __init__(self, folder: Path) -> None:
        cube, truth = make_cube()
        self.folder, self.scene = folder, folder / "cube.npy"
        self.labels = folder / "labels.npy"
        np.save(self.scene, cube)
        np.save(self.labels, truth)
        scene, labels = Scene.from_array(cube), Labels.from_array(truth)
        for method, options in (("convcapsnet", QUICK | {"recipe": "best"}), ("lda", {})):
            ConvCapsClassifier(method=method, **options).fit(scene, labels).save(folder / f"{method}.safetensors")

    def model(self, method: str = "convcapsnet") -> Path:
        return self.folder / f"{method}.safetensors"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("without-torch"))


def run(*arguments: object, block: bool, **environment: str) -> subprocess.CompletedProcess[str]:
    given = json.dumps([block, HEAVY, *map(str, arguments)])
    settings = os.environ | {"COLUMNS": "500", "NO_COLOR": "1"} | environment
    command = [sys.executable, "-c", RUN, given]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=settings)


@pytest.mark.parametrize("block", [False, True], ids=["torch at hand", "no torch"])
@pytest.mark.parametrize("command", ["map", "evaluate", "info", "info SCENE", "suggest"])
def test_nothing_large_is_imported(files: Files, tmp_path: Path, command: str, block: bool) -> None:
    arguments: list[object] = [command.split()[0], files.model()]
    if command != "info":
        arguments.append(files.scene)
    if command == "map":
        arguments += ["--out", tmp_path / "map.tif", "--confidence", tmp_path / "sure.tif", "--threads", "1"]
        arguments += ["--familiarity", tmp_path / "familiar.tif"]
    elif command == "evaluate":
        arguments.append(files.labels)
    elif command == "suggest":
        arguments += ["--out", tmp_path / "points.csv"]
    done = run(*arguments, block=block)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == []
    if command == "map":
        model, scene = load_model(files.model()), Scene.from_array(np.load(files.scene))
        model.model_.module  # noqa: B018 - with torch, in this process
        expected = model.map(scene)
        for name, values in (("map", expected.classes), ("sure", expected.confidence)):
            with pytest.warns(NotGeoreferencedWarning), rasterio.open(tmp_path / f"{name}.tif") as raster:
                np.testing.assert_array_equal(raster.read(1), values)


def test_a_map_is_started_without_other_commands_and_without_what_draws_bars(files: Files, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from hypercaps.cli import main\n"
        f"sys.argv = ['hypercaps', 'map', {str(files.model())!r}, {str(files.scene)!r}, '--out', 'map.tif']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    loaded = {name for name in sys.modules if name.startswith('hypercaps.cli.')} | {'rich', 'psutil'}\n"
        "    print(*sorted(loaded & set(sys.modules)))\n"
    )
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True, cwd=tmp_path, env=plain
    )
    used = {"events", "map", "messages", "options", "process", "root", "values"}
    assert set(done.stdout.splitlines()[-1].split()) == {f"hypercaps.cli.{name}" for name in used}


def test_the_module_of_torch_gives_the_same_bits(files: Files) -> None:
    scene, model = Scene.from_array(np.load(files.scene)), load_model(files.model()).model_
    by_module = replace(model, network=model.module)
    np.testing.assert_array_equal(map_scores(model, scene, raw=True), map_scores(by_module, scene, raw=True))


def test_python_loads_and_applies_a_model_without_torch(files: Files) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from hypercaps import load_model, open_scene\n"
        f"model, scene = load_model({str(files.model())!r}), open_scene({str(files.scene)!r})\n"
        "print(model.predict_proba(scene).shape, model.get_params()['recipe'], 'sklearn' in sys.modules)\n"
        "try:\n"
        "    model.fit(scene, None)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[0] == "(36, 36, 3) best False", done.stderr
    assert done.stdout.splitlines()[1].startswith("training needs PyTorch"), done.stdout


REFUSALS = {
    "train": "'hypercaps train' needs PyTorch",
    "lda": "a model of method lda needs PyTorch",
    "kernels": "convcapsnet without its compiled kernels needs PyTorch",
    "device": "device 'cuda' with float32 needs PyTorch",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_needs_torch_says_so_and_writes_nothing(files: Files, tmp_path: Path, case: str) -> None:
    if case == "train":
        arguments: list[object] = ["train", files.scene, files.labels, "--out", tmp_path / "run"]
    else:
        model = files.model("lda" if case == "lda" else "convcapsnet")
        arguments = ["map", model, files.scene, "--out", tmp_path / "map.tif"]
    if case == "device":
        arguments += ["--device", "cuda"]
    done = run(*arguments, block=True, **({"HYPERCAPS_NATIVE": "off"} if case == "kernels" else {}))
    assert done.returncode == 2, done.stderr
    message = done.stderr.splitlines()[:-1]
    assert len(message) == 1 and REFUSALS[case] in message[0] and "pip install torch" in message[0], done.stderr
    assert list(tmp_path.iterdir()) == []


def test_for_programs_a_missing_torch_is_an_error_too(files: Files, tmp_path: Path) -> None:
    done = run("train", files.scene, files.labels, "--out", tmp_path / "run", "--progress", "json", block=True)
    error = json.loads(done.stderr.splitlines()[0])
    assert error["event"] == "error" and error["text"].startswith("'hypercaps train' needs PyTorch"), done.stderr


def test_a_training_imports_what_it_uses() -> None:
    code = (
        "import sys\n"
        f"sys.path[:0] = {[path for path in sys.path if path]!r}\n"
        "from hypercaps import ConvCapsClassifier, Labels, Scene\n"
        "from support.scenes import make_cube\n"
        "assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)\n"
        "cube, labels = make_cube()\n"
        "ConvCapsClassifier(epochs=1).fit(Scene.from_array(cube), Labels.from_array(labels))\n"
        "print(sorted({'torch._dynamo', 'sklearn', 'scipy.stats', 'pandas', 'matplotlib'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n", done.stdout


def test_a_run_leaves_rasterio_to_the_thread_that_imports_it_beside_the_kernels() -> None:
    code = "import sys, hypercaps.pipeline.train; print('torch' in sys.modules, 'rasterio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True False\n", done.stdout


def test_threads_that_were_chosen_before_torch_was_imported_hold_for_it() -> None:
    code = (
        "import sys\n"
        "from hypercaps.compute.devices import threads_in_use, use_threads\n"
        "use_threads(3)\n"
        "print(threads_in_use(), 'torch' in sys.modules)\n"
        "import hypercaps.models.registry, torch\n"
        "print(torch.get_num_threads(), threads_in_use())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["3 False", "3 3"]


def test_arrays_for_the_kernels_begin_at_a_cache_line() -> None:
    for shape in ((3,), (7, 5), (2, 0)):
        found = native.empty(shape)
        assert found.shape == shape and found.dtype == np.float32
        assert not found.size or found.ctypes.data % 64 == 0
