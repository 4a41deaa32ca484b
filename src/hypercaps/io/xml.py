"""Untrusted XML: parsed by defusedxml without document types and entities, with limits on its size and depth."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DTDForbidden
from defusedxml.ElementTree import DefusedXMLParser

from hypercaps.errors import SceneError

_MAX_BYTES = 1 << 24  # the metadata of a satellite product has about one million
_MAX_DEPTH = 64
_MAX_ELEMENTS = 200_000


def read_xml(path: Path) -> Element:
    """The root element of a file; see :func:`parse_xml`."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise SceneError(f"{path} has {size:,} bytes: that is too long for a metadata file, remove it")
    return parse_xml(path.read_bytes(), str(path))


def parse_xml(raw: bytes, source: str, *, max_elements: int = _MAX_ELEMENTS) -> Element:
    """The root element; tags come without their namespaces. ``source`` is named in errors."""
    parser = DefusedXMLParser(target=_LimitedBuilder(source, max_elements), forbid_dtd=True)
    try:
        parser.feed(raw)
        root: Element = parser.close()
    except SceneError:
        raise
    except DTDForbidden:
        raise SceneError(
            f"{source} has a document type (DOCTYPE), which could refer to other files: plain XML without one is "
            "expected, delete the DOCTYPE or remove the file"
        ) from None
    except (ParseError, LookupError, ValueError) as cause:  # LookupError: an unknown encoding
        raise SceneError(f"{source} is not valid XML ({cause}): get it again or remove it") from None
    return root


class _LimitedBuilder(TreeBuilder):
    """Builds the tree of elements, and refuses one that is too large or too deep."""

    def __init__(self, source: str, max_elements: int) -> None:
        super().__init__()
        self.source, self.max_elements, self.depth, self.elements = source, max_elements, 0, 0

    def start(self, tag: str, attributes: dict[str, str]) -> Element:
        self.depth, self.elements = self.depth + 1, self.elements + 1
        if self.depth > _MAX_DEPTH or self.elements > self.max_elements:
            raise SceneError(
                f"{self.source} has more than {self.max_elements:,} elements, or elements nested more than "
                f"{_MAX_DEPTH} deep, and is not read: remove it, or save it in another format"
            )
        return super().start(tag.rpartition("}")[2], attributes)

    def end(self, tag: str) -> Element:
        self.depth -= 1
        return super().end(tag.rpartition("}")[2])
