"""What a network can do beyond ``forward``, as protocols to test with ``isinstance``.

Shapes: B patches, D side of a patch, C components (or bands), n classes. Every network maps patches (B, D, D, C) to
class scores (B, n); the abilities below are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hypercaps.compute import native

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hypercaps.models.capsules.compiled import CompiledConvCapsNet


@runtime_checkable
class IndexedForward(Protocol):
    """Scores patches without copying them; nearly all of its work is done by the compiled kernels."""

    @property
    def is_batch_invariant(self) -> bool:
        """Whether, without gradients, a pixel's scores are the same to the bit whatever else is in its batch."""

    def forward_indexed(self, spectra: Tensor, places: Tensor) -> Tensor:
        """Spectra (S, C) and the row of each patch's pixels in them (B, D*D) int32 -> scores (B, n)"""


@runtime_checkable
class DirectGradients(Protocol):
    """Computes the gradients of its margin loss by the compiled kernels, while ``is_batch_invariant``."""

    @property
    def is_batch_invariant(self) -> bool:
        """As in ``IndexedForward``."""

    def set_gradients(self, spectra: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Leave the gradients in the parameters as ``backward`` does, without autograd; returns the loss.

        Spectra (S, C), the row of each patch's pixels in them (B, D*D) int32, and class indices (B,).
        """


@runtime_checkable
class Compilable(Protocol):
    """Can be applied by the compiled kernels alone."""

    def compiled(self) -> CompiledConvCapsNet | None:
        """The same weights without torch; None: not on this device, or there are no kernels."""


@runtime_checkable
class StepMemory(Protocol):
    """Knows the memory of a training step by the compiled kernels."""

    def step_numbers(self, pixels: int) -> int:
        """Number of float32 numbers that a step on so many pixels keeps or writes, without the weights."""


@runtime_checkable
class WindowForward(Protocol):
    """Scores pixels of a window together, sharing work between neighbouring patches."""

    def over_window(self, window: Tensor) -> Tensor:
        """Window with its halo (h + D - 1, w + D - 1, C) -> scores (h, w, n)"""

    def at_pixels(self, window: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
        """The same for pixels (B,) of the window: scores (B, n); rows and columns are counted without the halo"""


@dataclass(frozen=True)
class Samples:
    """Pixels to fit a method to, or to choose its settings by."""

    features: Tensor  # (N, F) float64
    targets: Tensor  # (N,) int64: class indices
    units: Tensor | None = None  # (N,) int64: number of each pixel's spatial unit; None: unknown


@runtime_checkable
class Solvable(Protocol):
    """Is fitted to all training pixels at once, without epochs."""

    @property
    def found(self) -> Mapping[str, int | float]:
        """The sizes and settings that ``solve`` determined, as arguments of the constructor."""

    def features(self, patches: Tensor) -> Tensor:
        """The part of the patches that is used: (B, D, D, C) -> (B, F) float64"""

    def solve(self, training: Samples, validation: Samples | None = None) -> None:
        """Fit to training pixels.

        Validation pixels may choose settings, and so may cross-validation that leaves out whole spatial units.
        """


@runtime_checkable
class Growing(Protocol):
    """Has parameters whose number ``solve`` determines, such as support vectors."""

    def most_bytes(self, pixels: int) -> int:
        """Largest size of these parameters for so many training pixels."""


@runtime_checkable
class Linear(Protocol):
    """Scores are weight @ (mean spectrum of the patch) + bias, so that maps need no patches."""

    # A method and not the parameters themselves: Python 3.12 does not find those of a module in ``isinstance``.
    def weight_and_bias(self) -> tuple[Tensor, Tensor]:
        """The weight (n, C) and the bias (n,)."""


@runtime_checkable
class Explainable(Protocol):
    """Routes capsules along the spectrum to class capsules, so that a class can be traced back to the bands."""

    @property
    def view(self) -> tuple[int, int]:
        """Number of components that one position of the lower capsules sees, and the step between positions."""

    @property
    def viewpoints(self) -> Tensor:
        """Viewpoint matrices from each lower capsule to each class capsule: (positions, arrays, n, e, d)"""

    @property
    def routings(self) -> int:
        """Number of routing iterations."""

    def lower_capsules(self, patches: Tensor) -> Tensor:
        """Patches (B, D, D, C) -> the capsules that are routed to the classes (B, positions, arrays, e)"""


def kernel_threads(network: nn.Module) -> AbstractContextManager[None]:
    """Leave the processor's cores to the compiled kernels, for a network that uses them; else do nothing."""
    if isinstance(network, IndexedForward) and native.available():
        return native.torch_on_one_thread()
    return nullcontext()
