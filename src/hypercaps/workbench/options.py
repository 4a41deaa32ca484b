"""What the user has chosen for trainings: method, recipe, split, and whether they start by themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hypercaps.io.writers.atomic import write_json
from hypercaps.models.descriptions import DESCRIPTIONS
from hypercaps.workbench.refusals import RefusedError
from hypercaps.workbench.trainings import read_json
from hypercaps.workbench.worker_messages import Settings

_FILE = "options.json"
_AUTO = "auto"
_SPLITS = {
    "folds": "Areas in turn; all labels train",
    "none": "No score; all labels train",
    "random": "Random pixels, as in the paper",
    "polygons": "Whole strokes and areas",
    "blocks": "Blocks of ground",
}


@dataclass(frozen=True)
class Options:
    """The defaults give the most accurate map that is there within seconds."""

    method: str = "convcapsnet"
    recipe: str | None = "best"
    split: str = "folds"
    auto: bool = False  # train after 2 s without a stroke

    def settings(self) -> Settings:
        return Settings(self.method, self.recipe, self.split)

    def changed(self, changes: dict[str, Any]) -> Options:
        """With what a request says; another method begins with its own recipe."""
        if changes.get("method", self.method) != self.method and "recipe" not in changes:
            changes = {**changes, "recipe": default_recipe(changes["method"])}
        options = replace(self, **changes)
        options.check()
        return options

    def check(self) -> None:
        if self.method != _AUTO and self.method not in DESCRIPTIONS:
            raise RefusedError(f"there is no method {self.method[:40]!r}")
        recipes = [] if self.method == _AUTO else list(DESCRIPTIONS[self.method].recipes)
        if self.recipe is not None and self.recipe not in recipes:
            raise RefusedError(f"method {self.method} has no recipe {self.recipe[:40]!r}")
        if self.split not in _SPLITS:
            raise RefusedError(f"there is no split {self.split[:40]!r}")

    def describe(self) -> dict[str, Any]:
        """The part ``options`` of the page's state."""
        methods = [{"id": one.name, "name": one.title} for one in DESCRIPTIONS.values()]
        recipes = [] if self.method == _AUTO else list(DESCRIPTIONS[self.method].recipes)
        return {
            "methods": [*methods, {"id": _AUTO, "name": "Compare methods (slow)"}],
            "recipes": [{"id": name, "name": name} for name in recipes],
            "splits": [{"id": name, "name": text} for name, text in _SPLITS.items()],
            "chosen": asdict(self),
        }

    def save(self, folder: Path) -> None:
        write_json(folder / _FILE, asdict(self))


def default_recipe(method: str) -> str | None:
    return DESCRIPTIONS[method].default_recipe if method in DESCRIPTIONS else None


def read_options(folder: Path) -> Options:
    """The options of a project; the defaults where they are missing or no longer known."""
    kept = read_json(folder / _FILE)
    try:
        options = Options(**kept) if isinstance(kept, dict) else Options()
        options.check()
    except (TypeError, RefusedError):
        return Options()
    return options
