"""Settings of the documentation's site, which ``make docs`` builds into build/docs."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT / "src")]

from hypercaps import __version__  # noqa: E402 - found by the path above

project = "hypercaps"
author = "the hypercaps developers"
copyright = "the hypercaps developers, Apache-2.0"  # noqa: A001 - sphinx's name
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "contents",
    "command_reference",
    "fitted_attributes",
    "mathml",
    "offline",
    "repository_pages",
    "streams",
]
source_suffix = {".md": "myst-nb"}
exclude_patterns = ["_ext", "results/runs"]
root_doc = "index"
nitpicky = False  # types in docstrings are words, such as "(rows, columns) bool array"

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4  # as on GitHub, so that links to headings work in both places
html_math_renderer = "mathml"

# Python reference
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings give types with shapes
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False


def _digest_of_package() -> str:
    """Digest of all that a notebook's output may depend on: a change of the package runs the notebooks again."""
    sha = hashlib.sha256()
    for path in sorted((ROOT / "src" / "hypercaps").rglob("*")):
        if path.suffix in (".py", ".c", ".toml", ".html"):
            sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


# Tutorials: executed by the build, in an empty folder each; outputs are kept until the notebook or the package changes.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks" / _digest_of_package())
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 900  # seconds of a cell: all take far less, but the machine may be busy
nb_merge_streams = True
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # for !hypercaps
os.environ.update(COLUMNS="100", TTY_COMPATIBLE="0", PYTHONPATH=str(ROOT / "src"))  # no colours, no progress bars

# Pages
html_theme = "furo"
html_title = f"hypercaps {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
pygments_dark_style = "monokai"
