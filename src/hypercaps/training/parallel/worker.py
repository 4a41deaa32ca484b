"""What the processes do that share a training: the loop and nothing else.

They print nothing and write nothing but the weights that they end with. They talk on this machine only.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from hypercaps.compute.devices import Device, use_threads
from hypercaps.errors import HypercapsError, TrainingError
from hypercaps.models.registry import Recipe, get_method
from hypercaps.training.loop import Examples, History, train
from hypercaps.training.parallel.orphans import end_with_parent
from hypercaps.training.parallel.sharing import Shared
from hypercaps.training.patches import PatchStore

if TYPE_CHECKING:
    from lightning_fabric import Fabric

WEIGHTS = "weights.safetensors"
_INDICES = ("targets", "train", "val")


@dataclass(frozen=True)
class Job:
    """All that a process needs to know to build the network and train it; the examples lie in a folder."""

    method: str
    recipe: str
    sizes: dict[str, Any]  # of the network
    seed: int
    epochs: int
    batch_size: int
    device: Device
    processes: int
    threads: int  # of each process


class Ended(NamedTuple):
    """What a process ends with."""

    history: History
    digest: str  # of its weights


class Failed(NamedTuple):
    """What went wrong in a process."""

    remoteness: int  # 0: an error of ours, 1: it died, 2: another error, which may follow from another's death
    error: HypercapsError


def write_examples(folder: Path, examples: Examples) -> None:
    """Arrays that all processes map: each page is in memory once, and no /dev/shm of a container runs over."""
    for name, array in examples.store.arrays().items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    for name in _INDICES:
        np.save(folder / f"{name}.npy", getattr(examples, name).numpy(), allow_pickle=False)


def read_examples(folder: Path, patch: int) -> Examples:
    def mapped(name: str) -> Any:  # copy on write: torch wants arrays that it could write to
        return np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)

    store = PatchStore.from_arrays(mapped("spectra"), mapped("places"), patch)
    return Examples(store, *(torch.from_numpy(np.array(mapped(name))) for name in _INDICES))


def work(pipe: Connection, job: Job, folder: Path, rank: int) -> None:
    """Train as process number ``rank``, and say through the pipe how it goes and how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=end_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")  # the parent has said what there is to say
    message: Ended | Failed
    try:
        message = _train(pipe, job, folder, rank)
    except HypercapsError as error:
        message = Failed(0, error)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        said = f"process {rank + 1} of {job.processes} failed: {type(error).__name__}: {reason}"
        message = Failed(2, TrainingError(said))
    pipe.send(message)


def _train(pipe: Connection, job: Job, folder: Path, rank: int) -> Ended:
    method = get_method(job.method)
    recipe = method.recipe(job.recipe)
    assert isinstance(recipe, Recipe)
    network = method.network(**job.sizes, seed=job.seed)
    fabric = _join(job, folder, rank)
    use_threads(job.threads)  # after fabric, which has an opinion of its own

    def add_up(part: Tensor) -> Tensor:
        summed = fabric.all_reduce(part, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    device = Device(str(fabric.device), job.device.precision)
    network.to(device.name)
    history = train(
        network,
        method.loss,
        read_examples(folder, job.sizes["patch"]),
        recipe.make_optimizer(network),
        epochs=job.epochs,
        batch_size=job.batch_size,
        seed=job.seed,
        device=device,
        on_progress=pipe.send if rank == 0 else None,
        sharing=Shared(rank, job.processes, add_up, stop=pipe.poll),
    )
    weights = {key: value.cpu().contiguous() for key, value in network.state_dict().items()}
    if rank == 0:
        safetensors.torch.save_file(weights, folder / WEIGHTS)
    torch.distributed.destroy_process_group()
    return Ended(history, _digest(weights))


def _join(job: Job, folder: Path, rank: int) -> Fabric:
    """Meet the other processes; fabric then says which device is this one's, and adds up over all of them."""
    from lightning_fabric import Fabric  # seconds, and only these processes need it
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0"}  # so fabric knows that it need not start processes
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, _loopback())
    accelerator = torch.device(job.device.name).type
    # Fabric would have them meet at a port that is open to the network; a file is nobody else's.
    torch.distributed.init_process_group(
        "nccl" if accelerator == "cuda" else "gloo",
        store=torch.distributed.FileStore(str(folder / "meeting"), job.processes),  # type: ignore[attr-defined]
        rank=rank,
        world_size=job.processes,
    )
    # The environment is named: inside a Slurm job fabric would take the job's tasks for its processes.
    fabric = Fabric(accelerator=accelerator, devices=job.processes, strategy="ddp", plugins=[LightningEnvironment()])
    fabric.launch()
    return fabric


def _loopback() -> str:
    """This machine's name for the network that does not leave it."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")


def _digest(weights: dict[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for key in sorted(weights):
        sha.update(key.encode() + weights[key].numpy().tobytes())
    return sha.hexdigest()
