"""The checkpoint file of one training: when it is written, who may use it, and whether it fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from torch import nn

from hypercaps.errors import CheckpointError, CheckpointInUseError, OutputError, warn_data
from hypercaps.io.writers.lock import lock_file
from hypercaps.models.history import History
from hypercaps.training.checkpoint import Checkpoint, FinishedStage, StageState, read_checkpoint

EVERY = 60.0  # seconds between two checkpoints; shorter trainings write none
_WORK = 50  # a large checkpoint is written less often: training takes so many times as long as writing
_LONGEST = 4  # times EVERY, at most

Identity = Mapping[str, object]


class CheckpointFile:
    """The checkpoint of a training, for one process at a time: a context manager, given to ``fit`` as ``checkpoint``.

    A checkpoint that is already there is continued. It is written every minute (:data:`EVERY`) and when the training is
    stopped, and stays until :meth:`remove` is called. If it can't be written, the training goes on with a warning.

    Parameters
    ----------
    path : Path
        The file; a lock is held beside it.
    request : mapping, optional
        How to repeat the command, as JSON; kept in the file.
    resume : bool, default True
        Continue a checkpoint that is there; False: replace it.
    wait : float, default 0
        Seconds to wait for a process that uses it.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from hypercaps import ConvCapsClassifier
    >>> from hypercaps.training.checkpoint_file import CheckpointFile
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + np.arange(20)[:, None, None] // 10
    >>> truth = 1 + np.arange(400).reshape(20, 20) // 200
    >>> with CheckpointFile(Path("long.checkpoint.safetensors")) as checkpoint:
    ...     trained = ConvCapsClassifier(recipe="paper", epochs=1).fit(cube, truth, checkpoint=checkpoint)
    ...     trained.save("model.safetensors")
    ...     checkpoint.remove()
    """

    def __init__(
        self, path: Path, request: Mapping[str, object] | None = None, *, resume: bool = True, wait: float = 0.0
    ) -> None:
        self.path, self.request, self.resume, self.wait = path, dict(request or {}), resume, wait
        self.found: Checkpoint | None = None  # what an earlier process has left
        self._finished: tuple[FinishedStage, ...] = ()
        self._identity: Callable[[], Identity] = dict
        self._began = self._next = float("inf")
        self._is_written = self._warned = False
        self._stack = ExitStack()

    def __enter__(self) -> CheckpointFile:
        with ExitStack() as stack:
            until = time.monotonic() + self.wait
            while not (is_ours := stack.enter_context(lock_file(self.path.with_suffix(".lock")))):
                if time.monotonic() >= until:
                    break
                time.sleep(0.1)
            if not is_ours:
                raise CheckpointInUseError(f"{self.path.parent} is being trained by another hypercaps: wait for it")
            self._remove_temporary()
            if not self.resume:  # or a later process would continue it
                self.remove()
            self.found = read_checkpoint(self.path) if self.resume and self.path.exists() else None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, identity: Callable[[], Identity]) -> None:
        """Start or continue the training that ``identity`` describes; refuse a checkpoint of another one.

        ``identity`` is only called if there is a checkpoint to compare or to write.
        """
        self._identity = identity
        self._began = time.monotonic()
        self._next = self._began + EVERY
        self._finished = ()  # not those of a training before
        if self.found is not None:
            self._refuse_another(self.found.identity, identity())
            self._finished = self.found.finished

    def _refuse_another(self, theirs: Identity, ours: Identity) -> None:
        for name in ours:
            if theirs.get(name) != ours[name]:
                values = theirs.get(name), ours[name]
                are_short = all(len(str(value)) < 60 for value in values)
                which = f" ({values[0]}, and now {values[1]})" if are_short else ""
                raise CheckpointError(
                    f"checkpoint {self.path} is of a training with another {name}{which}: repeat that training, or "
                    "delete the checkpoint to train from the start (docs/run-folder.md)"
                )

    def state(self, stage: int) -> StageState | None:
        """The state in which to continue a stage, numbered from 1; None: from its start."""
        if self.found is None or self.found.state.numbers.stage != stage:
            return None
        return self.found.state

    def finished(self, stage: int) -> FinishedStage | None:
        """The result of a stage, numbered from 1, that is done."""
        return self._finished[stage - 1] if stage <= len(self._finished) else None

    def finish(self, network: nn.Module, history: History) -> None:
        """Keep the result of a stage that another one follows."""
        weights = {key: value.clone() for key, value in network.state_dict().items()}
        self._finished = (*self._finished, FinishedStage(history, weights))

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def keep_if_long(self) -> bool:
        """Remove the checkpoint that Ctrl-C left of a short training; whether there is one to continue from."""
        if self.found is None and self._is_written and time.monotonic() < self._began + EVERY:
            self.remove()
            return False
        return self.found is not None or self._is_written

    def save(self, state: StageState) -> bool:
        """Write the state of the current stage, in place of any earlier one; False: it can't be written."""
        started, is_written = time.monotonic(), False
        try:
            Checkpoint(self._identity(), state, self._finished, self.request).write(self.path)
            is_written = True
        except OutputError as error:
            if not self._warned:
                warn_data(f"no checkpoint was kept, and the training goes on without one: {error}")
            self._warned = True
        seconds = time.monotonic() - started
        self._next = time.monotonic() + min(max(EVERY, _WORK * seconds), _LONGEST * EVERY)
        self._is_written |= is_written
        return is_written

    def remove(self) -> None:
        """Remove the file: the training is finished, and its result is kept."""
        self.path.unlink(missing_ok=True)

    def _remove_temporary(self) -> None:
        """Files of a process that was killed while it wrote a checkpoint."""
        for path in self.path.parent.glob(f".{self.path.name}.*.partial"):
            path.unlink(missing_ok=True)
