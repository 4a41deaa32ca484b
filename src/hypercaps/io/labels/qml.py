"""Class names and colours from a QGIS style: a .qml file beside the labels, or a style inside a GeoPackage."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from hypercaps.data.colors import Rgb, parse_color
from hypercaps.io.labels.vector_check import geopackage

_LONGEST = 1 << 24  # bytes
# The line that QGIS writes, without entities; expat does not load it.
_DOCTYPE = re.compile(r"<!DOCTYPE\s+qgis\s+PUBLIC\s+(?:'[^']*'|\"[^\"]*\")\s+(?:'[^']*'|\"[^\"]*\")\s*>")


class ClassStyle(NamedTuple):
    """Name and colour of one class."""

    name: str
    color: Rgb | None


Style = Mapping[str, ClassStyle]  # by the value of the class field, as text


def find_style(path: Path, layer: str, field: str) -> Style:
    """The first style of a layer that is categorized by its class field; empty if there is none."""
    return next(filter(None, (parse_style(text, field) for text in _style_texts(path, layer))), {})


def _style_texts(path: Path, layer: str) -> Iterator[str]:
    style = path.with_suffix(".qml")
    if style.is_file() and style.stat().st_size <= _LONGEST:
        yield style.read_text(encoding="utf-8", errors="replace")
    if path.is_dir():
        return
    with path.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3"):
            return
    try:
        with geopackage(path) as database:
            for (text,) in database.execute(
                "SELECT styleQML FROM layer_styles WHERE f_table_name = ? ORDER BY useAsDefault DESC LIMIT 8", (layer,)
            ):
                if isinstance(text, str) and len(text) <= _LONGEST:
                    yield text
    except sqlite3.Error:  # no table of styles
        return


def parse_style(text: str, field: str) -> Style:
    """Parse a style that is categorized by ``field``; empty for any other style or text."""
    text = _DOCTYPE.sub("", text, count=1)
    if "<!" in text.replace("<!--", "").replace("<![CDATA[", ""):  # no entities
        return {}
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return {}
    renderer = root.find("renderer-v2")
    if renderer is None or renderer.get("type") != "categorizedSymbol":
        return {}
    if renderer.get("attr", "").strip().strip('"') != field:
        return {}
    colors = {symbol.get("name"): _color(symbol) for symbol in renderer.findall("symbols/symbol")}
    return {
        value: ClassStyle(category.get("label", "").strip() or value, colors.get(category.get("symbol")))
        for category in renderer.findall("categories/category")
        if (value := category.get("value", "").strip())
    }


def _color(symbol: ElementTree.Element) -> Rgb | None:
    """The colour of a symbol's first layer, in the syntax of QGIS before and after 3.24."""
    for layer in symbol.findall("layer"):
        for option, key, value in (("Option/Option", "name", "value"), ("prop", "k", "v")):
            named = {item.get(key): item.get(value) or "" for item in layer.findall(option)}
            for name in ("color", "line_color"):
                if name in named:
                    return read_color(named[name])
    return None


def read_color(text: str) -> Rgb | None:
    """Parse #rrggbb or r,g,b, with any text behind it; None if it is neither."""
    text = text.strip()
    if re.match(r"#[0-9a-fA-F]{6}", text):
        return parse_color(text[:7])
    numbers = re.match(r"(\d{1,3})\s*[,; ]\s*(\d{1,3})\s*[,; ]\s*(\d{1,3})(?!\d)", text)
    if numbers is None or max(map(int, numbers.groups())) > 255:
        return None
    red, green, blue = map(int, numbers.groups())
    return red, green, blue
