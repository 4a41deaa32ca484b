"""The folder of one run: files are written to a hidden folder inside it and appear together at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import check_space, is_any_of, translate_write_errors


class RunFolder:
    """``with RunFolder(out, names) as staging:`` write files into ``staging``; they appear in ``out`` at the end.

    ``names`` are the files that a run can consist of: those already in ``out`` are an older run. After an error or an
    interruption nothing appears, and folders that were created are removed.
    """

    def __init__(self, out: Path, names: Iterable[str], *, force: bool = False, needs_bytes: int = 0) -> None:
        self.out, self.names, self.force, self.needs_bytes = out, tuple(names), force, needs_bytes
        self._made: list[Path] = []  # folders that this object created, outermost first
        self._staging: Path | None = None

    def check(self, inputs: Iterable[Path] = ()) -> None:
        """Refuse, before a long training, a folder that can't be written or a run that would replace an input."""
        inputs = list(inputs)
        with translate_write_errors(self.out):
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"{self.out} is a file: give a folder that is new or empty")
            self._refuse_to_replace()
            check_space(self.out, self.needs_bytes)
            for path in self._older_run():
                if is_any_of(path, inputs):
                    raise OutputError(f"{path} is an input and would be replaced by the run: choose another folder")

    def __enter__(self) -> Path:
        self.check()
        try:
            with translate_write_errors(self.out):
                for folder in reversed([place for place in (self.out, *self.out.parents) if not place.exists()]):
                    folder.mkdir(exist_ok=True)
                    self._made.append(folder)
                self._staging = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.out))
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
                for path in self._older_run():
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
        return [self.out / name for name in self.names if (self.out / name).exists()]

    def _clean(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        for folder in reversed(self._made):
            try:
                folder.rmdir()
            except OSError:  # another program has put files there
                break
