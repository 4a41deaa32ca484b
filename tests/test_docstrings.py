"""Runs the examples of the public classes and functions, and checks that each has one, and describes its parameters."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hypercaps
from hypercaps.sklearn import PixelClassifier
from hypercaps.training.checkpoint_file import CheckpointFile

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
ON_PAGE = re.findall(r"^\.\. auto\w+:: hypercaps\.(.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
OTHERS = {"sklearn.PixelClassifier": PixelClassifier, "training.checkpoint_file.CheckpointFile": CheckpointFile}


def with_examples() -> Iterator[tuple[str, object]]:
    """All public names and, of the classes, the methods that make one."""
    yield "PixelClassifier", PixelClassifier
    yield "CheckpointFile", CheckpointFile
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
    assert not any(doctest.SKIP in example.options for example in test.examples)
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_every_public_name_is_in_the_reference() -> None:
    assert sorted(ON_PAGE) == sorted([*hypercaps.__all__, *OTHERS, "errors"])


CALLED_BY_FIT = ("SceneCache", "training.checkpoint_file.CheckpointFile")  # their methods are not for users


def described() -> Iterator[tuple[str, object]]:
    """The functions, classes and public methods of the reference."""
    for name in sorted({*hypercaps.__all__, *OTHERS}):
        member = OTHERS[name] if name in OTHERS else getattr(hypercaps, name)
        if not (inspect.isclass(member) and issubclass(member, Exception)):
            yield name, member
        if inspect.isclass(member) and name not in (
            "SceneCache",
            *list(OTHERS)[1:],
        ):  # of these, ``fit`` calls the rest
            public = (part for part in dir(member) if not part.startswith("_"))
            methods = ((part, getattr(member, part)) for part in public)
            ours = ((part, method) for part, method in methods if "hypercaps" in getattr(method, "__module__", ""))
            yield from ((f"{name}.{part}", method) for part, method in ours if callable(method))


@pytest.mark.parametrize(("name", "member"), list(described()))
def test_every_parameter_is_described(name: str, member: object) -> None:
    parameters = {part.lstrip("*") for part in inspect.signature(member).parameters if part not in ("self", "cls")}  # type: ignore[arg-type]
    text = inspect.getdoc(member) or ""
    assert text
    _, _, listed = text.partition("Parameters\n----------\n")
    names = {word for line in listed.splitlines() if not line.startswith(" ") for word in re.findall(r"\w+", line)}
    assert {part for part in parameters if not part.startswith("_")} <= names, name
