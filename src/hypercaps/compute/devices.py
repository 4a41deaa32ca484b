"""Device, precision, threads, memory and versions."""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version

import psutil
import torch

from hypercaps.compute import native
from hypercaps.errors import ModelError

PRECISIONS = ("float32", "bfloat16")


def arithmetic_here() -> str:
    """What the last digits of results depend on: the variant of the kernels, and torch's for this processor."""
    return f"{native.variant() or 'no'} kernels and torch for {torch.backends.cpu.get_cpu_capability()}"


@dataclass(frozen=True)
class Device:
    """A device as torch names it (``cpu``, ``cuda``, ``cuda:1``, ``mps``), and the precision of its products.

    The compiled kernels are for float32 on the processor; everything else goes through torch.
    """

    name: str = "cpu"
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ModelError(f"precision is {self.precision!r}: {' or '.join(PRECISIONS)} is expected")
        try:
            torch.zeros(1, device=self.name).item()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"device {self.name!r} can't be used here ({reason}): give cpu, or leave it out") from None

    def arithmetic(self) -> AbstractContextManager[object]:
        """Context in which products have this precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(torch.device(self.name).type, dtype=torch.bfloat16)


def resident_memory() -> int:
    """Bytes of memory that this process uses."""
    return int(psutil.Process().memory_info().rss)


def current_versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("hypercaps", "torch", "numpy")}


def use_threads(threads: int) -> None:
    """Set the number of processor threads of training and mapping."""
    torch.set_num_threads(threads)


def threads_in_use() -> int:
    return torch.get_num_threads()


def total_memory() -> int:
    """Bytes of memory of this machine."""
    return int(psutil.virtual_memory().total)


def available_memory() -> int:
    """Bytes that can be allocated without swapping."""
    return int(psutil.virtual_memory().available)
