"""The folder of one run: files are written to a hidden folder inside it and appear together at the end."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import check_name, check_space, is_any_of, refuse_special, translate_write_errors
from hypercaps.io.writers.lock import lock_file

CHECKPOINT = "checkpoint.safetensors"  # of a training that is not finished
_STAGING = ".partial-"


class RunFolder:
    """``with RunFolder(out, names) as staging:`` write files into ``staging``; they appear in ``out`` at the end.

    ``names`` are the files that a run can consist of: those already in ``out`` are an older run. After an error or an
    interruption nothing appears, and folders that were created are removed. Another process that wants to write to the
    same folder is refused. A training may keep a checkpoint in ``out`` meanwhile (:data:`CHECKPOINT`), which is removed
    when the files appear; ``resume`` continues one.
    """

    def __init__(
        self, out: Path, names: Iterable[str], *, force: bool = False, resume: bool = False, needs_bytes: int = 0
    ) -> None:
        self.out, self.names, self.force, self.resume = out, tuple(names), force, resume
        self.needs_bytes = needs_bytes
        self._made: list[Path] = []  # folders that this object created, outermost first
        self._staging: Path | None = None
        self._lock = ExitStack()

    def check(self, inputs: Iterable[Path] = ()) -> None:
        """Refuse, before a long training, a folder that can't be written or a run that would replace an input."""
        inputs = list(inputs)
        check_name(self.out, is_folder=True)
        with translate_write_errors(self.out):
            if os.path.lexists(self.out) and not self.out.is_dir():
                what = "a file" if self.out.exists() else "a link to nothing"
                raise OutputError(f"{self.out} is {what}: give a folder that is new or empty")
            self._refuse_to_replace()
            if (self.out / CHECKPOINT).exists() and not (self.resume or self.force):
                raise OutputError(
                    f"{self.out} holds a training that is not finished: continue it with 'hypercaps train --resume "
                    f"{self.out}', replace it with --force, or choose another folder"
                )
            check_space(self.out, self.needs_bytes)
            checkpoint = self.out / CHECKPOINT
            for path in (*self._older_run(), *([checkpoint] if os.path.lexists(checkpoint) else [])):
                if is_any_of(path, inputs):
                    raise OutputError(f"{path} is an input and would be replaced by the run: choose another folder")
                refuse_special(path)

    def __enter__(self) -> Path:
        self.check()
        try:
            with translate_write_errors(self.out):
                for folder in reversed([place for place in (self.out, *self.out.parents) if not place.exists()]):
                    self._made.append(folder)  # before: an interruption may follow at once
                    folder.mkdir(exist_ok=True)
                if not self._lock.enter_context(lock_file(self.out / ".lock")):
                    raise OutputError(f"{self.out} is being written by another hypercaps: wait for it")
                for left in self.out.glob(f"{_STAGING}*"):  # by processes that were killed
                    shutil.rmtree(left, ignore_errors=True)
                self._staging = self.out / f"{_STAGING}{secrets.token_hex(4)}"
                self._staging.mkdir(mode=0o700)
        except BaseException:
            self._clean()
            raise
        return self._staging

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._staging is not None:
                self._publish(self._staging)
                self._made = []  # the folders stay
        finally:
            self._clean()

    def _publish(self, staging: Path) -> None:
        """Move an older run away and the new files to their final names, or restore everything."""
        files = sorted(staging.iterdir(), key=lambda path: (path.name == "metrics.json", path.name))  # metrics last
        with translate_write_errors(self.out):
            self._refuse_to_replace()  # another run may have finished meanwhile
            older = Path(tempfile.mkdtemp(prefix=".older-", dir=staging))  # deleted with the staging folder
            moved: list[Path] = []
            try:
                checkpoint = [self.out / CHECKPOINT] if (self.out / CHECKPOINT).exists() else []
                for path in (*self._older_run(), *checkpoint):
                    path.replace(older / path.name)
                for path in files:
                    moved.append(self.out / path.name)
                    path.replace(self.out / path.name)
            except BaseException:
                for path in moved:
                    path.unlink(missing_ok=True)
                for path in older.iterdir():
                    path.replace(self.out / path.name)
                raise

    def _refuse_to_replace(self) -> None:
        older = self._older_run()
        if older and not self.force:
            raise OutputError(
                f"{self.out} already holds a run ({older[0].name}): choose another folder, or replace it with --force"
            )

    def _older_run(self) -> list[Path]:
        return [self.out / name for name in self.names if os.path.lexists(self.out / name)]

    def _clean(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        self._lock.close()
        for folder in reversed(self._made):
            with suppress(OSError):  # another program has put files there
                folder.rmdir()
