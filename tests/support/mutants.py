"""Damaged files: made from a sound one, and read in another process, which may die of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hypercaps.data.scene import Scene
from hypercaps.errors import DataWarning, HypercapsError, SceneError
from hypercaps.io.open import open_scene
from hypercaps.io.readers import hdf5


def mutants(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Contents with one to four bits flipped or bytes changed, every fourth with its end cut off as well."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        raw = bytearray(whole)
        for place in rng.integers(0, len(raw), rng.integers(1, 5)):
            raw[place] = raw[place] ^ 1 << int(rng.integers(8)) if number % 2 else int(rng.integers(256))
        yield bytes(raw[: rng.integers(len(raw))] if number % 4 == 3 else raw)


def outcome(path: Path, sound: Scene) -> str:
    """What comes of opening and reading a damaged copy of ``sound``.

    Numbers are 'same' if all that are said to be valid are those of the sound scene; 'told' if the user was warned of
    something else than with the sound one and sees other bands; 'wrong' is what must never be.
    """
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", DataWarning)
            scene = open_scene(path)
        rows, cols = (slice(0, min(one, other)) for one, other in zip(scene.shape, sound.shape[:2], strict=False))
        pixels, expected = scene.read(rows, cols), sound.read(rows, cols)
    except HypercapsError:
        return "refused"
    if scene.bands != sound.bands:
        return "told" if told else "wrong"
    is_right = (pixels.values == expected.values).all(axis=2) & expected.valid
    return "same" if is_right[pixels.valid].all() else "wrong"


def outcomes(sound: Path, count: int, seed: int = 0) -> list[str]:
    """The outcome of damaged copies of ``sound``, read by another process without the guard against its dying.

    Those that it does die of, if any, must be refused by the guard, and count as refused.
    """
    paths = [sound.with_stem(f"{sound.stem}{number}") for number in range(count)]
    for path, content in zip(paths, mutants(sound.read_bytes(), count, seed), strict=True):
        path.write_bytes(content)
    found: list[str] = []
    while rest := paths[len(found) :]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from support.mutants import main; main()"
        asked = json.dumps([str(sound), *map(str, rest)])
        done = subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True, text=True, timeout=250)
        found += done.stdout.split()
        if len(found) < count:
            assert done.returncode < 0, done.stderr
            with pytest.raises(SceneError, match="HDF5 itself breaks"):
                open_scene(paths[len(found)])
            found.append("refused")
    return found


def main() -> None:
    hdf5._is_survived = lambda path: True
    sound, *rest = json.load(sys.stdin)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        scene = open_scene(sound)
    for path in rest:
        signal.alarm(10)  # a hang ends it too
        print(outcome(Path(path), scene), flush=True)  # noqa: T201
