"""Which part of the spectrum a class capsule listened to.

Routing ends with coupling coefficients l(i): how much of what capsule i says goes to the class. With them the class
capsule is s = sum of l(i) û(i), and its length before the squash is the sum of l(i) <û(i), s/|s|>: coupling times
agreement, capsule by capsule. Couplings and direction are held as the routing left them. What remains is the way from
the spectrum to the capsules û(i), and it is gone back by integrated gradients: from the mean of the scene the model was
trained on, which whitening makes zero, to the pixel step by step. The gradient passes the constraint windows,
SpatialConv and the whitening, so each band gets its part of the length, for the class (above 0) or against it (below),
and the parts add up to what sets the pixel apart from the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hypercaps.compute import native
from hypercaps.data.labels import LegendEntry
from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import ModelError, SceneError
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import map_window
from hypercaps.models.capsules.routing import coupling_coefficients, prediction_vectors
from hypercaps.models.protocols import Explainable
from hypercaps.training.patches import read_with_halo, reflect_invalid
from hypercaps.training.preprocessing import PCAWhitening

STEPS = 32  # of the way from the mean to the pixel
REMOVED = 0.05  # share of the bands that the check takes away
DRAWS = 10  # random choices of as many bands that it compares with
MOST_PIXELS = 100  # that stand for a class
_AT_ONCE = 16  # pixels that go through the network together
_SIDE = 32  # of the windows in which pixels of a class are looked for: whole tiles
_WINDOWS = 256  # of them: a quarter of a million pixels

Floats = npt.NDArray[np.float64]
OnProgress = Callable[[int, int], None]  # pixels done, pixels in all


class Deletion(NamedTuple):
    """Does it matter? Lengths of the class capsule, mean over the pixels, with bands put to the mean."""

    bands: int  # that were taken away
    length: float  # with all bands
    without_top: float  # without those that speak most for the class, in each pixel its own
    without_random: float  # without as many at random, mean of several draws
    larger_drop: float  # share of the pixels where the former cost more than the latter did on average


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a class capsule listened to, in one pixel or on average over several."""

    scene: str
    entry: LegendEntry  # the class
    pixels: npt.NDArray[np.int64]  # (N, 2) rows and columns
    each: Floats  # (N, bands): the part of each band in the length before the squash; below 0 against the class
    components: Floats  # (components,): the same by component, mean over the pixels
    couplings: Floats  # (positions,): mean coupling coefficient of the capsules at each position
    contributions: Floats  # (positions,): coupling times agreement; their sum is the length before the squash
    at_mean: float  # what couplings and direction give the mean: with the sum of relevance, that of contributions
    view: tuple[int, int]  # components that a position sees, and the step from one position to the next
    spectrum: Floats  # (bands,): mean of the pixels
    mean: Floats  # (bands,): of the scene that the model was trained on
    wavelengths: Floats | None  # (bands,) nm
    deletion: Deletion

    @property
    def relevance(self) -> Floats:
        """(bands,): mean over the pixels"""
        return np.asarray(self.each.mean(axis=0))

    @property
    def share(self) -> Floats:
        """(bands,): the same as a share of all that was heard, for and against; below 0 against"""
        relevance = self.relevance
        return np.asarray(relevance / max(float(np.abs(relevance).sum()), np.finfo(np.float64).tiny))

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        width, step = self.view
        return {
            "scene": self.scene,
            "class": {"label": self.entry.label, "name": self.entry.name},
            "pixels": self.pixels.tolist(),
            "wavelengths_nm": None if self.wavelengths is None else self.wavelengths.tolist(),
            "relevance": self.relevance.tolist(),
            "at_mean": self.at_mean,
            "share": self.share.tolist(),
            "spectrum": self.spectrum.tolist(),
            "mean_spectrum": self.mean.tolist(),
            "components": self.components.tolist(),
            "positions": [
                {"components": [i * step, i * step + width - 1], "coupling": coupling, "contribution": part}
                for i, (coupling, part) in enumerate(
                    zip(self.couplings.tolist(), self.contributions.tolist(), strict=True)
                )
            ],
            "deletion": self.deletion._asdict(),
        }


def explain_at(model: TrainedModel, scene: Scene, row: int, col: int, *, label: int | None = None) -> Explanation:
    """What the capsule of the class that the model gives to a pixel listened to there, or that of class ``label``."""
    _check(model, scene)
    if not (0 <= row < scene.rows and 0 <= col < scene.cols):
        raise SceneError(
            f"row {row}, column {col} is outside scene {scene.name!r}: rows go from 0 to {scene.rows - 1} and columns "
            f"from 0 to {scene.cols - 1}"
        )
    pixel = np.array([[row, col]])
    if label is None:
        patch, _ = _read(model, scene, pixel)
        with torch.inference_mode():
            white = model.preprocessing.transform(patch).to(_device(model))
            output = int(model.network(white).argmax())
    else:
        output = _output(model, label)
    return _explain(model, scene, pixel, output, None)


