"""Explain a pixel or a class of a map: which bands its class capsule relies on (``attribution`` computes it)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch

from hypercaps.compute import native
from hypercaps.data.labels import LegendEntry
from hypercaps.data.resampling import usable_wavelengths
from hypercaps.data.scene import Scene
from hypercaps.data.window import Window, tile_windows
from hypercaps.errors import ModelError, SceneError, did_you_mean
from hypercaps.inference.attribution import Attribution, Deletion, attribute, lengths_after_deletion
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.predict import OnProgress, map_window
from hypercaps.models.capsules.compiled import CompiledConvCapsNet
from hypercaps.models.protocols import Explainable
from hypercaps.training.patches import read_with_halo, reflect_invalid

MOST_PIXELS = 100  # that represent a class
_BATCH = 16  # pixels
_SIDE = 32  # of the windows that are searched for pixels of a class: whole tiles
_WINDOWS = 256  # searched at most: a quarter of a million pixels

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Explanation:
    """Band attribution of a class capsule, in one pixel or over several."""

    scene: str
    entry: LegendEntry  # the class
    pixels: npt.NDArray[np.int64]  # (N, 2) rows and columns
    per_pixel: Floats  # (N, bands): contribution to the length before the squash; below 0 against the class
    components: Floats  # (components,): the same by component, mean over the pixels
    couplings: Floats  # (positions,): mean coupling coefficient of the capsules at each position
    contributions: Floats  # (positions,): coupling times agreement; their sum is the length before the squash
    at_mean: float  # length at the mean spectrum; with the sum of relevance it is the sum of contributions
    view: tuple[int, int]  # components seen by a position, and the step from one position to the next
    spectrum: Floats  # (bands,): mean of the pixels
    scene_mean: Floats  # (bands,): of the scene that the model was trained on
    wavelengths: Floats | None  # (bands,) nm
    deletion: Deletion

    @property
    def relevance(self) -> Floats:
        """(bands,): mean over the pixels"""
        return np.asarray(self.per_pixel.mean(axis=0))

    @property
    def share(self) -> Floats:
        """(bands,): relevance divided by the sum of its absolute values"""
        relevance = self.relevance
        return np.asarray(relevance / max(float(np.abs(relevance).sum()), np.finfo(np.float64).tiny))

    @property
    def where(self) -> str:
        if len(self.pixels) > 1:
            return f"{len(self.pixels)} pixels of {self.scene}"
        return f"row {self.pixels[0, 0]}, column {self.pixels[0, 1]} of {self.scene}"

    def describe(self) -> dict[str, object]:
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
            "mean_spectrum": self.scene_mean.tolist(),
            "components": self.components.tolist(),
            "positions": [
                {"components": [i * step, i * step + width - 1], "coupling": coupling, "contribution": part}
                for i, (coupling, part) in enumerate(np.stack([self.couplings, self.contributions], axis=1).tolist())
            ],
            "deletion": asdict(self.deletion),
        }


def explain_at(model: TrainedModel, scene: Scene, row: int, col: int, *, label: int | None = None) -> Explanation:
    """Explain one pixel: the class that the model predicts, or class ``label``."""
    _check_can_explain(model, scene)
    if not (0 <= row < scene.rows and 0 <= col < scene.cols):
        raise SceneError(
            f"row {row}, column {col} is outside scene {scene.name!r}: rows go from 0 to {scene.rows - 1} and columns "
            f"from 0 to {scene.cols - 1}"
        )
    pixel = np.array([[row, col]])
    if label is None:
        patch = _read_patches(model, scene, pixel)
        with torch.inference_mode():
            white = torch.from_numpy(model.preprocessing.transform(patch))
            output = int(model.module(white.to(next(model.module.parameters()).device)).argmax())
    else:
        output = _class_number(model, label)
    return _explain(model, scene, pixel, output)


def explain_class(
    model: TrainedModel, scene: Scene, label: int, *, most: int = MOST_PIXELS, on_progress: OnProgress | None = None
) -> Explanation:
    """Explain a class by up to ``most`` pixels that the model gives to it, spread evenly over the scene.

    A large scene is searched for them in evenly spaced windows only.
    """
    _check_can_explain(model, scene)
    output = _class_number(model, label)
    windows = list(tile_windows(scene.whole, _SIDE))
    searched = [windows[i] for i in evenly(np.arange(len(windows)), _WINDOWS)]
    pixels = np.concatenate(  # (N, 2), window by window
        [np.argwhere(map_window(model, scene, at).classes == label) + np.array([at.r0, at.c0]) for at in searched]
    )
    if not len(pixels):
        where = "" if len(searched) == len(windows) else f" in the {len(searched)} windows searched"
        raise SceneError(
            f"the model gives no pixel of scene {scene.name!r} to class {model.legend.entries[output].name}{where}: "
            "name another class, or a pixel and this class"
        )
    return _explain(model, scene, evenly(pixels, most), output, on_progress)


def explain_pixels(model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64], label: int) -> Explanation:
    """Explain class ``label`` by the given valid pixels (N, 2), rows and columns."""
    _check_can_explain(model, scene)
    return _explain(model, scene, pixels, _class_number(model, label))


def can_explain(model: TrainedModel) -> bool:
    """Whether the model has capsules that are routed to classes."""
    return isinstance(model.network, CompiledConvCapsNet | Explainable)


def find_class(model: TrainedModel, text: str) -> int:
    """The label of a class from its name, in any case, or its number."""
    named = [entry.label for entry in model.legend if entry.name.casefold() == text.strip().casefold()]
    if len(named) == 1:
        return named[0]
    if text.strip().isdecimal() and int(text) in model.legend.labels:
        return int(text)
    classes = ", ".join(f"{entry.label} {entry.name}" for entry in model.legend)
    hint = did_you_mean(text, (entry.name for entry in model.legend))
    raise ModelError(f"the model has no class {text!r}: give the name or number of one of {classes}{hint}")


def evenly(items: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """Up to ``most`` evenly spaced items, the first and the last among them."""
    return items[np.unique(np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(np.int64))]


def _explain(
    model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64], output: int, on_progress: OnProgress | None = None
) -> Explanation:
    network = model.module
    assert isinstance(network, Explainable)
    attributions, lengths, spectra = [], [], []
    centre = model.patch // 2
    for start in range(0, len(pixels), _BATCH):
        batch = pixels[start : start + _BATCH]
        patches = _read_patches(model, scene, batch)
        centred = patches - model.preprocessing.mean
        spectra.append(patches[:, centre, centre].astype(np.float64))
        with native.torch_on_one_thread():  # these products are so small that more threads would be slower
            attributions.append(attribute(model, centred, output))
            relevance = attributions[-1].bands
            lengths.append(lengths_after_deletion(model, centred, relevance, output, seed=start))
        if on_progress is not None:
            on_progress(start + len(batch), len(pixels))
    total = Attribution.concatenate(attributions)
    wavelengths = model.wavelengths if scene.wavelengths is None else scene.wavelengths
    return Explanation(
        scene=scene.name,
        entry=model.legend.entries[output],
        pixels=pixels,
        per_pixel=total.bands,
        components=total.components.mean(axis=0),
        couplings=total.couplings.mean(axis=0),
        contributions=total.contributions.mean(axis=0),
        at_mean=float(total.at_mean.mean()),
        view=network.view,
        spectrum=np.concatenate(spectra).mean(axis=0),
        scene_mean=model.preprocessing.mean,
        wavelengths=usable_wavelengths(wavelengths),
        deletion=Deletion.of_lengths(np.concatenate(lengths, axis=1), model.bands),
    )


def _check_can_explain(model: TrainedModel, scene: Scene) -> None:
    if not can_explain(model):
        raise ModelError(
            f"a model of method {model.method} can't be explained (it has no capsules that are routed to classes): "
            "train one of method convcapsnet"
        )
    model.check_fits(scene)


def _class_number(model: TrainedModel, label: int) -> int:
    """Position of a label in the legend, which is the network's output."""
    at = np.flatnonzero(model.legend.labels == label)
    if not at.size:
        raise ModelError(f"the model has no class {label}: its classes are {model.legend.labels.tolist()}")
    return int(at[0])


def _read_patches(model: TrainedModel, scene: Scene, pixels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Patches around pixels (B, 2), invalid pixels filled by reflection: (B, D, D, bands)"""
    half, side = model.patch // 2, model.patch
    patches = np.empty((len(pixels), side, side, scene.bands), dtype=np.float32)
    for i, (row, col) in enumerate(pixels.tolist()):
        window = read_with_halo(scene, Window(row, row + 1, col, col + 1), half)
        if not window.valid[half, half]:
            raise SceneError(
                f"row {row}, column {col} of scene {scene.name!r} holds {scene.why_invalid()} and has no class: name "
                "a pixel with values"
            )
        source = reflect_invalid(window.valid[None])[0]
        patches[i] = window.values.reshape(side * side, -1)[source].reshape(side, side, -1)
    return patches
