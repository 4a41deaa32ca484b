"""Refuses a site that needs the network: scripts, styles, fonts and pictures must be files of the site."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADED = re.compile(r'<(?:script|img|iframe|link(?=[^>]*stylesheet))\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]+)"')
FROM_STYLE = re.compile(r'(?:url\(|@import\s+)["\']?((?:https?:)?//[^)"\']+)')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _check_offline)
    return {"parallel_read_safe": True}


def _check_offline(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for pattern, suffix in ((LOADED, ".html"), (FROM_STYLE, ".css")):
        for path in Path(app.outdir).rglob(f"*{suffix}"):
            if path.parent.name != "_downloads" and "_downloads" not in path.parts:
                loaded = pattern.findall(path.read_text(encoding="utf-8"))
                if loaded:
                    raise ExtensionError(f"{path} loads {loaded[0]}: the site must work offline")