def explain_class(
    model: TrainedModel,
    scene: Scene,
    label: int,
    *,
    most: int = MOST_PIXELS,
    on_progress: OnProgress | None = None,
) -> Explanation:
    """The same, mean over up to ``most`` pixels that the model gives to the class, evenly over the scene.

    In a large scene they are looked for in windows spread over it, not everywhere.
    """
    _check(model, scene)
    output = _output(model, label)
    windows = list(tile_windows(scene.whole, _SIDE))
    looked = [windows[i] for i in evenly(np.arange(len(windows)), _WINDOWS)]
    found: list[npt.NDArray[np.int64]] = []
    for at in looked:
        classes = map_window(model, scene, at).classes
        found.append(np.argwhere(classes == label) + np.array([at.r0, at.c0]))
    pixels = np.concatenate(found)  # (N, 2), window by window
    if not len(pixels):
        where = "" if len(looked) == len(windows) else " where it was looked for"
        raise SceneError(
            f"the model gives no pixel of scene {scene.name!r} to class {model.legend.entries[output].name}{where}: "
            "name another class, or a pixel and this class"
        )
    return _explain(model, scene, evenly(pixels, most), output, on_progress)


def evenly(things: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Up to ``most`` of them, from the first to the last."""
    return things[np.unique(np.linspace(0, len(things) - 1, min(most, len(things))).round().astype(np.int64))]


def explain_pixels(model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64], label: int) -> Explanation:
    """What the capsule of class ``label`` listened to, mean over valid pixels (N, 2), rows and columns."""
    _check(model, scene)
    return _explain(model, scene, pixels, _output(model, label), None)


def can_explain(model: TrainedModel) -> bool:
    """Whether the model has capsules that can be asked."""
    try:
        _routed(model.network)
    except ModelError:
        return False
    return True


def _explain(
    model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64], output: int, on_progress: OnProgress | None
) -> Explanation:
    parts, checks, spectra = [], [], []
    half = model.patch // 2
    for at in range(0, len(pixels), _AT_ONCE):
        some = pixels[at : at + _AT_ONCE]
        patches, centred = _read(model, scene, some)
        spectra.append(patches[:, half, half].astype(np.float64))
        with native.torch_on_one_thread():  # what is multiplied is small: several threads wait longer than they work
            parts.append(_attribute(model, centred, output))
            checks.append(_delete(model, centred, parts[-1].bands, output, seed=at))
        if on_progress is not None:
            on_progress(at + len(some), len(pixels))
    whole = _Parts(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    length, top, random = np.concatenate(checks, axis=1)
    return Explanation(
        scene=scene.name,
        entry=model.legend.entries[output],
        pixels=pixels,
        each=whole.bands,
        components=whole.components.mean(axis=0),
        couplings=whole.couplings.mean(axis=0),
        contributions=whole.contributions.mean(axis=0),
        at_mean=float(whole.at_mean.mean()),
        view=_routed(model.network).view,
        spectrum=np.concatenate(spectra).mean(axis=0),
        mean=model.preprocessing.mean,
        wavelengths=usable_wavelengths(scene.wavelengths)
        if scene.wavelengths is not None
        else usable_wavelengths(model.wavelengths),
        deletion=Deletion(
            bands=_removed(model.bands),
            length=float(length.mean()),
            without_top=float(top.mean()),
            without_random=float(random.mean()),
            larger_drop=float((top < random).mean()),
        ),
    )


# ---- back from the class to the bands --------------------------------------------------------------------------------


class _Parts(NamedTuple):
    bands: Floats  # (B, bands)
    components: Floats  # (B, components)
    couplings: Floats  # (B, positions)
    contributions: Floats  # (B, positions)
    at_mean: Floats  # (B,)


def _routed(network: nn.Module) -> Explainable:
    if not isinstance(network, Explainable):
        raise ModelError("it has no capsules that are routed to classes")
    return network


def _attribute(model: TrainedModel, centred: Floats, output: int) -> _Parts:
    """Patches less the mean (B, D, D, bands) -> the parts of bands, components and positions in class ``output``"""
    routed = _routed(model.network)
    white = _white_of(model, centred).to(_device(model))  # (B, D, D, C)
    viewpoints = routed.viewpoints.detach().flatten(0, 1)  # (I, n, e, d)
    with torch.no_grad():
        children = routed.lower_capsules(white)  # (B, positions, arrays, e)
        predictions = prediction_vectors(children.flatten(1, 2), viewpoints)  # (B, I, n, d)
        couplings = coupling_coefficients(predictions, routed.routings)[:, :, output]  # (B, I)
        said = couplings[:, :, None] * predictions[:, :, output]  # (B, I, d): l(i) û(i)
        total = said.sum(dim=1)  # (B, d): s
        direction = total / torch.linalg.vector_norm(total, dim=1, keepdim=True).clamp_min(1e-12)
        contributions = torch.einsum("bid,bd->bi", said, direction)  # sum over i: |s|
        # The same as a weight on every number of every child: |s| = <weights, children>
        weights = torch.einsum("bi,ied,bd->bie", couplings, viewpoints[:, output], direction).view_as(children)
        at_mean = (weights * routed.lower_capsules(torch.zeros_like(white))).sum(dim=(1, 2, 3))  # (B,)
    gradient = torch.zeros_like(white)
    for step in range(STEPS):
        # Steps t = u^2 with even u: close to the mean, where capsules are short and turn quickly, they are smaller.
        u = (step + 0.5) / STEPS
        point = (white * u * u).requires_grad_(True)
        heard = (weights * routed.lower_capsules(point)).sum()
        gradient += torch.autograd.grad(heard, point)[0] * (2 * u / STEPS)
    by_component = (gradient * white).sum(dim=(1, 2))  # (B, C)
    # Whitening is linear: the gradient by bands is that by components through its matrix.
    by_band = _through(model, gradient.cpu().double(), back=True).numpy()  # (B, D, D, bands)
    positions = children.shape[:3]
    return _Parts(
        bands=np.einsum("brck,brck->bk", by_band, centred),
        components=_floats(by_component),
        couplings=_floats(couplings.view(positions).mean(dim=2)),
        contributions=_floats(contributions.view(positions).sum(dim=2)),
        at_mean=_floats(at_mean),
    )


def _delete(model: TrainedModel, centred: Floats, relevance: Floats, output: int, *, seed: int) -> Floats:
    """Lengths (3, B) with all bands, without the top ones, and without random ones (mean of some draws)"""
    bands, removed = centred.shape[-1], _removed(centred.shape[-1])
    random = np.random.default_rng(seed).permuted(np.tile(np.arange(bands), (DRAWS, len(centred), 1)), axis=2)
    top = np.argsort(-relevance, axis=1, kind="stable")

    def length(order: npt.NDArray[np.int64]) -> Floats:
        """Of the capsule where the first bands of ``order`` (B, bands) are at the scene's mean, in the whole patch"""
        kept = np.ones((len(centred), bands))
        np.put_along_axis(kept, order[:, :removed], 0.0, axis=1)
        with torch.inference_mode():
            white = _white_of(model, centred * kept[:, None, None]).to(_device(model))
            return _floats(model.network(white)[:, output])

    with torch.inference_mode():
        whole = _floats(model.network(_white_of(model, centred).to(_device(model)))[:, output])
    return np.stack([whole, length(top), np.mean([length(order) for order in random], axis=0)])


def _removed(bands: int) -> int:
    return max(1, round(REMOVED * bands))


# ---- what is asked, and of what --------------------------------------------------------------------------------------


def find_class(model: TrainedModel, text: str) -> int:
    """The label of a class from its name, in any case, or its number."""
    named = [entry.label for entry in model.legend if entry.name.casefold() == text.strip().casefold()]
    if len(named) == 1:
        return named[0]
    if text.strip().isdecimal() and int(text) in model.legend.labels:
        return int(text)
    classes = ", ".join(f"{entry.label} {entry.name}" for entry in model.legend)
    raise ModelError(f"the model has no class {text!r}: give the name or number of one of {classes}")


def _check(model: TrainedModel, scene: Scene) -> None:
    try:
        _routed(model.network)
    except ModelError as error:
        raise ModelError(
            f"a model of method {model.method} can't be explained ({error}): train one of method convcapsnet"
        ) from error
    model.check_fits(scene)


def _output(model: TrainedModel, label: int) -> int:
    found = np.flatnonzero(model.legend.labels == label)
    if not found.size:
        raise ModelError(f"the model has no class {label}: its classes are {model.legend.labels.tolist()}")
    return int(found[0])


def _read(model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.float32], Floats]:
    """Patches around pixels (B, 2) as the network gets them: values (B, D, D, bands), and the same less the mean"""
    half, side = model.patch // 2, model.patch
    patches = np.empty((len(pixels), side, side, scene.bands), dtype=np.float32)
    for i, (row, col) in enumerate(pixels.tolist()):
        read = read_with_halo(scene, Window(row, row + 1, col, col + 1), half)
        if not read.valid[half, half]:
            raise SceneError(
                f"row {row}, column {col} of scene {scene.name!r} holds NaN, infinity or nodata and has no class: name "
                "a pixel with values"
            )
        standing = reflect_invalid(read.valid[None])[0]
        patches[i] = read.values.reshape(side * side, -1)[standing].reshape(side, side, -1)
    return patches, patches - model.preprocessing.mean


def _white_of(model: TrainedModel, centred: Floats) -> Tensor:
    """Values less the mean (..., bands) to (..., components), float32"""
    return _through(model, torch.from_numpy(centred)).float()


def _through(model: TrainedModel, values: Tensor, *, back: bool = False) -> Tensor:
    """Bands (..., bands) through the matrix of the whitening to components, or gradients the way back; float64"""
    preprocessing = model.preprocessing
    if isinstance(preprocessing, PCAWhitening):
        matrix = torch.from_numpy(preprocessing.matrix)
        return values @ (matrix.T if back else matrix)
    return values * torch.from_numpy(preprocessing.scale)


def _device(model: TrainedModel) -> torch.device:
    return next(model.network.parameters()).device


def _floats(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().double().numpy()
