"""Errors and warnings: a message says in one sentence what was given, what is expected and what to do next."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable


class HypercapsError(Exception):
    """Base class of all errors that a user can correct.

    Examples
    --------
    >>> from hypercaps import HypercapsError, open_scene
    >>> try:
    ...     open_scene("no-such-file.tif")
    ... except HypercapsError as error:
    ...     print(type(error).__name__)
    SceneError
    """


class SceneError(HypercapsError, ValueError):
    """A cube that can't be read or can't be used."""


class LabelsError(HypercapsError, ValueError):
    """Labels that can't be read or don't fit the scene."""


class SplitError(HypercapsError, ValueError):
    """A split that can't be drawn or read."""


class CatalogError(HypercapsError, LookupError):
    """An unknown scene name, a missing or damaged download."""


class ModelError(HypercapsError, ValueError):
    """A network that can't be built for these bands or parameters."""


class MissingLibraryError(HypercapsError, ImportError):
    """A function that needs an optional library which is not installed."""


class MissingTorchError(ModelError, MissingLibraryError):
    """A computation that needs torch, which is not installed."""


class TrainingError(HypercapsError, ArithmeticError):
    """A training that diverged."""


class ModelFileError(HypercapsError, ValueError):
    """A model file that is damaged, of another program, or made for another scene."""


class CheckpointError(HypercapsError, ValueError):
    """A checkpoint of a training that is damaged, missing, or of another training."""


class CheckpointInUseError(CheckpointError):
    """A checkpoint that another process is using."""


class StudyError(HypercapsError, ValueError):
    """A study that can't be read."""


class ClusterError(HypercapsError, RuntimeError):
    """A cluster that can't be reached, or whose workers can't do the task."""


class WorkersDiedError(ClusterError):
    """A task during which several workers died, one after another."""


class OutputError(HypercapsError, OSError):
    """A result that can't be written."""


class Interrupted(HypercapsError):  # noqa: N818 - an event, not an error
    """Stopped by the user before there was a result to keep."""


class Paused(HypercapsError):  # noqa: N818 - an event, not an error
    """A training was stopped after an epoch; its checkpoint is kept."""


class SpeedWarning(UserWarning):
    """Results are correct, but computed much more slowly than possible."""


class DataWarning(UserWarning):
    """A property of the data that the user should know, and that does not stop the computation."""


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Suggest the most similar name, for the end of a message; empty if its similarity is below ``cutoff`` (0 to 1)."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return f"; did you mean {by_lower_case[close[0]]}?" if close else ""


def warn_data(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=2)
