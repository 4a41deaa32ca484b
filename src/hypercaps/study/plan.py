"""What a study consists of: methods x scenes x label budgets x seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hypercaps.errors import CatalogError, StudyError, did_you_mean
from hypercaps.io import catalog
from hypercaps.models.descriptions import get_description

T = TypeVar("T")

_MOST_RUNS = 100_000  # all are listed before the first one begins


@dataclass(frozen=True)
class SceneSource:
    """Where a scene of a study comes from: the catalogue, or files."""

    name: str
    cube: str  # as for open_scene
    labels: str  # as for open_labels
    class_field: str | None = None  # as for open_labels

    @classmethod
    def public(cls, name: str, others: Iterable[str] = ()) -> SceneSource:
        """A scene of the catalogue; ``others`` are names to list beside the catalogue's if there is none."""
        if name not in catalog.names():
            scenes = unique([*others, *catalog.names()])
            raise CatalogError(
                f"there is no scene {name!r} in the study: give one of {', '.join(scenes)}{did_you_mean(name, scenes)}"
            )
        return cls(name, name, name)


@dataclass(frozen=True)
class MethodPlan:
    """A method of a study, with changes of its recipe."""

    name: str
    recipe: str
    epochs: int | None = None
    batch_size: int | None = None
    structure: Mapping[str, object] = field(default_factory=dict)
    repeats: int | None = None  # None: the study's
    train_shares: tuple[float, ...] | None = None  # None: the study's
    minutes: float | None = None  # of one run, as measured; for the estimate of the time that is left


@dataclass(frozen=True)
class Setting:
    """One run of a study: everything that its result depends on."""

    scene: SceneSource
    method: MethodPlan
    train_share: float
    val_share: float
    seed: int
    split: str = "random"  # or "blocks"
    block: int | None = None  # side of the blocks, pixels
    guard: int | None = None  # pixels between training and test blocks; None: half of the method's patch
    per_class: int | None = None  # training pixels of each class, instead of the share

    @property
    def key(self) -> str:
        """The name of the run's files: readable, and different for every setting."""
        plan = self.method
        identity = get_description(plan.name).recipe(plan.recipe).identity()
        details = [identity, plan.epochs, plan.batch_size, dict(plan.structure), self.val_share]
        if self.guard is not None or (self.per_class is not None and self.split == "blocks"):
            details += [self.guard, self.train_share]
        digest = hashlib.sha256(json.dumps(details, sort_keys=True).encode()).hexdigest()[:6]
        labels = f"{100 * self.train_share:g}pct".replace(".", "p")
        if self.per_class is not None:
            labels = f"{self.per_class}each"
        if self.split != "random":
            labels += f"_{self.split}{self.block}"
        return f"{self.scene.name}_{plan.name}_{plan.recipe}_{labels}_seed{self.seed:02d}_{digest}"


@dataclass(frozen=True)
class Study:
    """Methods x scenes x label budgets x seeds."""

    name: str
    title: str
    about: str
    scenes: tuple[SceneSource, ...]
    methods: tuple[MethodPlan, ...]
    train_shares: tuple[float, ...]
    val_share: float
    repeats: int
    splits: tuple[str, ...] = ("random",)
    block: int = 16
    guard: int | None = None
    per_class: tuple[int, ...] = ()  # if any, instead of the shares

    def __post_init__(self) -> None:
        trainings = sum((plan.repeats or self.repeats) * len(self._shares(plan)) for plan in self.methods)
        runs = trainings * len(self.scenes) * len(self.splits) * max(1, len(self.per_class))
        if runs > _MOST_RUNS:
            raise StudyError(
                f"study {self.name!r} has {runs:,} runs: give fewer repeats, methods, scenes or shares, for "
                f"{_MOST_RUNS:,} runs at most"
            )

    def settings(self) -> list[Setting]:
        """All runs, seed by seed, so that a study that is stopped early has equally many of every method."""
        return [
            Setting(scene, plan, share, self.val_share, seed, split, *self._block_and_guard(split), per_class)
            for seed in range(max((plan.repeats or self.repeats for plan in self.methods), default=0))
            for scene in self.scenes
            for split in self.splits
            for per_class in self.per_class or (None,)
            for share in unique(share for plan in self.methods for share in self._shares(plan))
            for plan in self.methods
            if seed < (plan.repeats or self.repeats) and share in self._shares(plan)
        ]

    def _shares(self, plan: MethodPlan) -> tuple[float, ...]:
        return plan.train_shares or self.train_shares

    def _block_and_guard(self, split: str) -> tuple[int | None, int | None]:
        return (self.block, self.guard) if split == "blocks" else (None, None)

    def only(
        self, *, methods: Sequence[str] | None = None, scenes: Sequence[str] | None = None, repeats: int | None = None
    ) -> Study:
        """The study with these methods and scenes; registered ones that are not part of it are added."""
        study = self
        for option, names in (("--methods", methods), ("--scenes", scenes)):
            if names is not None and not names:
                raise StudyError(f"{option} is empty: give names with commas between, or leave the option out")
        if methods is not None:
            plans = {plan.name: plan for plan in self.methods}
            chosen = (
                plans.get(name) or MethodPlan(name, get_description(name).recipe().name) for name in unique(methods)
            )
            study = replace(study, methods=tuple(chosen))
        if scenes is not None:
            own = {scene.name: scene for scene in self.scenes}
            sources = (own.get(name) or SceneSource.public(name, own) for name in unique(scenes))
            study = replace(study, scenes=tuple(sources))
        if repeats is not None:
            same_repeats = tuple(replace(plan, repeats=None) for plan in study.methods)
            study = replace(study, methods=same_repeats, repeats=repeats)
        return study


def unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
