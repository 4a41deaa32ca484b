"""TrainingDesk: trainings, their maps and exports, from what the page asks to what the worker reports."""

from __future__ import annotations

import datetime
import shlex
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypercaps.data.scene import Scene
from hypercaps.errors import HypercapsError
from hypercaps.io.open import Opening
from hypercaps.io.writers.label_files import CLASS_FIELD, vector_suffix, write_labels
from hypercaps.pipeline.run_files import RUN_FILES
from hypercaps.workbench.events import Hub
from hypercaps.workbench.jobs import Job, JobObserver, Jobs
from hypercaps.workbench.label_exchange import labels_of
from hypercaps.workbench.label_store import LabelStore, Snapshot
from hypercaps.workbench.map_store import CLASS, CONFIDENCE
from hypercaps.workbench.options import read_options
from hypercaps.workbench.refusals import RefusedError, not_found
from hypercaps.workbench.trainings import MODEL, Training, Trainings
from hypercaps.workbench.worker_messages import ExplainQuery, ExportTask, Report, TrainTask, View
from hypercaps.workbench.worker_process import WorkerProcess

_BUSY = ("running", "mapping", "exporting")  # states of a job that an export does not interrupt
_REST = 2.0  # seconds without a stroke after which an automatic training starts


@dataclass(frozen=True)
class Computing:
    """How the worker computes, and how the command line would open the same scene."""

    opening: Opening
    scene: str  # as typed
    wavelengths: Path | None = None
    memory: int = 1_000_000_000
    threads: int | None = None
    niceness: int = 10  # below server and browser: painting stays fluent while the worker computes


