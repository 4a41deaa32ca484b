"""Land-cover maps from hyperspectral scenes and a few labels.

The public names are loaded when they are first used, so that ``import hypercaps`` and ``hypercaps --help``
don't wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypercaps.classifier import ConvCapsClassifier
    from hypercaps.data.labels import Labels, Legend
    from hypercaps.data.scene import Scene
    from hypercaps.data.splits import Split, split_blocks, split_by_share, split_per_class, split_polygons
    from hypercaps.errors import HypercapsError
    from hypercaps.inference.class_map import ClassMap
    from hypercaps.inference.metrics import Scores
    from hypercaps.io.open import open_labels, open_mask, open_scene, open_split
    from hypercaps.loading import load_model
    from hypercaps.training.scene_cache import SceneCache

__version__ = "0.2.0"

_HOMES = {
    "ClassMap": "inference.class_map",
    "ConvCapsClassifier": "classifier",
    "HypercapsError": "errors",
    "Labels": "data.labels",
    "Legend": "data.labels",
    "Scene": "data.scene",
    "SceneCache": "training.scene_cache",
    "Scores": "inference.metrics",
    "Split": "data.splits",
    "load_model": "loading",
    "open_labels": "io.open",
    "open_mask": "io.open",
    "open_scene": "io.open",
    "open_split": "io.open",
    "split_blocks": "data.splits",
    "split_by_share": "data.splits",
    "split_per_class": "data.splits",
    "split_polygons": "data.splits",
}

__all__ = [
    "ClassMap",
    "ConvCapsClassifier",
    "HypercapsError",
    "Labels",
    "Legend",
    "Scene",
    "SceneCache",
    "Scores",
    "Split",
    "load_model",
    "open_labels",
    "open_mask",
    "open_scene",
    "open_split",
    "split_blocks",
    "split_by_share",
    "split_per_class",
    "split_polygons",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hypercaps.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hypercaps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
