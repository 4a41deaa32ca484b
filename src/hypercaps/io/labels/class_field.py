"""The class field of a vector layer, and its classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import Rgb
from hypercaps.data.labels import MAX_LABEL, Legend
from hypercaps.errors import LabelsError, did_you_mean, warn_data
from hypercaps.io.labels.layer import VectorLayer
from hypercaps.io.labels.qml import ClassStyle, Style, read_color

Texts = npt.NDArray[np.object_]  # (features,) values of the class field as text, "" where empty

_CLASS_NAMES = {
    "class", "classid", "classname", "classcode", "classnr", "label", "labelid", "landcover", "landuse", "lulc",
    "category", "crop", "cropname", "klasse", "cover", "species",
}  # fmt: skip
# Fields of identifiers, measures, colours and descriptions, which are never the class.
_OTHER_NAMES = re.compile(
    r"fid|id|gid|ogcfid|objectid|featureid|uuid|guid|oid|x|y|z|lat|lon|latitude|longitude|easting|northing|"
    r"(shape|st|geom)?(area|length|leng|perimeter|len)(m2|ha|sqm|m)?|colou?r|rgb|date|time|timestamp|year|comment|comments|note|notes|"
    r"description|source|author|operator|layer|path|begin|end|visibility|drawOrder|icon"
)
_COLOR_FIELDS = ("color", "colour", "rgb")
# Fields of the points of ``hypercaps suggest``: its classes are predictions, not labels.
_SUGGESTION_FIELDS = {"rank", "class", "second", "confidence", "margin"}


@dataclass(frozen=True)
class ClassFields:
    """The fields of a layer with class, class name and colour."""

    field: str
    names: str | None = None  # of class names, if ``field`` has numbers
    colors: str | None = None

    @property
    def all(self) -> list[str]:
        return [name for name in (self.field, self.names, self.colors) if name is not None]


@dataclass(frozen=True)
class Classes:
    """The classes of a layer, and the label of each value of its class field."""

    legend: Legend
    numbers: Mapping[str, int]  # label by value
    invented: bool  # whether labels were assigned here, because the field has no usable numbers


def choose_fields(layer: VectorLayer, class_field: str | None) -> ClassFields:
    """The class field by name, or the only candidate (None), with its fields of names and colours."""
    kinds = {name: _kind(dtype) for name, dtype in layer.fields.items()}
    usable = [name for name, kind in kinds.items() if kind]
    if not usable:
        raise LabelsError(f"{layer.path} has no field of text or numbers: features with a class each are expected")
    listing = ", ".join(f"{name} ({kinds[name]})" for name in usable)
    colors = next((name for name in usable if _plain(name) in _COLOR_FIELDS and kinds[name] == "text"), None)
    if class_field is not None:
        if class_field not in usable:
            hint = did_you_mean(class_field, usable)
            raise LabelsError(f"{layer.path} has no field {class_field!r} to take classes from: it has {listing}{hint}")
        return ClassFields(class_field, _name_field(class_field, kinds), colors if colors != class_field else None)
    candidates = candidate_fields(layer)
    if len(candidates) != 1:
        raise LabelsError(
            f"which field of {layer.path} holds the class? It has {listing}: name one with --class-field (class_field "
            "in Python; docs/labels.md)"
        )
    warn_data(f"{layer.path.name}: classes are taken from the field {candidates[0]!r}")
    return ClassFields(candidates[0], _name_field(candidates[0], kinds), colors)


def candidate_fields(layer: VectorLayer) -> list[str]:
    """The fields that could hold the class, without identifiers, measures and descriptions."""
    kinds = {name: kind for name, dtype in layer.fields.items() if (kind := _kind(dtype))}
    names = [name for name, kind in kinds.items() if kind != "fractions" and not _OTHER_NAMES.fullmatch(_plain(name))]
    if kinds.keys() >= _SUGGESTION_FIELDS:
        names = [name for name in names if name not in (*_SUGGESTION_FIELDS, "row", "col")]
    names = [name for name in names if _plain(name) in _CLASS_NAMES] or names
    name_fields = {_name_field(name, kinds) for name in names}  # a number and its name are one candidate
    return [name for name in names if name not in name_fields]


def _kind(dtype: str) -> str:
    """'text', 'whole numbers' or 'fractions'; empty for dates, lists and bytes."""
    if dtype == "object":
        return "text"
    if dtype == "bool" or re.fullmatch(r"u?int\d+", dtype):
        return "whole numbers"
    return "fractions" if dtype.startswith("float") else ""


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-.]", "", name).lower()


def _name_field(field: str, kinds: Mapping[str, str]) -> str | None:
    """The text field with the names of a number field: className for classId, level_1 for level_1_id."""
    if kinds[field] == "text":
        return None
    stem = re.sub(r"(id|code|nr|no|num|number|value)$", "", _plain(field))
    options = (f"{stem}name", f"{_plain(field)}name", f"{stem}label", stem) if stem else ("classname", "name")
    by_plain = {_plain(name): name for name, kind in kinds.items() if kind == "text" and name != field}
    return next((by_plain[name] for name in options if name in by_plain), None)


def as_texts(values: npt.NDArray[Any], field: str, file: str) -> Texts:
    """A column as text: whole numbers without a decimal point, "" for null, 0 and blanks."""
    if values.dtype == object:
        texts = np.array([_text(value) for value in values], dtype=object)
    else:
        numbers = np.where(np.isnan(values), 0, values) if values.dtype.kind == "f" else values
        if numbers.dtype.kind == "f" and not (np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()):
            raise LabelsError(
                f"the field {field!r} of {file} holds fractions: whole class numbers or names are expected"
            )
        texts = np.array([str(int(number)) for number in numbers], dtype=object)
    texts[texts == "0"] = ""
    return texts


def make_classes(
    texts: Texts, fields: ClassFields, columns: Mapping[str, npt.NDArray[Any]], style: Style, file: str
) -> Classes:
    """The classes of all features of a layer.

    Whole numbers are class numbers, also in a text field. Names are numbered from 1 in alphabetical order, and numbers
    too large for labels from 1 in ascending order.
    """
    values = sorted(set(texts) - {""})
    if not values:
        raise LabelsError(
            f"the field {fields.field!r} of {file} is empty: enter the class of each feature there, or name another "
            "field with --class-field (class_field in Python)"
        )
    holds = f"the field {fields.field!r} of {file} holds"
    for value in values:
        if not value.isprintable():
            raise LabelsError(
                f"{holds} {value[:40]!r}, which is no class name: the file is damaged, or its text has an encoding "
                "that it does not declare"
            )
    numeric = all(re.fullmatch(r"[+-]?\d{1,18}", value) for value in values)
    if numeric and (least := min(map(int, values))) < 0:
        raise LabelsError(
            f"{holds} {least}: class numbers from 1 up are expected, and 0 or nothing where there is no class"
        )
    invented = not numeric or max(map(int, values)) > MAX_LABEL
    if invented and len(values) > MAX_LABEL:
        raise LabelsError(f"{holds} {len(values):,} different values: it does not look like a class")
    ordered = sorted(values, key=int) if numeric else values
    numbers = {value: place if invented else int(value) for place, value in enumerate(ordered, start=1)}
    names = {} if fields.names is None else _unique_texts(texts, columns[fields.names])
    colors = {} if fields.colors is None else _unique_texts(texts, columns[fields.colors])
    of_label: dict[int, tuple[str, Rgb | None]] = {}
    for value, label in numbers.items():
        if label == 0:  # e.g. written as 00
            continue
        styled = style.get(value, ClassStyle("", None))
        name = names.get(value) or (styled.name if styled.name != value else "")
        if not name or not numeric:
            name = value if invented else f"class {label}"
        of_label[label] = name, read_color(colors.get(value, "")) or styled.color
    own = {label: color for label, (_, color) in of_label.items() if color is not None}
    return Classes(Legend.of(of_label, [of_label[label][0] for label in sorted(of_label)], own), numbers, invented)


def _unique_texts(texts: Texts, others: npt.NDArray[Any]) -> dict[str, str]:
    """The text of another field for each value of the class field, where it is unique."""
    pairs = {(value, text) for value, other in zip(texts, others, strict=True) if (text := _text(other))}
    times = Counter(value for value, _ in pairs)
    return {value: text for value, text in pairs if times[value] == 1}


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()
