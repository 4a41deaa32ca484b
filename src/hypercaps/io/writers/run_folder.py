"""The folder of one run: filled out of sight, shown whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import explained, is_any_of

RUN_FILES = (
    "report.html",
    "model.safetensors",
    "history.csv",
    "split.npz",
    "map.tif",
    "map.tif.aux.xml",
    "map.qml",
    "confidence.tif",
    "probabilities.tif",
    "sets.tif",
    "map.png",
    "curves.png",
    "reliability.png",
    "scene.png",
    "labels.png",
    "classes.json",
    "metrics.json",
)


class RunFolder:
    """``with RunFolder(out) as staging:`` write files into ``staging``; they appear in ``out`` at the end.

    If anything goes wrong, or the user stops it, nothing appears, and folders made for it are gone again.
    """

    def __init__(self, out: Path, *, force: bool = False, needs_bytes: int = 0) -> None:
        self.out, self.force, self.needs_bytes = out, force, needs_bytes
        self._made: list[Path] = []  # folders that this object made, outermost first
        self._staging: Path | None = None

    def check(self, inputs: Iterable[Path] = ()) -> None:
        """Refuse at once what would fail after a long training, or would replace one of the files that it reads."""
        with explained(self.out):
            self._check()
            self._refuse_to_replace_inputs(list(inputs))

    def _check(self) -> None:
        if self.out.exists() and not self.out.is_dir():
            raise OutputError(f"{self.out} is a file: give a folder that is new or empty")
        self._refuse_to_replace()
        at = next(place for place in (self.out, *self.out.absolute().parents) if place.exists())
        free = shutil.disk_usage(at).free
        if free < self.needs_bytes:
            raise OutputError(
                f"{self.out} can't be written: about {self.needs_bytes / 1e6:.1f} MB are needed and "
                f"{free / 1e6:.1f} MB are free, the disk is full; free some space or choose another place"
            )

    def __enter__(self) -> Path:
        self.check()
        try:
            with explained(self.out):
                for folder in self._missing():
                    folder.mkdir(exist_ok=True)
                    self._made.append(folder)
                self._staging = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.out))
        except BaseException:
            self._clean()
            raise
        return self._staging

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._staging is not None:
                self._show(self._staging)
                self._made = []  # the folders stay
        finally:
            self._clean()

    def _show(self, staging: Path) -> None:
        """Move an older run away and the files to their final names, or put everything back."""
        files = sorted(staging.iterdir(), key=_metrics_last)
        with explained(self.out):
            self._refuse_to_replace()  # another run may have ended there meanwhile
            older = Path(tempfile.mkdtemp(prefix=".older-", dir=staging))  # goes with the staging folder
            shown: list[Path] = []
            try:
                for path in self._held():
                    path.replace(older / path.name)
                for path in files:
                    shown.append(self.out / path.name)
                    path.replace(self.out / path.name)
            except BaseException:
                for path in shown:
                    path.unlink(missing_ok=True)
                for path in older.iterdir():
                    path.replace(self.out / path.name)
                raise

    def _refuse_to_replace(self) -> None:
        held = self._held()
        if held and not self.force:
            raise OutputError(
                f"{self.out} already holds a run ({held[0].name}): choose another folder, or replace it with --force"
            )

    def _refuse_to_replace_inputs(self, inputs: list[Path]) -> None:
        for path in self._held():
            if is_any_of(path, inputs):
                raise OutputError(f"{path} is an input and would be replaced by the run: choose another folder")

    def _held(self) -> list[Path]:
        return [self.out / name for name in RUN_FILES if (self.out / name).exists()]

    def _missing(self) -> Iterable[Path]:
        folders = [place for place in (self.out, *self.out.parents) if not place.exists()]
        return reversed(folders)

    def _clean(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        for folder in reversed(self._made):
            try:
                folder.rmdir()
            except OSError:  # somebody put something there meanwhile
                break


def _metrics_last(path: Path) -> tuple[bool, str]:
    return path.name == "metrics.json", path.name
