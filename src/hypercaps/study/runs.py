"""One run of a study: train, classify, score; and the runs of a study one after another in this process."""

from __future__ import annotations

import hashlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.devices import current_versions, threads_in_use
from hypercaps.compute.memory import total_memory
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split, SplitRequest, draw
from hypercaps.errors import CheckpointInUseError, DataWarning, HypercapsError, Interrupted, warn_data
from hypercaps.inference.metrics import score
from hypercaps.io.catalog import ProgressMaker
from hypercaps.io.open import open_labels, open_scene
from hypercaps.models.registry import get_method
from hypercaps.study.folder import Classified, StudyFolder
from hypercaps.study.plan import SceneSource, Setting
from hypercaps.study.records import FailedRun, FinishedRun, RecipeChanges, Record, RunRecord
from hypercaps.training.checkpoint_file import CheckpointFile
from hypercaps.training.loop import Progress

_WAIT = 5.0  # seconds: a worker may still be ending the same run of a study that was stopped
OnDone = Callable[[Record], None]
OnProgress = Callable[[Setting, Progress], None]


class RunOutcome(NamedTuple):
    record: Record
    classified: Classified | None = None  # None for a failed run


class OpenedScene(NamedTuple):
    scene: Scene
    labels: Labels
    digest: str  # fingerprint of both: a name in a study can come to mean other files

    @classmethod
    def open(cls, source: SceneSource, progress: ProgressMaker | None = None) -> OpenedScene:
        """Open a scene and its labels on the scene's grid; a public scene is downloaded if needed."""
        scene = open_scene(source.cube, progress=progress)
        labels = open_labels(source.labels, scene=scene, class_field=source.class_field, progress=progress)
        labels.check_fits(scene)
        digest = hashlib.sha256(f"{scene.digest()} {labels.digest()}".encode()).hexdigest()[:16]
        return cls(scene, labels, digest)

    @classmethod
    def open_again(cls, source: SceneSource) -> OpenedScene:
        """Without the warnings that were shown at the start of the study."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            return cls.open(source)


@dataclass(frozen=True)
class RunControl:
    """How a run is stopped, watched and continued."""

    checkpoint: Path | None  # None: a run that is stopped starts again
    deadline: float | None  # in ``time.time()``
    on_progress: OnProgress


def is_finished(folder: StudyFolder, setting: Setting, data: str) -> bool:
    """Whether the folder has the result of a run on the same data that was not cut short."""
    record = folder.record(setting.key)
    return isinstance(record, FinishedRun) and not record.cut_short and record.data == data


def do_runs(
    settings: Sequence[Setting], folder: StudyFolder, deadline: float | None, on_done: OnDone, on_progress: OnProgress
) -> None:
    """Do the runs in this process and write their files; none starts after ``deadline`` (in ``time.time()``)."""
    opened = cache(OpenedScene.open_again)
    for setting in settings:
        if is_over(deadline):
            return
        control = RunControl(folder.checkpoint(setting.key), deadline, on_progress)
        outcome = attempt_run(setting, opened, control)
        if outcome is not None:
            on_done(keep_run(folder, outcome))


def attempt_run(
    setting: Setting, open_source: Callable[[SceneSource], OpenedScene], control: RunControl
) -> RunOutcome | None:
    """Train, classify every labelled pixel, and score the test pixels; any error ends up in the record.

    None: another process is doing this run.
    """
    record, deadline = new_record(setting), control.deadline
    try:
        opened = open_source(setting.scene)
        record = replace(record, data=opened.digest)
        return _train_and_score(record, setting, opened, control)
    except CheckpointInUseError:
        warn_data(f"another hypercaps is doing run {setting.key}: it is left to it")
        return None
    except Interrupted:
        if not is_over(deadline):
            raise KeyboardInterrupt from None  # Ctrl-C
        failed = record.failed("the time budget ended before the first epoch did", cut_short=True)
    except HypercapsError as error:
        failed = record.failed(str(error))
    except MemoryError:
        failed = record.failed("not enough memory")
    except Exception as error:  # an error of another library must not end the other runs
        failed = record.failed(f"{type(error).__name__}: {error}")
    return RunOutcome(failed)


def keep_run(folder: StudyFolder, outcome: RunOutcome) -> Record:
    """Write a run's files, unless an earlier call got further with the same run; returns the record kept."""
    record = outcome.record
    before = folder.record(record.key)
    if isinstance(before, FinishedRun) and before.data == record.data:
        if isinstance(record, FailedRun) and not record.cut_short:
            return record  # such as a checkpoint that does not fit: the result so far stays
        reached = record.epochs if isinstance(record, FinishedRun) else 0
        if record.cut_short and before.epochs >= reached:
            return before
    folder.keep(record, outcome.classified)
    if isinstance(record, FinishedRun) and not record.cut_short:
        folder.checkpoint(record.key).unlink(missing_ok=True)
    return record


