"""Import a script of benchmarks/, which is no package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def benchmark_script(name: str) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(ROOT / "benchmarks")  # scripts import each other
        monkeypatch.setitem(sys.modules, name, module)  # dataclasses look for it there
        spec.loader.exec_module(module)
        yield module
