"""The project: a folder with everything that was made of a scene. One server at a time works in it."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypercaps.data.scene import Scene
from hypercaps.errors import OutputError
from hypercaps.io import catalog
from hypercaps.io.paths import remote_address
from hypercaps.io.writers.atomic import translate_write_errors, write_json
from hypercaps.io.writers.lock import lock_file

SUFFIX = ".hypercaps"
_RECORD = "project.json"
_FORMAT = 1


class Project:
    """``with Project(folder, scene) as project``: the folder of a scene, created if it does not exist."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self.folder, self._scene = folder, scene
        self._lock = ExitStack()

    def __enter__(self) -> Project:
        with translate_write_errors(self.folder), ExitStack() as opening:
            self._check_is_ours()
            self.folder.mkdir(parents=True, exist_ok=True)
            if not opening.enter_context(lock_file(self.folder / ".lock")):
                raise OutputError(f"{self.folder} is open in another 'hypercaps serve': use that one, or stop it first")
            self._check_scene()
            for name in ("trainings", "overviews", "runs"):
                (self.folder / name).mkdir(exist_ok=True)
            for left in self.folder.glob(".upload-*"):  # by a server that was killed
                shutil.rmtree(left, ignore_errors=True)
            self._lock = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def name(self) -> str:
        return self.folder.name.removesuffix(SUFFIX)

    def _check_is_ours(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputError(f"{self.folder} is a file: name a folder with --project")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / _RECORD).exists():
            raise OutputError(f"{self.folder} is a folder with other files: name a new folder with --project")

    def _check_scene(self) -> None:
        path, own = self.folder / _RECORD, self._describe()
        if not path.exists():
            write_json(path, own)
            return
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            known, number = kept["scene"], kept["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise OutputError(f"{path} is damaged: restore it from a copy, or name a new --project") from error
        if number != _FORMAT:
            raise OutputError(f"{self.folder} was made by another version of hypercaps: name a new --project")
        if known["fingerprint"] != own["scene"]["fingerprint"]:
            raise OutputError(
                f"{self.folder} is the project of another scene ({known['name']}, {known['shape']}): name the folder "
                "of this one with --project, or open the scene it was made for"
            )

    def _describe(self) -> dict[str, Any]:
        scene = self._scene
        about = {"name": scene.name, "shape": list(scene.shape), "fingerprint": scene.fingerprint()}
        return {"format": _FORMAT, "scene": about}


def default_folder(spec: str) -> Path:
    """Beside the scene, NAME.hypercaps; in the current folder for a public scene, an address or tiles."""
    first = spec.partition(",")[0].removeprefix("@")
    if spec in catalog.names() or remote_address(spec, allowed=True) is not None:
        return Path(first.rpartition("/")[2] + SUFFIX)
    path = Path(first)
    if not path.exists() and ":" in path.name:  # one array of several
        path = path.with_name(path.name.rpartition(":")[0])
    if any(sign in path.name for sign in "*?["):
        return path.parent / f"tiles{SUFFIX}"
    return path.parent / (path.stem + SUFFIX)
