"""Read a study from a TOML file, or a built-in one by its name."""

from __future__ import annotations

import glob
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from hypercaps.errors import StudyError, did_you_mean
from hypercaps.io import catalog
from hypercaps.io.paths import exists
from hypercaps.models.descriptions import get_description
from hypercaps.study.plan import MethodPlan, SceneSource, Study, unique

T = TypeVar("T")
TomlTable = Mapping[str, object]
# The keys of a table are the fields of what it describes; studies and methods have their names elsewhere.
_STUDY_KEYS, _METHOD_KEYS = ({each.name for each in fields(kind)} - {"name"} for kind in (Study, MethodPlan))
_SCENE_KEYS = {each.name for each in fields(SceneSource)}


def builtin_studies() -> list[str]:
    folder = files("hypercaps.study") / "studies"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def open_study(name_or_path: str) -> Study:
    """A built-in study by name, or one from a TOML file."""
    if name_or_path in builtin_studies():
        text = (files("hypercaps.study") / "studies" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        return _study(name_or_path, tomllib.loads(text), name_or_path, Path())
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        names = builtin_studies()
        hint = did_you_mean(name_or_path, names)
        raise StudyError(f"there is no study {name_or_path!r}: give a TOML file, or one of {', '.join(names)}{hint}")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path} can't be read as a study ({error}): give a TOML file") from error
    return _study(path.stem, document, str(path), path.parent.absolute())


def _study(name: str, document: TomlTable, source: str, folder: Path) -> Study:
    """``source`` names the study in messages; paths are relative to ``folder``."""
    _check_keys(document, _STUDY_KEYS, source)
    methods = _expect(document.get("methods"), dict, f"{source}: methods must be tables such as [methods.convcapsnet]")
    scenes = _expect(document.get("scenes"), list, f"{source}: scenes must be a list of names or tables")
    if not methods or not scenes:
        raise StudyError(f"{source} has no {'method' if not methods else 'scene'}: a study needs at least one")
    per_class = _expect(document.get("per_class", []), list, f"{source}: per_class must be a list such as [5, 10]")
    plans = tuple(_method_plan(method, plan, source) for method, plan in methods.items())
    shares = _shares(document.get("train_shares", [0.2]), source)
    if per_class and any(len(each or ()) > 1 for each in (shares, *(plan.train_shares for plan in plans))):
        raise StudyError(f"{source}: per_class replaces the train shares: give one, that of the blocks for training")
    return Study(
        name=name,
        title=str(document.get("title", name)),
        about=str(document.get("about", "")),
        scenes=_scenes(scenes, source, folder),
        methods=plans,
        train_shares=shares,
        val_share=_share(document.get("val_share", 0.1), source),
        repeats=_count(document.get("repeats", 1), "repeats", source),
        splits=_splits(document.get("splits", ["random"]), source),
        block=_count(document.get("block", 16), "block", source),
        guard=_count(document["guard"], "guard", source) if "guard" in document else None,
        per_class=tuple(unique(_count(n, "per_class", source) for n in per_class)),
    )


def _method_plan(name: str, plan: object, source: str) -> MethodPlan:
    plan = _expect(plan, dict, f"{source}: methods.{name} must be a table")
    _check_keys(plan, _METHOD_KEYS, f"{source}: methods.{name}")
    recipe = get_description(name).recipe(plan.get("recipe"))
    keys = [key for key in ("epochs", "batch_size", "repeats") if key in plan]
    counts = {key: _count(plan[key], f"methods.{name}.{key}", source) for key in keys}
    for key in ("epochs", "batch_size"):
        if not recipe.has_epochs and key in plan:
            raise StudyError(f"{source}: {name} is not trained in epochs and has no {key}: leave it out")
    structure = _expect(plan.get("structure", {}), dict, f"{source}: methods.{name}.structure must be a table")
    try:
        json.dumps(structure)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{source}: methods.{name}.structure has an unsupported value ({error})") from error
    shares = _shares(plan["train_shares"], source) if "train_shares" in plan else None
    minutes = _minutes(plan["minutes"], f"methods.{name}.minutes", source) if "minutes" in plan else None
    return MethodPlan(name, recipe.name, structure=structure, train_shares=shares, minutes=minutes, **counts)


