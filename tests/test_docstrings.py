"""Runs the examples of the public classes and functions, and checks that each has one."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import hypercaps
from hypercaps.sklearn import PixelClassifier


def with_examples() -> Iterator[tuple[str, object]]:
    """All public names and, of the classes, the methods that make one."""
    yield "PixelClassifier", PixelClassifier
    for name in hypercaps.__all__:
        member = getattr(hypercaps, name)
        yield name, member
        if inspect.isclass(member):
            makers = (part for part, kind in vars(member).items() if isinstance(kind, classmethod))
            yield from ((f"{name}.{part}", getattr(member, part)) for part in makers if not part.startswith("_"))
    yield "Scene.read", hypercaps.Scene.read
    yield "ClassMap.to_xarray", hypercaps.ClassMap.to_xarray


@pytest.mark.parametrize(("name", "member"), list(with_examples()))
def test_the_example_of_a_public_name_runs(
    name: str, member: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(member, name, globs={})
    assert test.examples, f"{name} has no example"
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