def _train_and_score(record: RunRecord, setting: Setting, opened: OpenedScene, control: RunControl) -> RunOutcome:
    classifier = _fit(setting, opened, control)
    history, split, model = classifier.history_, classifier.split_, classifier.model_
    truth = opened.labels.where_valid(opened.scene).array  # (rows, columns)
    # As in the paper, the map and the scores come from the same classified pixels: all that have a label.
    classes = classifier.map(opened.scene, only=truth > 0).classes  # (rows, columns)
    test_truth = truth.ravel()[split.test]
    scores = score(test_truth, classes.ravel()[split.test], model.legend)
    finished = FinishedRun(
        **(vars(record) | {"cut_short": history.interrupted}),
        oa=scores.oa,
        aa=scores.aa,
        kappa=scores.kappa,
        per_class=scores.per_class,
        parameters=model.parameters,
        train_seconds=history.seconds,
        epochs=len(history.records),
        best_epoch=history.best_epoch,
        batch_size=model.recipe.batch_size,
        n_train=int(split.train.size),
        n_val=int(split.val.size),
        n_test=int(split.test.size),
        leakage=split.leakage,
        bands=opened.scene.bands,
        history=tuple((epoch.loss, epoch.val_oa) for epoch in history.records),
    )
    return RunOutcome(finished, Classified(classes, truth, split.test, test_truth))


def _fit(setting: Setting, opened: OpenedScene, control: RunControl) -> ConvCapsClassifier:
    plan = setting.method
    classifier = ConvCapsClassifier(
        train=setting.train_share,
        val=setting.val_share,
        seed=setting.seed,
        method=plan.name,
        recipe=plan.recipe,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        structure=dict(plan.structure) or None,
    )

    def watch(progress: Progress) -> None:
        if is_over(control.deadline):
            raise KeyboardInterrupt  # training stops and keeps its best epoch and a checkpoint
        control.on_progress(setting, progress)

    split = _split(setting, opened)
    with nullcontext() if control.checkpoint is None else CheckpointFile(control.checkpoint, wait=_WAIT) as checkpoint:
        classifier.fit(opened.scene, opened.labels, split, evaluate=False, on_progress=watch, checkpoint=checkpoint)
    if classifier.history_.interrupted and not is_over(control.deadline):
        raise Interrupted("stopped by the user")
    return classifier


def _split(setting: Setting, opened: OpenedScene) -> Split | None:
    """The split of a run; None: a random share, drawn by the classifier."""
    if setting.split == "random" and setting.per_class is None:
        return None
    request = SplitRequest(
        kind=setting.split,
        train=setting.train_share,
        val=setting.val_share,
        per_class=setting.per_class,
        block=setting.block or 16,
        seed=setting.seed,
        patch=get_method(setting.method.name).patch,
        guard=setting.guard,  # given by a study so that methods of different patches have the same test pixels
        at_most=0.5,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the page explains it once for all runs
        return draw(opened.labels.where_valid(opened.scene), request)


def is_over(deadline: float | None) -> bool:
    return deadline is not None and time.time() >= deadline


def new_record(setting: Setting) -> RunRecord:
    """The record of a run before its scene is opened."""
    plan = setting.method
    return RunRecord(
        scene=setting.scene.name,
        method=plan.name,
        recipe=plan.recipe,
        train_share=setting.train_share,
        seed=setting.seed,
        split=setting.split,
        block=setting.block,
        guard=setting.guard,
        labels_per_class=setting.per_class,
        recipe_epochs=get_method(plan.name).recipe(plan.recipe).fixed_epochs,
        changed=RecipeChanges(plan.epochs, plan.batch_size, dict(plan.structure)),
        val_share=setting.val_share,
        machine=machine(),
        threads=threads_in_use(),
        versions=current_versions(),
        key=setting.key,
    )


def machine() -> str:
    """The computer in a few words, without its host name."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):  # on Linux Python does not know the processor's name
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(names, processor)
    return f"{processor}, {os.cpu_count()} cores, {total_memory() / 1e9:.0f} GB, {platform.system()}"
