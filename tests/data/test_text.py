"""Names from files can be shown: nothing in them controls a terminal, whatever file they come from."""

from __future__ import annotations

import pytest

from hypercaps.data.labels import Legend, LegendEntry
from hypercaps.data.text import printable

NASTY = "\x1b]0;owned\x07wa\x9bter\u202e\r\n\u2028"


@pytest.mark.parametrize("text", ["water", "Bäume und Sträucher", "水", "می\u200cخواهم", "a 'b' \"c\" <d> & [e]", ""])
def test_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_control_characters_become_spaces() -> None:
    assert printable(NASTY) == " ]0;owned wa ter    "
    assert printable("a\ud800b\x00c\ufffe") == "a b c "


def test_a_legend_has_clean_names() -> None:
    legend = Legend((LegendEntry(1, NASTY, (1, 2, 3)), LegendEntry(2, "\x1b\n", (4, 5, 6))))
    assert [entry.name for entry in legend] == ["]0;owned wa ter", "class 2"]
    assert Legend.of([1], [NASTY]).entries[0].name == "]0;owned wa ter"
    assert legend.only([1]).entries == legend.entries[:1]
