"""Build typed records from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], value: object) -> T:
    """Build a dataclass from a JSON value, nested ones too.

    Unknown keys are ignored, and null stands for the default of a field that has one; a missing key or a value of
    another type raises ValueError.
    """
    return cast(T, _convert(value, kind))


def _convert(value: object, kind: Any) -> object:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:  # only "or None" is used
        return None if value is None else _convert(value, arguments[0])
    if is_dataclass(kind) and isinstance(value, dict):
        types = get_type_hints(kind)
        present = {each.name: value[each.name] for each in fields(kind) if _is_given(each, value)}
        try:
            return kind(**{name: _convert(each, types[name]) for name, each in present.items()})  # type: ignore[operator]
        except TypeError as error:  # a required key is missing
            raise ValueError(str(error)) from error
    if origin in (tuple, list) and isinstance(value, list):
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        return origin(_convert(each, kind) for each, kind in zip(value, kinds, strict=True))
    if origin is Mapping and isinstance(value, dict):
        return {name: _convert(each, arguments[1]) for name, each in value.items()}
    if _is_number(value, kind) if kind in (int, float) else isinstance(value, origin or kind):
        return value
    raise ValueError(f"{value!r} is not of type {kind}")


def _is_given(each: Field[Any], document: Mapping[str, object]) -> bool:
    required = each.default is MISSING and each.default_factory is MISSING
    return each.name in document and (required or document[each.name] is not None)


def _is_number(value: object, kind: type) -> bool:
    accepted = isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value))
    return accepted and not isinstance(value, bool)
