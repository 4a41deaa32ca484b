"""Pages that stand alone: one HTML file each, with pictures and styles inside, and no address outside it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, *, tests: Mapping[str, Callable[..., bool]] | None = None, **what: Any) -> str:
    """The page of a template beside this file. Every text in it is escaped."""
    environment = Environment(
        loader=PackageLoader("hypercaps", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    environment.tests.update(tests or {})
    return environment.get_template(f"{template}.html.jinja").render(**what)


def plain(text: str) -> str:
    """Text without http:// in front of addresses: nothing takes one for a link then, nor the page for online."""
    return re.sub(r"(?i)\bhttps?://", "", text)
