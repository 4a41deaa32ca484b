"""What a study consists of: methods x scenes x label shares x seeds, from a TOML file or a built-in one."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from hypercaps.errors import CatalogError, StudyError
from hypercaps.io import catalog
from hypercaps.models.registry import get_method

_STUDY_KEYS = {
    "title", "about", "scenes", "train_shares", "val_share", "repeats", "methods", "splits", "block", "guard",
    "per_class",
}  # fmt: skip
_METHOD_KEYS = {"recipe", "epochs", "batch_size", "structure", "repeats", "train_shares"}
T = TypeVar("T")


@dataclass(frozen=True)
class ScenePlace:
    """Where a scene of a study comes from: the catalogue, or files."""

    name: str
    cube: str  # what open_scene takes
    labels: str  # what open_labels takes
    class_field: str | None = None  # likewise


@dataclass(frozen=True)
class MethodPlan:
    """A method of a study and what is changed from its recipe."""

    name: str
    recipe: str  # one of the method's
    epochs: int | None = None
    batch_size: int | None = None
    structure: Mapping[str, Any] = field(default_factory=dict)
    repeats: int | None = None  # None: the study's
    train_shares: tuple[float, ...] | None = None  # None: the study's


@dataclass(frozen=True)
class Setting:
    """One run of a study; all that its result depends on."""

    scene: ScenePlace
    method: MethodPlan
    train_share: float
    val_share: float
    seed: int
    split: str = "random"  # or "blocks"
    block: int | None = None  # side of the blocks
    guard: int | None = None  # pixels between the blocks' sets; None: half of the method's patch
    per_class: int | None = None  # training pixels of each class, in place of the share

    @property
    def key(self) -> str:
        """A name for its files: readable, and different for every setting."""
        plan = self.method
        recipe = get_method(plan.name).recipe(plan.recipe).describe()
        changed = [recipe, plan.epochs, plan.batch_size, dict(plan.structure), self.val_share]
        if self.guard is not None or (self.per_class is not None and self.split == "blocks"):
            changed += [self.guard, self.train_share]
        changes = json.dumps(changed, sort_keys=True)
        mark = hashlib.sha256(changes.encode()).hexdigest()[:6]
        amount = (
            f"{100 * self.train_share:g}pct".replace(".", "p") if self.per_class is None else f"{self.per_class}each"
        )
        if self.split != "random":
            amount += f"_{self.split}{self.block}"
        return f"{self.scene.name}_{plan.name}_{plan.recipe}_{amount}_seed{self.seed:02d}_{mark}"


@dataclass(frozen=True)
class Study:
    """Methods x scenes x label shares x seeds."""

    name: str
    title: str
    about: str
    scenes: tuple[ScenePlace, ...]
    methods: tuple[MethodPlan, ...]
    train_shares: tuple[float, ...]
    val_share: float
    repeats: int
    splits: tuple[str, ...] = ("random",)
    block: int = 16
    guard: int | None = None
    per_class: tuple[int, ...] = ()  # if any, in place of the shares

    def settings(self) -> list[Setting]:
        """All runs, seed after seed, so that a study that is cut short has as much of every method."""
        most = max((plan.repeats or self.repeats for plan in self.methods), default=0)
        return [
            Setting(scene, plan, share, self.val_share, seed, split, *self._ground(split), n)
            for seed in range(most)
            for scene in self.scenes
            for split in self.splits
            for n in self.per_class or (None,)
            for share in _unique(s for plan in self.methods for s in plan.train_shares or self.train_shares)
            for plan in self.methods
            if seed < (plan.repeats or self.repeats) and share in (plan.train_shares or self.train_shares)
        ]

    def _ground(self, split: str) -> tuple[int | None, int | None]:
        return (self.block, self.guard) if split == "blocks" else (None, None)

    def only(
        self,
        *,
        methods: Sequence[str] | None = None,
        scenes: Sequence[str] | None = None,
        repeats: int | None = None,
    ) -> Study:
        """A part of the study; methods and scenes that it does not have are added as they are known."""
        study = self
        for option, names in (("--methods", methods), ("--scenes", scenes)):
            if names is not None and not names:
                raise StudyError(f"{option} names nothing: give names with commas between, or leave it out")
        if methods is not None:
            known = {plan.name: plan for plan in self.methods}
            chosen = [known.get(name) or _method_plan(name, {}, "--methods") for name in _unique(methods)]
            study = replace(study, methods=tuple(chosen))
        if scenes is not None:
            places = {place.name: place for place in self.scenes}
            study = replace(study, scenes=tuple(places.get(name) or _public(name, places) for name in _unique(scenes)))
        if repeats is not None:
            plans = tuple(replace(plan, repeats=None) for plan in study.methods)
            study = replace(study, methods=plans, repeats=repeats)
        return study


def builtin_studies() -> list[str]:
    """Names of the studies that come along."""
    folder = files("hypercaps.study") / "studies"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def open_study(name_or_path: str) -> Study:
    """A built-in study by name, or one from a TOML file."""
    if name_or_path in builtin_studies():
        text = (files("hypercaps.study") / "studies" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return _study(name_or_path, tomllib.loads(text), name_or_path, Path())
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        close = difflib.get_close_matches(name_or_path, builtin_studies(), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise StudyError(
            f"there is no study {name_or_path!r}: give a TOML file, or one of {', '.join(builtin_studies())}{hint}"
        )
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} can't be read as a study ({error}): give a TOML file") from error
    return _study(path.stem, document, str(path), path.parent)


def _study(name: str, document: dict[str, Any], source: str, folder: Path) -> Study:
    _known_keys(document, _STUDY_KEYS, source)
    methods = _expect(document.get("methods"), dict, f"{source}: methods must be tables such as [methods.convcapsnet]")
    scenes = _expect(document.get("scenes"), list, f"{source}: scenes must be a list of names or tables")
    if not methods or not scenes:
        raise StudyError(f"{source} names no {'method' if not methods else 'scene'}: a study needs at least one")
    places = [_place(scene, source, folder) for scene in scenes]
    for place in places:
        if sum(place.name == other.name for other in places) > 1:
            raise StudyError(f"{source} has two scenes named {place.name!r}: give each a name of its own")
    splits = _splits(document.get("splits", ["random"]), source)
    numbers = _expect(document.get("per_class", []), list, f"{source}: per_class must be a list such as [5, 10]")
    shares = [*methods.values(), document] if numbers else []
    if any(len(table.get("train_shares", ())) > 1 for table in shares if isinstance(table, dict)):
        raise StudyError(f"{source}: per_class takes the place of the shares: give one train share, of the ground")
    return Study(
        name=name,
        title=str(document.get("title", name)),
        about=str(document.get("about", "")),
        scenes=tuple(places),
        methods=tuple(_method_plan(method, plan, source) for method, plan in methods.items()),
        train_shares=_shares(document.get("train_shares", [0.2]), source),
        val_share=_share(document.get("val_share", 0.1), source),
        repeats=_count(document.get("repeats", 1), "repeats", source),
        splits=splits,
        block=_count(document.get("block", 16), "block", source),
        guard=_count(document["guard"], "guard", source) if "guard" in document else None,
        per_class=tuple(_unique(_count(n, "per_class", source) for n in numbers)),
    )


def _method_plan(name: str, plan: Any, source: str) -> MethodPlan:
    plan = _expect(plan, dict, f"{source}: methods.{name} must be a table")
    _known_keys(plan, _METHOD_KEYS, f"{source}: methods.{name}")
    recipe = get_method(name).recipe(plan.get("recipe"))
    counts = {
        key: None if plan.get(key) is None else _count(plan[key], f"methods.{name}.{key}", source)
        for key in ("epochs", "batch_size", "repeats")
    }
    for key in ("epochs", "batch_size"):
        if not recipe.has_epochs and key in plan:
            raise StudyError(f"{source}: {name} is solved at once and has no {key}: leave it out")
    structure = _expect(plan.get("structure", {}), dict, f"{source}: methods.{name}.structure must be a table")
    try:
        json.dumps(structure)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{source}: methods.{name}.structure holds what no method takes ({error})") from error
    return MethodPlan(
        name=name,
        recipe=recipe.name,
        structure=structure,
        train_shares=_shares(plan["train_shares"], source) if "train_shares" in plan else None,
        **counts,
    )


def _place(scene: Any, source: str, folder: Path) -> ScenePlace:
    """A scene by its public name, or a table with name, cube and labels; paths are relative to the study's file."""
    if isinstance(scene, str):
        return _public(scene, {})
    table = _expect(scene, dict, f"{source}: a scene is a name, or a table with name, cube and labels")
    _known_keys(table, {"name", "cube", "labels", "class_field"}, f"{source}: scenes")
    if not all(isinstance(table.get(key), str) and table[key] for key in ("name", "cube", "labels")):
        raise StudyError(f"{source}: a scene from files needs name, cube and labels, and {table} has not all of them")
    name = table["name"]
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,60}", name):
        raise StudyError(f"{source}: scene name {name!r} is used in file names: give up to 60 letters, digits and -")
    if name in catalog.names():
        raise StudyError(f"{source}: {name} is the name of a public scene: give the files' scene another one")
    cube, labels = (str(folder / Path(os.path.expandvars(table[key])).expanduser()) for key in ("cube", "labels"))
    class_field = table.get("class_field")
    if not isinstance(class_field, str | None):
        raise StudyError(f"{source}: the class_field of {name} is {class_field!r}: the name of a field is expected")
    return ScenePlace(name, cube, labels, class_field)


