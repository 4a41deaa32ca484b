"""Self-contained HTML pages: pictures and styles are embedded, and nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import re

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **content: object) -> str:
    """Fill a template of ``templates/``; every text is escaped."""
    environment = Environment(
        loader=PackageLoader("hypercaps", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.get_template(f"{template}.html.jinja").render(**content)


def plain(text: str) -> str:
    """Text without http:// in front of addresses, so that no viewer turns them into links."""
    return re.sub(r"(?i)\bhttps?://", "", text)
