"""The runs of a study: each is done once, leaves one JSON, and can fail alone."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import platform
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.compute.devices import current_versions, threads_in_use, total_memory, use_threads
from hypercaps.compute.processes import end_with_parent
from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split, SplitRequest, draw
from hypercaps.errors import DataWarning, HypercapsError, Interrupted
from hypercaps.inference.metrics import score
from hypercaps.io.catalog import ProgressMaker
from hypercaps.io.open import open_labels, open_scene
from hypercaps.models.registry import get_method
from hypercaps.study.plan import ScenePlace, Setting
from hypercaps.study.records import FIGURES, Classified, Record, StudyFolder, succeeded
from hypercaps.training.loop import Progress

OnDone = Callable[[Record], None]
OnProgress = Callable[[Setting, Progress], None]  # of the run at hand; runs in other processes don't tell
Opened = dict[ScenePlace, tuple[Scene, Labels]]


def finished(folder: StudyFolder, setting: Setting, data: str) -> Record | None:
    """The record of a run that was done before on the same data; None if it was not, failed, or was cut short."""
    record = folder.record(setting.key)
    if record is None or not succeeded(record) or record.get("cut_short") or record.get("data") != data:
        return None
    return record


def data_digest(scene: Scene, labels: Labels) -> str:
    """A fingerprint of a scene and its labels: a name in a study can come to mean other files."""
    return hashlib.sha256(f"{scene.digest()} {labels.digest()}".encode()).hexdigest()[:16]


def do_runs(
    settings: Sequence[Setting],
    folder: StudyFolder,
    *,
    workers: int = 1,
    deadline: float | None = None,
    on_done: OnDone = lambda record: None,
    on_progress: OnProgress = lambda setting, progress: None,
) -> None:
    """Do the runs and leave the files of each in the folder; none begins after ``deadline`` (of ``time.time()``)."""
    if workers > 1:
        _do_in_processes(settings, folder, workers, deadline, on_done)
        return
    opened: Opened = {}
    for setting in settings:
        if over(deadline):
            return
        on_done(do_run(setting, folder, opened, deadline, on_progress))


def do_run(
    setting: Setting,
    folder: StudyFolder,
    opened: Opened,
    deadline: float | None,
    on_progress: OnProgress = lambda setting, progress: None,
) -> Record:
    """One run and its files."""
    return keep_run(folder, setting, *attempt_run(setting, opened, deadline, on_progress))


def attempt_run(
    setting: Setting, opened: Opened, deadline: float | None, on_progress: OnProgress
) -> tuple[Record, Classified | None]:
    """One run: train, classify every labelled pixel, score the test pixels; whatever goes wrong is in its record."""
    record, classified = blank_record(setting), None
    try:
        scene, labels = open_once(setting.scene, opened)
        record["data"] = data_digest(scene, labels)
        figures, classified = _train_and_score(setting, scene, labels, deadline, on_progress)
        record |= figures
    except Interrupted:
        if not over(deadline):
            raise KeyboardInterrupt from None  # the user's own
        record |= {"error": "the budget ended before its first epoch did", "cut_short": True}
    except HypercapsError as error:
        record["error"] = str(error)
    except MemoryError:
        record["error"] = "there was not enough memory"
    except Exception as error:  # another library's: this run is lost, the others need not be
        record["error"] = f"{type(error).__name__}: {error}"
    return record, classified


def keep_run(folder: StudyFolder, setting: Setting, record: Record, classified: Classified | None) -> Record:
    """Write a run's files, unless there is more of it already; the record that is there now."""
    before = folder.record(setting.key)
    if record.get("cut_short") and before is not None and _reached_as_far(before, record):
        return before  # a shorter budget must not undo what a longer one reached
    folder.keep(setting.key, record, classified)
    return record


def _reached_as_far(before: Record, now: Record) -> bool:
    same_data = before.get("data") == now["data"]
    return same_data and succeeded(before) and before["epochs"] >= (now["epochs"] or 0)


def _train_and_score(
    setting: Setting, scene: Scene, labels: Labels, deadline: float | None, on_progress: OnProgress
) -> tuple[Record, Classified]:
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
        if over(deadline):
            raise KeyboardInterrupt  # training keeps its best epoch, as for a user's Ctrl-C
        on_progress(setting, progress)

    classifier.fit(scene, labels, _split(setting, scene, labels), evaluate=False, on_progress=watch)
    history, split, model = classifier.history_, classifier.split_, classifier.model_
    if history.interrupted and not over(deadline):
        raise Interrupted("stopped by the user")
    truth = labels.where_valid(scene)
    # The paper's maps and its scores come from the same classified pixels: all that have a label.
    found = classifier.map(scene, only=truth.array > 0).classes
    tested = split.test
    scores = score(truth.array.ravel()[tested], found.ravel()[tested], model.legend)
    figures = scores.to_json()
    del figures["confusion"]
    figures |= {
        "parameters": model.parameters,
        "train_seconds": history.seconds,
        "epochs": len(history.records),
        "best_epoch": history.best_epoch,
        "cut_short": history.interrupted,
        "batch_size": model.recipe.batch_size,
        "n_train": int(split.train.size),
        "n_val": int(split.val.size),
        "n_test": int(tested.size),
        "leakage": split.leakage,
        "history": [[record.loss, record.val_oa] for record in history.records],
    }
    figures["bands"] = scene.bands
    return figures, Classified(found, truth.array, tested, truth.array.ravel()[tested])


