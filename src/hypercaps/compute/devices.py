"""Device, precision, threads and versions."""

from __future__ import annotations

import platform
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from hypercaps.compute import native
from hypercaps.errors import MissingTorchError, ModelError

PRECISIONS = ("float32", "bfloat16")


_AND_TORCH = " and torch for "


def arithmetic_here() -> str:
    """What the last digits of results depend on: the variant of the kernels and, if it is used, torch's."""
    kernels = f"{native.variant() or 'no'} kernels"
    if sys.modules.get("torch") is None:
        return kernels
    import torch

    return f"{kernels}{_AND_TORCH}{torch.backends.cpu.get_cpu_capability()}"


def is_same_arithmetic(one: str, other: str) -> bool:
    """Whether two processes compute alike, by ``arithmetic_here``; torch counts if both have used it."""
    (kernels, _, torchs), (other_kernels, _, other_torchs) = (text.partition(_AND_TORCH) for text in (one, other))
    return kernels == other_kernels and (torchs == other_torchs or not torchs or not other_torchs)


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
        if self.is_plain:
            return
        torch = import_torch(f"device {self.name!r} with {self.precision}")
        try:
            torch.zeros(1, device=self.name).item()
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ModelError(f"device {self.name!r} can't be used here ({reason}): give cpu, or leave it out") from None

    @property
    def is_plain(self) -> bool:
        """Whether it is what the compiled kernels are for: float32 on the processor."""
        return (self.name, self.precision) == ("cpu", "float32")

    def arithmetic(self) -> AbstractContextManager[object]:
        """Context in which products have this precision."""
        if self.precision == "float32":
            return nullcontext()
        import torch

        return torch.autocast(torch.device(self.name).type, dtype=torch.bfloat16)


def current_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on, as far as they are installed."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("hypercaps", "torch", "numpy"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def import_torch(what_for: str, instead: str = "") -> Any:
    """Import torch for ``what_for``; without it, the error names ``instead`` as an alternative."""
    try:
        import torch
    except ImportError as error:
        raise MissingTorchError(
            f"{what_for} needs PyTorch, which can't be imported here ({error}): install it (pip install torch){instead}"
        ) from error
    return torch


def use_threads(threads: int) -> None:
    """Set the number of processor threads of training and mapping."""
    native.set_threads(threads)


def threads_in_use() -> int:
    """Number of threads of torch, which has one while the kernels compute, or of the kernels without it."""
    torch = sys.modules.get("torch")
    return native.threads() if torch is None else int(torch.get_num_threads())