def _public(name: str, others: Mapping[str, ScenePlace]) -> ScenePlace:
    if name not in catalog.names():
        known = [*others, *catalog.names()]
        raise CatalogError(f"there is no scene {name!r} in the study: known are {', '.join(_unique(known))}")
    return ScenePlace(name, name, name)


def _known_keys(table: Mapping[str, Any], known: set[str], source: str) -> None:
    for key in table:
        if key not in known:
            raise StudyError(f"{source} has a setting {key!r} that is not known: known are {', '.join(sorted(known))}")


def _expect(value: Any, kind: type[T], message: str) -> T:
    if not isinstance(value, kind):
        raise StudyError(message)
    return value


def _count(value: Any, name: str, source: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StudyError(f"{source}: {name} is {value!r}: a whole number of 1 or more is expected")
    return value


def _share(value: Any, source: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise StudyError(f"{source}: {value!r} is not a share: a number from 0 to 1 is expected")
    return float(value)


def _shares(values: Any, source: str) -> tuple[float, ...]:
    shares = _expect(values, list, f"{source}: train_shares must be a list such as [0.2, 0.1]")
    if not shares:
        raise StudyError(f"{source}: train_shares is empty: give at least one share")
    if 0 in shares:
        raise StudyError(f"{source}: a share of 0 leaves nothing to train on: give more")
    return tuple(_share(value, source) for value in shares)


def _splits(values: Any, source: str) -> tuple[str, ...]:
    names = _expect(values, list, f"{source}: splits must be a list such as ['random', 'blocks']")
    if not names or not all(name in ("random", "blocks") for name in names):
        raise StudyError(f"{source}: splits are {names!r}: 'random', 'blocks' or both are expected")
    return tuple(_unique(names))


def _unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
