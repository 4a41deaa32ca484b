"""Starting the processes that share a training, following them, and saying in one sentence what went wrong.

The calling process reads the scene and keeps what comes out; those it starts do nothing but the training loop.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from hypercaps.errors import Interrupted, ModelError, OutputError, TrainingError
from hypercaps.models.registry import Method, Recipe, SelfTraining, SolvedRecipe
from hypercaps.training.loop import Examples, History, Progress
from hypercaps.training.parallel.worker import WEIGHTS, Ended, Failed, Job, work, write_examples

OnProgress = Callable[[Progress], None]

_RUN_AGAIN = 93  # exit code of a process that found itself running the user's script from the top
_PATIENCE = 2.0  # seconds for the other processes to say what is wrong, once one has failed


def check_devices(devices: int, method: Method, recipe: Recipe | SolvedRecipe, device: str) -> None:
    """Refuse, before anything is read, a training that can't be shared by so many."""
    if devices == 1:
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(_RUN_AGAIN)  # the parent says it in a sentence
    if isinstance(recipe, SolvedRecipe):
        raise ModelError(f"{method.name} is solved at once and can't be shared by {devices} devices: take one")
    if isinstance(recipe, SelfTraining):
        raise ModelError(
            f"recipe {recipe.name} trains two networks, one by what the other says of the scene, and can't be shared "
            f"by {devices} devices: take recipe paper, or one device"
        )
    if method.semi_supervised is not None:
        raise ModelError(
            f"{method.name} normalises over whole batches, unlabelled pixels included, and can't be shared by "
            f"{devices} devices: take one"
        )
    if device not in ("cpu", "cuda"):
        raise ModelError(f"{devices} devices can share a training on cpu or cuda, not on {device!r}: take one")
    if device == "cuda" and torch.cuda.device_count() < devices:
        raise ModelError(f"{devices} devices were asked for and {torch.cuda.device_count()} GPUs are here: take fewer")
    if importlib.util.find_spec("lightning_fabric") is None:
        raise ModelError(
            f"to train on {devices} devices lightning-fabric is needed and is not installed: pip install "
            "'hypercaps[cluster]', or take one device"
        )
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise ModelError(f"hypercaps starts its {devices} processes itself: run it without torchrun")


def train_in_processes(
    job: Job, network: nn.Module, examples: Examples, on_progress: OnProgress | None = None
) -> History:
    """As :func:`hypercaps.training.loop.train`, by ``job.processes`` processes; ``network`` ends with the weights."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="hypercaps-") as name:
        folder = Path(name)
        try:
            write_examples(folder, examples)
        except OSError as error:
            raise OutputError(
                f"the examples for {job.processes} processes can't be written to {folder} ({error.strerror}): set "
                "TMPDIR to a folder with more room"
            ) from None
        endings = follow(job, folder, on_progress)
        if len({ending.digest for ending in endings}) > 1:
            raise TrainingError(
                f"the {job.processes} processes came to different weights, which must not happen: train on one device"
            )
        network.load_state_dict(safetensors.torch.load_file(folder / WEIGHTS))
    return replace(endings[0].history, seconds=time.perf_counter() - started)


def follow(job: Job, folder: Path, on_progress: OnProgress | None = None) -> list[Ended]:
    """Start the processes and follow them to their end; when this returns there are none left, whatever happened."""
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads half-way
    processes: list[Any] = []
    try:
        pipes: dict[Connection, int] = {}
        with _handling_interrupts_by(signal.SIG_IGN):  # a process keeps that while it is not yet ready to
            for rank in range(job.processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs, job, folder, rank), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()  # so that its death is the end of the pipe
                pipes[ours] = rank
        interrupts = _Interrupts()
        with _handling_interrupts_by(interrupts.note):
            ended, failed = _listen(pipes, interrupts, on_progress)
        for rank, process in enumerate(processes):
            if rank not in ended and rank not in failed:  # its pipe closed without a word, or another failed first
                failed[rank] = _died(job, rank, process)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
    if failed:
        raise min(failed.values(), key=lambda failure: failure.remoteness).error
    return [ended[rank] for rank in range(job.processes)]


def _listen(
    pipes: dict[Connection, int], interrupts: _Interrupts, on_progress: OnProgress | None
) -> tuple[dict[int, Ended], dict[int, Failed]]:
    """What the processes said they ended with, by rank; once one has failed, the others have little time left."""
    ended: dict[int, Ended] = {}
    failed: dict[int, Failed] = {}
    first, told, kept = next(iter(pipes)), False, False
    deadline = float("inf")
    while pipes and time.monotonic() < deadline:
        if interrupts.noted and not told:
            if not kept:  # they may not even have met yet
                raise Interrupted("stopped before the first epoch ended: there is no model to keep")
            told = True
            with suppress(OSError):  # it may have ended by itself
                first.send("stop")  # it tells the others, with the next gradients
        for pipe in wait(list(pipes), timeout=0.2):
            assert isinstance(pipe, Connection)
            rank = pipes[pipe]
            try:
                message = pipe.recv()
            except (EOFError, OSError):
                del pipes[pipe]
                deadline = min(deadline, time.monotonic() + _PATIENCE)
                continue
            if isinstance(message, Ended):
                ended[rank] = message
                del pipes[pipe]
            elif isinstance(message, Failed):
                failed[rank] = message
                del pipes[pipe]
                deadline = min(deadline, time.monotonic() + _PATIENCE)
            else:
                kept = message.last is not None
                try:
                    if on_progress is not None:
                        on_progress(message)
                except KeyboardInterrupt:  # as the user's own
                    interrupts.noted = True
    return ended, failed


def _died(job: Job, rank: int, process: Any) -> Failed:
    process.join(1)
    if process.exitcode == _RUN_AGAIN:
        said = "each process of a training on several devices imports the script that started it: put what the script "
        return Failed(0, ModelError(said + "does under if __name__ == '__main__':"))
    who = f"process {rank + 1} of {job.processes}"
    if process.exitcode is None:
        return Failed(3, TrainingError(f"{who} did not end when another failed"))
    return Failed(
        1,
        TrainingError(
            f"{who} ended before the training did (exit code {process.exitcode}), most often for want of memory: take "
            "fewer devices or a smaller batch"
        ),
    )


class _Interrupts:
    """The first Ctrl-C is only noted, so that no message is cut in two; the second is one as always."""

    def __init__(self) -> None:
        self.noted = False

    def note(self, *_: object) -> None:
        if self.noted:
            raise KeyboardInterrupt
        self.noted = True


@contextmanager
def _handling_interrupts_by(handler: Any) -> Iterator[None]:
    in_main = threading.current_thread() is threading.main_thread()  # signals never come elsewhere
    if not in_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # or, say by nohup, not at all
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
