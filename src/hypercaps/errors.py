"""Everything that hypercaps refuses, and why.

::

    HypercapsError            the root: catch this to catch all of them
    ├── SceneError            a cube that can't be read or can't be used
    ├── LabelsError           labels that can't be read or don't fit the scene
    ├── SplitError            a split that can't be drawn or read
    ├── CatalogError          an unknown scene name, a missing or damaged download
    ├── ModelError            a network that can't be built for these bands or parameters
    ├── TrainingError         a training that diverged
    ├── ModelFileError        a model file that is damaged, foreign, or made for another scene
    ├── StudyError            a study that can't be read
    ├── ClusterError          a cluster that can't be reached, or whose workers can't do the work
    │   └── WorkersDiedError  one piece of work that worker after worker died of
    ├── OutputError           a result that can't be written
    └── Interrupted           stopped by the user before there was anything to keep

Each message says what came, what was expected and what to do next, in one sentence.
"""

from __future__ import annotations

import warnings


class HypercapsError(Exception):
    """Root of all errors that a user can mend."""


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


class TrainingError(HypercapsError, ArithmeticError):
    """A training that diverged."""


class ModelFileError(HypercapsError, ValueError):
    """A model file that is damaged, foreign, or made for another scene."""


class StudyError(HypercapsError, ValueError):
    """A study that can't be read."""


class ClusterError(HypercapsError, RuntimeError):
    """A cluster that can't be reached, or whose workers can't do the work."""


class WorkersDiedError(ClusterError):
    """One piece of work that worker after worker died of."""


class OutputError(HypercapsError, OSError):
    """A result that can't be written."""


class Interrupted(HypercapsError):  # noqa: N818 - reads as what happened
    """Stopped by the user before there was anything to keep."""


class SpeedWarning(UserWarning):
    """Nothing is wrong, but it could be much faster."""


class DataWarning(UserWarning):
    """Something in the data that the user should know and that does not stop the work."""


def warn_data(message: str) -> None:
    """Issue a DataWarning that names the caller of this function."""
    warnings.warn(message, DataWarning, stacklevel=2)