def _split(setting: Setting, scene: Scene, labels: Labels) -> Split | None:
    """The split of a run; None: a share at random, which the classifier draws."""
    if setting.split == "random" and setting.per_class is None:
        return None
    request = SplitRequest(
        kind=setting.split,
        train=setting.train_share,
        val=setting.val_share,
        per_class=setting.per_class,
        block=16 if setting.block is None else setting.block,
        seed=setting.seed,
        patch=get_method(setting.method.name).patch,
        guard=setting.guard,  # given by a study so that methods of other patches have the same test pixels
        at_most=0.5,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said by the page, and not by every run anew
        return draw(labels.where_valid(scene), request)


def over(deadline: float | None) -> bool:
    return deadline is not None and time.time() >= deadline


def blank_record(setting: Setting) -> Record:
    """What is known of a run before it is done."""
    plan = setting.method
    recipe = get_method(plan.name).recipe(plan.recipe)
    return {
        "scene": setting.scene.name,
        "method": plan.name,
        "recipe": plan.recipe,
        "train_share": setting.train_share,
        "seed": setting.seed,
        "split": setting.split,
        "block": setting.block,
        "guard": setting.guard,
        "labels_per_class": setting.per_class,
        **dict.fromkeys(FIGURES),
        # One that follows the number of training pixels is no one number.
        "recipe_epochs": recipe.fixed_epochs,
        "changed": {"epochs": plan.epochs, "batch_size": plan.batch_size, "structure": dict(plan.structure)},
        "val_share": setting.val_share,
        "machine": machine(),
        "threads": threads_in_use(),
        "versions": current_versions(),
        "data": None,
    }


def open_place(place: ScenePlace, progress: ProgressMaker | None = None) -> tuple[Scene, Labels]:
    """Open a scene of a study and its labels, brought onto the scene's grid; a public scene is downloaded if needed."""
    scene = open_scene(place.cube, progress=progress)
    labels = open_labels(place.labels, scene=scene, class_field=place.class_field, progress=progress)
    labels.check_fits(scene)
    return scene, labels


def open_once(place: ScenePlace, opened: Opened) -> tuple[Scene, Labels]:
    """Open a scene of a study and its labels, or take them from ``opened``, where they are then kept."""
    if place not in opened:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # shown once, when the study starts
            opened[place] = open_place(place)
    return opened[place]


@cache
def machine() -> str:
    """The computer in a few words, without its name."""
    return f"{processor()}, {os.cpu_count()} cores, {total_memory() / 1e9:.0f} GB, {platform.system()}"


def processor() -> str:
    """The processor's name; Python itself knows it on few systems."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class _Worker:
    """A process of its own that does one run after another."""

    def __init__(self, folder: StudyFolder, threads: int, deadline: float | None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads half-way
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, folder, threads, deadline), daemon=True)
        self.process.start()
        theirs.close()  # so that its death is the end of the pipe
        self.setting: Setting | None = None

    def give(self, setting: Setting) -> None:
        self.setting = setting
        self.pipe.send(setting)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _work(pipe: Connection, folder: StudyFolder, threads: int, deadline: float | None) -> None:
    """What a worker process does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=end_with_parent, daemon=True).start()
    use_threads(threads)
    opened: Opened = {}
    while True:
        try:
            setting = pipe.recv()
        except EOFError:
            return
        pipe.send(do_run(setting, folder, opened, deadline))


def _do_in_processes(
    settings: Sequence[Setting], folder: StudyFolder, workers: int, deadline: float | None, on_done: OnDone
) -> None:
    waiting = list(reversed(settings))
    threads = max(1, (os.cpu_count() or 1) // workers)
    idle = [_Worker(folder, threads, deadline) for _ in range(min(workers, len(settings)))]
    busy: dict[Connection, _Worker] = {}
    try:
        while True:
            while idle and waiting and not over(deadline):
                worker = idle.pop()
                worker.give(waiting.pop())
                busy[worker.pipe] = worker
            if not busy:
                return
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker = busy.pop(ready)
                assert worker.setting is not None
                try:
                    record = ready.recv()
                except (EOFError, OSError):  # killed, most often for want of memory
                    worker.process.join()
                    record = blank_record(worker.setting)
                    record["error"] = f"its process ended without a result (exit code {worker.process.exitcode})"
                    folder.keep(worker.setting.key, record)
                    worker.stop()
                    worker = _Worker(folder, threads, deadline)
                idle.append(worker)
                on_done(record)
    finally:
        for worker in (*idle, *busy.values()):
            worker.stop()
