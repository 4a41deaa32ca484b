"""``hypercaps train --resume DIR``: the options of a training that was stopped, from its checkpoint."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from hypercaps.cli.values import STDOUT, CommandOptions, command_line
from hypercaps.errors import CheckpointError

# Options that may differ when a training is continued: the result does not depend on them.
_FREE = frozenset({"resume", "budget", "threads", "memory", "debug", "allow_remote", "json_file", "progress", "quiet"})
# Not kept: only the user, and not a file, allows access to the network, each time anew.
_NEW_EACH_TIME = frozenset({"resume", "out", "budget", "debug", "allow_remote", "json_file", "progress", "quiet"})


def kept_options(options: CommandOptions) -> dict[str, Any]:
    """The part of the command that a checkpoint keeps: typed options, the folder that file names are relative to."""
    typed = {name: _as_json(options[name]) for name in sorted(options.typed - _NEW_EACH_TIME)}
    return {"options": typed, "folder": str(Path.cwd()), "command": command_line()}


@dataclass(frozen=True)
class StoppedTraining:
    """A training that was stopped."""

    out: Path  # the run folder
    kept: Mapping[str, Any]  # what kept_options returned

    @classmethod
    def read(cls, out: Path) -> StoppedTraining:
        """The training whose checkpoint is in a run folder."""
        from hypercaps.io.writers.run_folder import CHECKPOINT
        from hypercaps.training.checkpoint import read_checkpoint

        if not (out / CHECKPOINT).exists():
            if (out / "metrics.json").exists():
                raise CheckpointError(f"the run in {out} is finished: there is nothing to continue")
            raise CheckpointError(
                f"there is no checkpoint in {out}: a training writes one after a minute, unless it has folds or "
                "--method auto; start it again"
            )
        kept = read_checkpoint(out / CHECKPOINT).request
        kinds = {"options": dict, "folder": str, "command": str}
        if not all(isinstance(kept.get(name), kind) for name, kind in kinds.items()):
            raise CheckpointError(
                f"the checkpoint in {out} was not written by 'hypercaps train': continue it with the program that did"
            )
        return cls(out, kept)

    def merged_with(self, options: CommandOptions, ctx: typer.Context) -> CommandOptions:
        """The options that the training was started with; refuse typed ones that contradict them.

        To be called outside of ``in_its_folder``: the run folder is relative to the user's own.
        """
        kept, values = self.kept["options"], self._values(ctx)
        for name in sorted(options.typed - _FREE):
            if name == "out" and options["out"].absolute() == self.out.absolute():
                continue
            if _as_json(options[name]) != kept.get(name, _as_json(options.defaults.get(name))):
                raise CheckpointError(
                    f"{_shown(name)} does not agree with the training in {self.out}, which was begun by "
                    f"'{self.kept['command']}': leave it out"
                )
        typed = {name: options[name] for name in options.typed & _FREE}
        if typed.get("json_file") not in (None, STDOUT):
            typed["json_file"] = typed["json_file"].absolute()
        return replace(
            options,
            values={**options.values, **values, **typed, "out": self.out if self._is_here else self.out.absolute()},
            typed=frozenset(values) | options.typed | {"out"},
        )

    def _values(self, ctx: typer.Context) -> dict[str, Any]:
        """The kept options, as the command line gives them; refuse values that it could not have given."""
        values = {}
        for parameter in ctx.command.params:
            name = parameter.name
            if name is None or name in _NEW_EACH_TIME or name not in self.kept["options"]:
                continue
            kept = self.kept["options"][name]
            try:
                values[name] = parameter.process_value(ctx, kept)
                is_same = json.loads(json.dumps(_as_json(values[name]))) == kept
            except (typer.BadParameter, TypeError, ValueError, ArithmeticError):
                is_same = False
            if kept is None or not is_same:
                raise CheckpointError(
                    f"the checkpoint in {self.out} has {reprlib.repr(kept)} for {_shown(name)}, which is no value of "
                    "it: delete the checkpoint, and train from the start"
                )
        return values

    def in_its_folder(self) -> AbstractContextManager[None]:
        """File names are relative to the folder in which the training was started, if that still exists."""
        return nullcontext() if self._is_here else chdir(self.kept["folder"])

    @property
    def _is_here(self) -> bool:
        folder = Path(self.kept["folder"])
        return not folder.is_dir() or folder == Path.cwd()


def _as_json(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _shown(name: str) -> str:
    if name in ("scene", "labels"):
        return name.upper()
    return "--map" if name == "with_map" else f"--{name.replace('_', '-')}"
