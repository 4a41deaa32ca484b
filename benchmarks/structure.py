"""Measure the structure of the source code: run by hand, ``python benchmarks/structure.py [--longest N]``.

Prints each figure beside its target: entries in the package, longest function, most parameters, loosely typed
dictionaries, isinstance tests on recipes, lines of Python.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "hypercaps"
NOT_COUNTED = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}
LOOSE = re.compile(r"\bdict\[str, Any\]|\bMapping\[str, Any\]|\*\*\w+: Any")


@dataclass(frozen=True)
class Function:
    """One function or method of the package."""

    path: Path
    name: str
    line: int
    lines: int
    parameters: int
    is_constructor: bool
    is_command: bool

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(SRC)}:{self.line} {self.name}"


def functions(path: Path) -> Iterator[Function]:
    """Every function of a module, nested ones and methods too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            yield Function(
                path=path,
                name=node.name,
                line=node.lineno,
                lines=(node.end_lineno or node.lineno) - node.lineno + 1,
                parameters=len([name for name in names if name not in ("self", "cls")]),
                is_constructor=node.name == "__init__",
                is_command=any("command(" in ast.unparse(decorator) for decorator in node.decorator_list),
            )


def tests_of_recipes(path: Path) -> int:
    """How often a module asks by isinstance what kind of recipe it has."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    asked = [ast.unparse(call.args[1]) for call in calls if ast.unparse(call.func) == "isinstance"]
    return sum("Recipe" in kind or "SelfTraining" in kind for kind in asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=3, metavar="N", help="how many of the largest to list")
    shown = parser.parse_args().longest

    files = sorted(SRC.rglob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    every = [function for path in files for function in functions(path)]
    longest = sorted(every, key=lambda function: -function.lines)
    inner = [function for function in every if not (function.is_constructor or function.is_command)]
    widest = sorted(inner, key=lambda function: -function.parameters)
    loose = {path: len(LOOSE.findall(text)) for path, text in texts.items()}
    on_recipes = sum(tests_of_recipes(path) for path in files if path.name != "recipes.py")
    entries = [path for path in SRC.iterdir() if path.name not in NOT_COUNTED]

    rows = [
        ("entries in the package", len(entries), 15),
        ("longest function, lines", longest[0].lines, 60),
        ("most parameters (constructors and commands aside)", widest[0].parameters, 8),
        ("dict[str, Any] and the like", sum(loose.values()), 25),
        ("isinstance on recipes outside models/recipes.py", on_recipes, 0),
        ("lines of Python in src", sum(text.count("\n") for text in texts.values()), 17_500),
    ]
    print(f"{'measure':52} {'today':>7} {'target':>7}")
    for name, today, target in rows:
        print(f"{name:52} {today:7,} {target:7,}{'' if today <= target else '   over'}")
    print("\nlongest functions:", *(f"  {f.lines:4} {f.place}" for f in longest[:shown]), sep="\n")
    print("\nmost parameters:", *(f"  {f.parameters:4} {f.place}" for f in widest[:shown]), sep="\n")
    most = sorted(loose.items(), key=lambda item: -item[1])[:shown]
    print("\nloosely typed:", *(f"  {number:4} {path.relative_to(SRC)}" for path, number in most), sep="\n")


if __name__ == "__main__":
    main()