def _scenes(scenes: list[object], source: str, folder: Path) -> tuple[SceneSource, ...]:
    sources: dict[str, SceneSource] = {}
    for scene in scenes:
        opened = SceneSource.public(scene) if isinstance(scene, str) else _scene_from_files(scene, source, folder)
        if opened.name in sources:
            raise StudyError(f"{source} has two scenes named {opened.name!r}: give each its own name")
        sources[opened.name] = opened
    return tuple(sources.values())


def _scene_from_files(scene: object, source: str, folder: Path) -> SceneSource:
    table = _expect(scene, dict, f"{source}: a scene is a name, or a table with name, cube and labels")
    _check_keys(table, _SCENE_KEYS, f"{source}: scenes")
    if not all(isinstance(table.get(key), str) and table[key] for key in ("name", "cube", "labels")):
        raise StudyError(f"{source}: a scene from files needs name, cube and labels, got {table}")
    name, class_field = table["name"], table.get("class_field")
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,60}", name):
        raise StudyError(f"{source}: scene name {name!r} is used in file names: give up to 60 letters, digits and -")
    if name in catalog.names():
        raise StudyError(f"{source}: {name} is the name of a public scene: give the scene from files another name")
    if not isinstance(class_field, str | None):
        raise StudyError(f"{source}: the class_field of {name} is {class_field!r}: give the name of a field")
    return SceneSource(name, _resolve(table["cube"], folder), _resolve(table["labels"], folder), class_field)


def _resolve(spec: str, folder: Path) -> str:
    """Paths relative to ``folder``: one file, a list of tiles (@FILE), or tiles with commas between."""

    def resolve(path: str) -> str:
        return str(folder / Path(path).expanduser())

    spec = os.path.expandvars(spec)
    if exists(resolve(spec)):
        return resolve(spec)
    if spec.startswith("@"):
        return f"@{resolve(spec[1:])}"
    tiles = [part.strip() for part in spec.split(",")]
    # A file name or key may hold a comma: tiles are meant if the first one exists or is a pattern, as for open_scene.
    if len(tiles) > 1 and (glob.has_magic(tiles[0]) or exists(resolve(tiles[0]))):
        return ",".join(map(resolve, tiles))
    return resolve(spec)


def _check_keys(table: TomlTable, allowed: set[str], source: str) -> None:
    for key in table:
        if key not in allowed:
            expected = ", ".join(sorted(allowed))
            raise StudyError(f"{source} has an unknown key {key!r}: use one of {expected} (docs/studies.md)")


def _expect(value: object, kind: type[T], message: str) -> T:
    if not isinstance(value, kind):
        raise StudyError(message)
    return value


def _count(value: object, name: str, source: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StudyError(f"{source}: {name} is {value!r}: give a whole number of 1 or more")
    return value


def _minutes(value: object, name: str, source: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise StudyError(f"{source}: {name} is {value!r}: give the minutes that one run takes, more than 0")
    return float(value)


def _share(value: object, source: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise StudyError(f"{source}: {value!r} is not a share: give a number from 0 to 1")
    return float(value)


def _shares(values: object, source: str) -> tuple[float, ...]:
    shares = _expect(values, list, f"{source}: train_shares must be a list such as [0.2, 0.1]")
    if not shares:
        raise StudyError(f"{source}: train_shares is empty: give at least one share")
    if 0 in shares:
        raise StudyError(f"{source}: a share of 0 leaves no training pixels: give more")
    return tuple(_share(value, source) for value in shares)


def _splits(values: object, source: str) -> tuple[str, ...]:
    names = _expect(values, list, f"{source}: splits must be a list such as ['random', 'blocks']")
    if not names or not all(name in ("random", "blocks") for name in names):
        raise StudyError(f"{source}: splits are {names!r}: give 'random', 'blocks' or both")
    return tuple(unique(names))
