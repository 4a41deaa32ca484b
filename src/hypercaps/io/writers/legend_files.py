"""Class names and colours beside a raster, for other programs: GDAL's .aux.xml and QGIS's .qml."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Comment, Element, SubElement

from hypercaps.data.labels import Legend
from hypercaps.errors import OutputError
from hypercaps.io.writers.atomic import translate_write_errors

_NO_CLASS = "no class"
_MARK = "written by hypercaps, and again with each new map"  # QGIS removes it when it saves a style


def legend_files(raster: Path, legend: Legend) -> dict[Path, bytes]:
    """Files beside the class map ``raster``: category names and attribute table for GDAL, a style for QGIS."""
    names, style = _category_names(legend), _qgis_style(legend)
    return {raster.with_name(raster.name + ".aux.xml"): names, raster.with_suffix(".qml"): style}


def refuse_foreign_style(path: Path) -> None:
    """Refuse to replace a style that hypercaps did not write."""
    if not path.exists():
        return
    with translate_write_errors(path), path.open("rb") as file:
        if _MARK.encode() not in file.read(1000):
            raise OutputError(
                f"{path} is a style that hypercaps did not write, and the map's own would replace it: move it, or give "
                "the map another name"
            )


def _category_names(legend: Legend) -> bytes:
    """GDAL's category names by class number, and an attribute table of numbers, names and colours."""
    root = Element("PAMDataset")
    band = SubElement(root, "PAMRasterBand", band="1")
    names = {0: _NO_CLASS} | {entry.label: entry.name for entry in legend}
    categories = SubElement(band, "CategoryNames")
    for number in range(max(names) + 1):
        SubElement(categories, "Category").text = names.get(number, "")
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
            SubElement(row, "F").text = str(value)
    return _bytes(root)


def _qgis_style(legend: Legend) -> bytes:
    root = Element("qgis", version="3.28.0", styleCategories="Symbology")
    root.append(Comment(f" {_MARK} "))
    settings = {"type": "paletted", "band": "1", "opacity": "1", "alphaBand": "-1", "nodataColor": ""}
    renderer = SubElement(SubElement(root, "pipe"), "rasterrenderer", settings)
    SubElement(renderer, "rasterTransparency")
    palette = SubElement(renderer, "colorPalette")
    for entry in legend:
        value, color = str(entry.label), f"#{bytes(entry.color).hex()}"
        SubElement(palette, "paletteEntry", value=value, label=entry.name, color=color, alpha="255")
    return _bytes(root)


def _bytes(root: Element) -> bytes:
    """UTF-8 without an XML declaration, after which GDAL would not find the root element."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode").encode() + b"\n"
