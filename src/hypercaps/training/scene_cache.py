"""SceneCache: what all trainings on one scene share, kept by the caller from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hypercaps.compute import linalg
from hypercaps.data.scene import Scene
from hypercaps.data.statistics import SceneStatistics, sample_statistics
from hypercaps.errors import SceneError
from hypercaps.training.label_propagation import PixelGraph, edge_features
from hypercaps.training.patches import KeptSpectra, PatchStore
from hypercaps.training.preprocessing import PREPROCESSINGS, PCAWhitening, Preprocessing, robust_whitening

if TYPE_CHECKING:
    from torch import Tensor

Pixels = npt.NDArray[np.int64]
_MOST_MEANS = 1 << 16  # patches whose mean spectra are kept: 52 MB with 200 bands


@dataclass(frozen=True, eq=False)
class _KeptMeans:
    """Mean spectra of patches."""

    pixels: Pixels  # (N,) their centres, flat indices, ascending
    means: Tensor  # (N, C)


class SceneCache:
    """What depends on a scene and not on its labels: statistics, preprocessed spectra and the graph of its pixels.

    A caller that trains on one scene several times, say after every few new labels, holds one and passes it to each
    ``fit``. Results have the same bits as without it. It keeps the scene, and once more its preprocessed spectra as far
    as trainings use them.

    Parameters
    ----------
    scene : Scene
        The scene that all trainings are on; the same object is given to ``fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from hypercaps import ConvCapsClassifier, Scene, SceneCache
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + np.arange(20)[:, None, None] // 10
    >>> truth = 1 + np.arange(400).reshape(20, 20) // 200
    >>> scene = Scene.from_array(cube)
    >>> cache = SceneCache(scene)
    >>> for count in (20, 40):
    ...     trained = ConvCapsClassifier(method="lda", per_class=count, val=0).fit(scene, truth, cache=cache)
    ...     print(trained.split_.train.size)
    40
    80
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._fitted: dict[str, Preprocessing] = {}  # by the names of PREPROCESSINGS
        self._spectra: dict[tuple[str, int], KeptSpectra] = {}  # by preprocessing and patch
        self._means: dict[tuple[str, int], _KeptMeans] = {}  # by preprocessing and patch: those of the last training
        self._graphs: dict[str, PixelGraph] = {}  # by preprocessing: that of the last training

    def check_is_of(self, scene: Scene) -> None:
        """Refuse another scene than the cache's own."""
        if scene is not self.scene:
            raise SceneError(
                f"the cache was made for another scene ({self.scene.name!r}) than the one given ({scene.name!r}): make "
                "one for each scene that is opened, SceneCache(scene)"
            )

    def preprocessing(self, name: str) -> Preprocessing:
        """Preprocessing of the spectra, fitted to the scene; ``name`` is one of ``PREPROCESSINGS``."""
        if name not in self._fitted:
            self._fitted[name] = PREPROCESSINGS[name](self.scene)
        return self._fitted[name]

    @cached_property
    def robust_whitening(self) -> PCAWhitening:
        """With the components in descending order, as familiarity uses it."""
        return robust_whitening(self.scene)

    @cached_property
    def statistics(self) -> SceneStatistics | None:
        # A second thread of numpy's would wait, and take time from the thread that finds the facts of a report.
        with linalg.one_thread():
            return sample_statistics(self.scene)

    def patches(self, preprocessing: str, pixels: Pixels, patch: int) -> PatchStore:
        """Patches of side ``patch`` around pixels (N,), flat indices."""
        kept = self._spectra.setdefault((preprocessing, patch), KeptSpectra())
        return PatchStore(self.scene, self.preprocessing(preprocessing), pixels, patch, kept)

    def mean_spectra(self, preprocessing: str, store: PatchStore, pixels: Pixels) -> Callable[[Tensor], Tensor]:
        """A function from numbers of patches (B,) of a store to their mean spectra (B, C).

        ``pixels`` (N,), in any order, are the centres of all patches. Means are kept unless they are many.
        """
        if pixels.size > _MOST_MEANS:
            return store.mean_spectra
        import torch

        order = np.argsort(pixels, kind="stable")
        key, ascending = (preprocessing, store.patch), pixels[order]
        kept = self._means.get(key)
        if kept is None or not np.array_equal(kept.pixels, ascending):
            with linalg.one_thread():
                kept = _KeptMeans(ascending, store.mean_spectra(torch.from_numpy(order)))
            self._means[key] = kept
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        means, rows = kept.means, torch.from_numpy(rank)
        return lambda which: means.index_select(0, rows[which])

    def forget_spectra(self) -> None:
        """Free what is large: the preprocessed spectra and the graph. The next training reads them again."""
        self._spectra.clear()
        self._means.clear()
        self._graphs.clear()

    def pixel_graph(self, preprocessing: str, store: PatchStore, pixels: Pixels) -> PixelGraph:
        """The graph of pixels (N,), in any order, which are the centres of the patches of a store."""
        kept = self._graphs.get(preprocessing)
        if kept is None or not np.array_equal(kept.pixels, np.sort(pixels)):
            whitening = self.preprocessing(preprocessing)
            assert isinstance(whitening, PCAWhitening)
            centres = store.spectra.index_select(0, store.centres()).numpy()  # (N, C)
            kept = PixelGraph.of(pixels, self.scene.cols, edge_features(whitening, centres))
            self._graphs[preprocessing] = kept
        return kept
