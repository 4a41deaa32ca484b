"""XML that other people wrote: read without entities, and only as large as such files are."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from hypercaps.errors import SceneError

_LONGEST = 1 << 24  # bytes; a product's metadata has about one million
_DEEPEST = 64
_MOST = 200_000  # elements
_PART = 1 << 16  # bytes given to the parser at once: it stops at what it may not read


def read_xml(path: Path) -> Element:
    """The root element of a file; see :func:`parse_xml`."""
    size = path.stat().st_size
    if size > _LONGEST:
        raise SceneError(f"{path} has {size:,} bytes: that is too long for a file of metadata, take it away")
    return parse_xml(path.read_bytes(), str(path))


def parse_xml(raw: bytes, source: str) -> Element:
    """The root element, names without their namespaces. A document type is refused: it is where entities come from."""
    parser = ElementTree.XMLParser(target=_Limited(source))
    try:
        for start in range(0, len(raw), _PART):
            parser.feed(raw[start : start + _PART])
        root: Element = parser.close()
    except (ElementTree.ParseError, LookupError, ValueError) as cause:  # LookupError: an encoding nobody knows
        if isinstance(cause, SceneError):
            raise
        raise SceneError(f"{source} is not whole XML ({cause}): get it again or take it away") from None
    return root


class _Limited:
    """Builds the tree, and stops where it grows beyond what is expected."""

    def __init__(self, source: str) -> None:
        self.source, self.depth, self.count = source, 0, 0
        self.builder = ElementTree.TreeBuilder()

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise SceneError(
            f"{self.source} has a document type (DOCTYPE), by which it could ask for other files: plain XML without "
            "one is expected, take it out or take the file away"
        )

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth, self.count = self.depth + 1, self.count + 1
        if self.depth > _DEEPEST or self.count > _MOST:
            raise SceneError(
                f"{self.source} has more than {_MOST:,} elements, or more than {_DEEPEST} in each other: that is no "
                "file of metadata, take it away"
            )
        self.builder.start(tag.rpartition("}")[2], attributes)

    def end(self, tag: str) -> None:
        self.depth -= 1
        self.builder.end(tag.rpartition("}")[2])

    def data(self, text: str) -> None:
        self.builder.data(text)

    def close(self) -> Element:
        return self.builder.close()
