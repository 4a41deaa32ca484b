"""``load_model``: a trained classifier from its file, without torch where the model needs none."""

from __future__ import annotations

from pathlib import Path

from hypercaps.classifier import ConvCapsClassifier
from hypercaps.data.splits import SplitRequest
from hypercaps.inference.model import TrainedModel
from hypercaps.inference.model_file import read_model
from hypercaps.selection.candidates import candidate_like
from hypercaps.selection.settings import AUTO


def load_model(path: str | Path, *, device: str = "cpu", precision: str = "float32") -> ConvCapsClassifier:
    """A trained classifier from its file.

    Parameters
    ----------
    path : str or Path
        A model file, such as ``model.safetensors`` of a run, or the run's folder.
    device, precision : str
        As of :class:`ConvCapsClassifier`.

    Returns
    -------
    ConvCapsClassifier
        Ready to predict and evaluate; ``split_``, ``scores_`` and ``history_`` are not in the file.

    Examples
    --------
    >>> from hypercaps import ConvCapsClassifier, Labels, Scene, load_model
    >>> import numpy as np
    >>> cube = np.random.default_rng(0).normal(size=(20, 20, 8)) + np.arange(20)[:, None, None] // 10
    >>> labels = Labels.from_array(1 + np.arange(400).reshape(20, 20) // 200)
    >>> trained = ConvCapsClassifier(method="lda").fit(Scene.from_array(cube), labels)
    >>> trained.save("model.safetensors")
    >>> bool((load_model("model.safetensors").predict(Scene.from_array(cube)) > 0).all())
    True
    """
    model = read_model(Path(path))
    drawn, record = model.split.request(patch=model.patch) or SplitRequest(), model.recipe
    classifier = ConvCapsClassifier(
        train=drawn.train,
        val=drawn.val,
        per_class=drawn.per_class,
        split_by=drawn.kind,
        block=drawn.block,
        folds=drawn.folds,
        seed=0 if record.seed is None else record.seed,
        device=device,
        precision=precision,
    )
    if model.partners:
        classifier.set_params(method=AUTO, candidates=_members(model))  # members have settings of their own
    else:
        classifier.set_params(
            method=model.method,
            recipe=record.name,
            epochs=record.user_overrides.epochs,
            batch_size=record.user_overrides.batch_size,
            patch=model.patch,
            whitening=record.whitening,
            structure=model.structure or None,
        )
    classifier.model_ = model
    return classifier


def _members(model: TrainedModel) -> tuple[str, ...] | None:
    """Names of the candidates that the members of an average are, to compare the same ones when it is fitted again."""
    alike = (candidate_like(one.method, one.patch, one.recipe.name, one.recipe.whitening) for one in model.members)
    return tuple(one.name for one in alike if one is not None) or None