class TrainingDesk:
    """Everything about trainings of one project."""

    def __init__(
        self,
        folder: Path,
        scene: Scene,
        labels: LabelStore,
        hub: Hub,
        computing: Computing,
        say: Callable[[str, str], None],
    ) -> None:
        self._folder, self._scene, self._labels, self._hub = folder, scene, labels, hub
        self._computing, self._say = computing, say
        self.trainings = Trainings(folder / "trainings", (scene.rows, scene.cols))
        self.options = read_options(folder)
        self._view: View | None = None
        self._mapping: dict[str, Any] | None = None  # the map that is being filled: id, revision, done
        self._revisions: dict[str, int] = {}
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()
        self._telling = threading.Lock()  # pages are told in the order of what happened
        observer = JobObserver(self._on_change, self._on_report, self._on_end, say)
        self.jobs = Jobs(self._make_worker, observer)
        if self.trainings.unreadable:
            names = ", ".join(self.trainings.unreadable)
            say("warning", f"The records of these trainings are damaged, and they are left out: {names}.")

    def _make_worker(self, on_report: Callable[[Report], None], on_death: Callable[[], None]) -> WorkerProcess:
        how = self._computing
        return WorkerProcess(how.opening, how.threads, how.niceness, on_report, on_death)

    def start(self) -> None:
        self.jobs.start()

    def close(self) -> None:
        self._stop_timer()
        self.jobs.close()

    # ---- state -------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Its parts of the page's state."""
        return {"training": self.training_state(), "options": self.options.describe(), **self.map_state()}

    def training_state(self) -> dict[str, Any] | None:
        job = self.jobs.shown
        return None if job is None else job.describe()

    def map_state(self) -> dict[str, Any]:
        with self._lock:
            current = self.trainings.current
            shown = None if current is None else {"id": current, "revision": self.revision(current), "done": 1.0}
            filling = self._mapping
            is_new = filling is not None and filling["id"] != current
            return {
                "current": current,
                "map": dict(filling) if filling is not None else shown,
                "stale": shown if is_new else None,
                "trainings": self.trainings.describe(),
            }

    def _tell_maps(self) -> None:
        with self._telling:
            self._hub.publish("state", self.map_state())

    def revision(self, number: str) -> int:
        """Of a map; it never goes back, also after a restart, because browsers keep tiles by it."""
        with self._lock:
            return self._revisions.setdefault(number, int(time.time()))

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(self, view: View | None, changes: dict[str, Any] | None = None, *, auto: bool = False) -> dict[str, Any]:
        """Train on the labels as they are."""
        self._stop_timer()
        settings = self.options.changed(changes or {}).settings()
        self._view = view or self._view
        snapshot = self._labels.snapshot()
        _check_enough(snapshot)
        labels = labels_of(snapshot)
        number, folder = self.trainings.new_folder()
        try:
            file = f"labels{vector_suffix(self._scene)}"
            write_labels(folder / file, labels, self._scene)
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            described = snapshot.describe()
            numbers = described["version"], described["count"]
            training = Training(number, now, settings, *numbers, snapshot.classes, labels_file=file, auto=auto)
            self.trainings.add(training, snapshot)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        task = TrainTask(
            number, folder, folder / file, _class_field(file), settings, self._view, self._computing.memory
        )
        _, replaced = self.jobs.submit(task, auto=auto)
        if replaced is not None:
            self._discard(replaced)
        return {"id": number}

    def on_stroke(self) -> None:
        """Labels have changed: train after a rest, if the user wants that."""
        self._stop_timer()
        if self.options.auto:
            with self._lock:
                self._timer = threading.Timer(_REST, self._train_by_itself)
                self._timer.daemon = True
                self._timer.start()

    def _train_by_itself(self) -> None:
        try:
            self.train(None, auto=True)
        except RefusedError:  # too few labels yet; the user has not started this training
            pass
        except (HypercapsError, OSError) as error:
            self._say("error", f"The training could not start: {error}")

    def _stop_timer(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def choose(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change the options of the trainings to come."""
        self.options = self.options.changed(changes)
        self.options.save(self._folder)
        if not self.options.auto:
            self._stop_timer()
        described = self.options.describe()
        self._hub.publish("state", {"options": described})
        return {"options": described}

    def look(self, view: View) -> None:
        self._view = view
        self.jobs.look(view)

    def cancel(self) -> None:
        """Stop training; the old map stays."""
        self._stop_timer()
        stopped = self.jobs.cancel()
        for job in stopped:
            if job is not self.jobs.running:
                self._discard(job)
        with self._lock:
            if self._mapping is not None and not self.trainings.get(self._mapping["id"]).has_map:
                self._mapping = None
        self._tell_maps()

    def _discard(self, job: Job) -> None:
        """Remove what a training without a map has left."""
        if isinstance(job.task, TrainTask):
            self.trainings.forget(job.id)
            shutil.rmtree(job.task.folder, ignore_errors=True)

    # ---- reports of the worker ---------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        with self._telling:
            self._hub.publish("training", self.training_state())

    def _on_report(self, job: Job, report: Report) -> None:
        if report.kind == "windows":
            self._on_windows(job, report)
        elif report.kind == "mapped":
            self._keep_map(job.id, seconds=round(report.data["seconds"], 2))
        elif report.kind == "unscored":
            settings = replace(self.trainings.get(job.id).settings, split="none")  # as it is trained, and exported
            self.trainings.change(job.id, settings=settings)
            self._say("info", report.data["text"])
        elif report.kind == "scored":
            self.trainings.change(job.id, score=report.data["score"])
            self._tell_maps()

    def _on_windows(self, job: Job, report: Report) -> None:
        with self._lock:
            revision = max(self.revision(job.id) + 1, int(time.time()))
            self._revisions[job.id] = revision
            done = report.data["done"]
            self._mapping = {"id": job.id, "revision": revision, "done": done}
        windows = [list(window) for window in report.data["windows"]]
        self._hub.publish("map", {"id": job.id, "windows": windows, "done": done, "revision": revision})

    def _keep_map(self, number: str, **changes: Any) -> None:
        self.trainings.change(number, has_map=True, **changes)
        self.trainings.show(number)
        self.trainings.prune()
        with self._lock:
            self._mapping = None
        self._tell_maps()

    def _on_end(self, job: Job, report: Report) -> None:
        if isinstance(job.task, TrainTask):
            self._end_training(job, report)
        if report.kind == "failed":
            what = "Export" if isinstance(job.task, ExportTask) else "Training"
            self._say("error", f"{what} stopped: {report.data['error']}")

    def _end_training(self, job: Job, report: Report) -> None:
        try:
            training = self.trainings.get(job.id)
            if report.kind == "done":
                seconds = training.seconds if training.has_map else round(report.data["seconds"], 2)
                self._keep_map(job.id, complete=True, seconds=seconds)
                return
        except (HypercapsError, OSError) as error:
            self._say("error", f"The training could not be kept: {error}")
            return
        with self._lock:
            if self._mapping is not None and self._mapping["id"] == job.id:
                self._mapping = None
        if not training.has_map:
            self._discard(job)
        self._tell_maps()

    # ---- history -----------------------------------------------------------------------------------------------------

    def show(self, number: str) -> None:
        self.trainings.show(number)
        self._tell_maps()

    def about(self, number: str) -> dict[str, Any]:
        """A training in full."""
        training = self.trainings.get(number)
        counts = self.trainings.labels(number).counts
        rows = [
            {"id": one.id, "name": one.name, "color": one.color, "count": counts[one.id]} for one in training.classes
        ]
        return {**training.describe(), "classes": rows, "command": self.command(training)}

    def suggestions(self, count: int) -> list[dict[str, Any]]:
        """Points to label next, by the training that is shown, without those that have a label by now."""
        current = self.trainings.current
        if current is None:
            raise RefusedError("points are suggested by a training: train first", 409)
        points = self.trainings.suggestions(current)
        if points is None:
            raise RefusedError("the points of this training were not chosen before it was stopped", 409)
        labelled = self._labels.raster.classes
        known = {one.id for one in self._labels.classes}
        free = [one for one in points if labelled[one["row"], one["col"]] == 0 and one["first"]["id"] in known]
        return free[:count]

    def explain(self, row: int, col: int) -> tuple[Future[dict[str, Any]], float | None]:
        """Band attribution for the class of a pixel, and the confidence of its class in the map."""
        current = self.trainings.current
        if current is None:
            raise RefusedError("a pixel is explained by a training: train first", 409)
        model = self.trainings.path(current, MODEL)
        if not model.exists():
            raise RefusedError("the training is not finished yet: its model is there when it is scored", 409)
        pixel = self.trainings.map(current)[row, col]
        confidence = float(pixel[CONFIDENCE]) / 255 if pixel[CLASS] else None
        return self.jobs.explain(lambda number: ExplainQuery(number, model, row, col)), confidence

    # ---- export ------------------------------------------------------------------------------------------------------

    def command(self, training: Training) -> str:
        """The command that gives the same map, to the byte."""
        labels = self._folder / "trainings" / training.id / training.labels_file
        given = ["hypercaps", "train", self._computing.scene, str(labels)]
        if field := _class_field(training.labels_file):
            given += ["--class-field", field]
        if self._computing.wavelengths is not None:
            given += ["--wavelengths", str(self._computing.wavelengths)]
        given += ["--split", training.settings.split, "--method", training.settings.method]
        if training.settings.recipe is not None:
            given += ["--recipe", training.settings.recipe]
        return shlex.join([*given, "--out", f"{self._folder.name.partition('.')[0]}-{training.id}"])

    def export(self, number: str | None) -> tuple[str, Job]:
        """Write the run folder of a training, by default of the one that is shown."""
        number = number or self.trainings.current
        if number is None:
            raise RefusedError("there is nothing to export yet: train first", 409)
        training = self.trainings.get(number)
        running = self.jobs.running
        if running is not None and not running.is_cancelled and running.state in _BUSY:
            raise RefusedError("a training is running: export when it has ended", 409)
        labels = self.trainings.path(number, training.labels_file)
        inputs: dict[str, Any] = {"scene": self._computing.scene, "labels": [str(labels)]}
        if field := _class_field(training.labels_file):
            inputs["class_field"] = field
        task = ExportTask(
            number,
            self._folder / "runs" / number,
            labels,
            _class_field(training.labels_file),
            training.settings,
            self.command(training),
            inputs,
            self._computing.memory,
        )
        job, replaced = self.jobs.submit(task)
        if replaced is not None:
            self._discard(replaced)
        return number, job

    def exported(self, number: str) -> dict[str, Any]:
        """What an export has written; the labels are copied beside the run."""
        training, folder = self.trainings.get(number), self._folder / "runs" / number
        labels = self.trainings.path(number, training.labels_file)
        shutil.copyfile(labels, folder / labels.name)
        files = [name for name in (*RUN_FILES, labels.name) if (folder / name).is_file()]
        return {"folder": f"runs/{number}", "command": self.command(training), "files": files}

    def run_file(self, number: str, name: str) -> Path:
        """A file of an exported run; only names that a run can have."""
        training = self.trainings.get(number)
        if name not in (*RUN_FILES, training.labels_file):
            raise not_found(f"file {name[:40]!r}")
        path = self._folder / "runs" / number / name
        if not path.is_file():
            raise not_found(f"file {name!r}")
        return path


def _class_field(file: str) -> str | None:
    return None if file.endswith(".tif") else CLASS_FIELD


def _check_enough(snapshot: Snapshot) -> None:
    """Refuse what no method can be trained with, before anything is written."""
    present = [number for number, count in snapshot.counts.items() if count]
    if len(present) < 2:
        raise RefusedError("a training needs labels of at least two classes: paint some of another class", 409)
