"""Parameters of an estimator by the rules of scikit-learn, without importing scikit-learn.

Its base class costs seconds at the start of a program. ``clone``, cross-validation and searches of parameters need only
these methods; scikit-learn itself is imported where it asks for its own objects.
"""

from __future__ import annotations

import inspect
from typing import Any, Self


class Parameters:
    """Base of an estimator whose constructor stores its arguments under their names."""

    @classmethod
    def _parameters(cls) -> dict[str, Any]:
        """Default of each argument of the constructor, by name."""
        arguments = list(inspect.signature(cls.__init__).parameters.values())[1:]  # without self
        return {argument.name: argument.default for argument in arguments}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Parameters
        ----------
        deep : bool, default True
            For scikit-learn; it changes nothing, because no parameter is an estimator.
        """
        return {name: getattr(self, name) for name in sorted(self._parameters())}

    def set_params(self, **params: Any) -> Self:
        """Set some parameters; returns the classifier.

        Parameters
        ----------
        **params
            Values by name.
        """
        defaults = self._parameters()
        for name, value in params.items():
            if name not in defaults:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self!r}. Valid parameters are: {sorted(defaults)!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The call that makes it, with the parameters that differ from their defaults."""
        parameters = self.get_params()
        changed = [name for name, default in self._parameters().items() if repr(parameters[name]) != repr(default)]
        return f"{type(self).__name__}({', '.join(f'{name}={parameters[name]!r}' for name in changed)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn's tools ask about an estimator: this one classifies cubes, and no tables."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, three_d_array=True),
        )
