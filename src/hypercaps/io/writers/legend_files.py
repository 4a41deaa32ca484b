"""Class names and colours beside a raster, for other programs: GDAL's .aux.xml and QGIS's .qml."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from hypercaps.data.labels import Legend

_NO_CLASS = "no class"


def legend_files(raster: Path, legend: Legend) -> dict[Path, bytes]:
    """Files beside the class map ``raster``: category names and attribute table for GDAL, a style for QGIS."""
    names, style = _category_names(legend), _qgis_style(legend)
    return {raster.with_name(raster.name + ".aux.xml"): names, raster.with_suffix(".qml"): style}


def _category_names(legend: Legend) -> bytes:
    """GDAL's category names by class number, and an attribute table of numbers, names and colours."""
    root = Element("PAMDataset")
    band = SubElement(root, "PAMRasterBand", band="1")
    names = {0: _NO_CLASS} | {entry.label: entry.name for entry in legend}
    categories = SubElement(band, "CategoryNames")
    for number in range(max(names) + 1):
        SubElement(categories, "Category").text = _printable(names.get(number, ""))
    table = SubElement(band, "GDALRasterAttributeTable", tableType="thematic")
    # Name, type (0 whole number, 2 text) and use (5 value, 2 name, 6 to 8 red, green and blue) of each column.
    columns = (("Value", 0, 5), ("Class", 2, 2), ("Red", 0, 6), ("Green", 0, 7), ("Blue", 0, 8))
    for index, (name, kind, usage) in enumerate(columns):
        field = SubElement(table, "FieldDefn", index=str(index))
        for tag, text in (("Name", name), ("Type", str(kind)), ("Usage", str(usage))):
            SubElement(field, tag).text = text
    for index, entry in enumerate(legend):
        row = SubElement(table, "Row", index=str(index))
        for value in (entry.label, entry.name, *entry.color):
            SubElement(row, "F").text = _printable(str(value))
    return _bytes(root)


def _qgis_style(legend: Legend) -> bytes:
    root = Element("qgis", version="3.28.0", styleCategories="Symbology")
    look = {"type": "paletted", "band": "1", "opacity": "1", "alphaBand": "-1", "nodataColor": ""}
    renderer = SubElement(SubElement(root, "pipe"), "rasterrenderer", look)
    SubElement(renderer, "rasterTransparency")
    palette = SubElement(renderer, "colorPalette")
    for entry in legend:
        value, color = str(entry.label), f"#{bytes(entry.color).hex()}"
        SubElement(palette, "paletteEntry", value=value, label=_printable(entry.name), color=color, alpha="255")
    return _bytes(root)


def _printable(text: str) -> str:
    """Text without the characters that XML does not allow."""
    return "".join(c if c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff" else " " for c in text)


def _bytes(root: Element) -> bytes:
    """UTF-8 without an XML declaration, after which GDAL would not find the root element."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode").encode() + b"\n"
