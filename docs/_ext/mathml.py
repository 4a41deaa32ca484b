"""Formulas as MathML, which browsers show themselves: nothing is loaded from the network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# docutils sets the index of an accented letter below it, as that of a sum.
INDEX_BELOW = re.compile(
    r"<munderover>\s*(<mi>\w</mi>)\s*(<mrow>.*?</mrow>|<mi>\w</mi>)\s*(<mo[^>]*>ˆ</mo>)\s*</munderover>", re.S
)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def _display(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def mathml(formula: str, *, as_block: bool) -> str:
    """A formula of LaTeX as MathML."""
    return INDEX_BELOW.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', tex2mathml(formula, as_block=as_block))
