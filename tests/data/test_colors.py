"""Default colours follow telling names, and no two of a legend look alike."""

from __future__ import annotations

import colorsys
import itertools

import numpy as np
import pytest

from hypercaps.data.colors import Rgb, _difference, choose_colors, shades_of, without_alike
from hypercaps.data.labels import Labels, Legend, LegendEntry


def hue(color: Rgb) -> float:
    """In degrees: 0 red, 120 green, 240 blue."""
    return 360 * colorsys.rgb_to_hsv(*(part / 255 for part in color))[0]


@pytest.mark.parametrize(
    ("names", "hues"),
    [
        (["water", "Open Water", "lakes", "river_1"], (195, 225)),
        (["vegetation", "low vegetation", "tree", "Woods", "meadow", "Grass-pasture"], (80, 160)),
        (["soil", "Bare Soil", "bare ground"], (20, 40)),
    ],
)
def test_telling_names(names: list[str], hues: tuple[int, int]) -> None:
    for name in names:
        [color] = choose_colors([name])
        assert hues[0] <= hue(color) <= hues[1], (name, color)


def test_impervious_ground_is_grey_but_not_the_grey_of_unsure_pixels() -> None:
    [color] = choose_colors(["impervious"])
    assert max(color) - min(color) < 20 and _difference(color, (128, 128, 128)) > 55


@pytest.mark.parametrize("name", ["class 3", "non-vegetated", "no water", "alpha", "", "7", "watery"])
def test_other_names_say_nothing(name: str) -> None:
    assert shades_of(name) == ()


def test_a_class_has_the_same_colour_beside_any_others() -> None:
    alone = choose_colors(["water"])
    assert choose_colors(["soil", "x", "water"])[2] == choose_colors(["class 1", "water"])[1] == alone[0]


@pytest.mark.parametrize(
    "names",
    [
        [f"class {n}" for n in range(1, 41)],
        ["water", "lake", "river", "sea", "pond", "canal", "soil", "bare soil", "sand", "rock"],
        ["impervious", "low vegetation", "soil", "tree", "water"],
        ["tree", "tree 2", "grass", "meadow", "corn", "wheat", *"abcdefghij"],
    ],
    ids=len,
)
def test_no_two_look_alike(names: list[str]) -> None:
    colors = choose_colors(names)
    assert min(_difference(one, two) for one, two in itertools.combinations(colors, 2)) >= 55


@pytest.mark.parametrize("number", [41, 300, 5000])
def test_of_many_classes_no_two_are_the_same(number: int) -> None:
    assert len(set(choose_colors([f"water {n}" for n in range(number)]))) == number


def test_given_colours_stay_and_others_keep_away_from_them() -> None:
    blue = (31, 120, 209)  # what water would get
    colors = choose_colors(["sky", "water", "sand"], [blue, None, None])
    assert colors[0] == blue and colors[1] != blue and 190 < hue(colors[1]) < 230


def test_of_several_legends_only_default_colours_that_look_alike_are_replaced() -> None:
    water, own = choose_colors(["water"])[0], (1, 2, 3)
    assert without_alike([water, own, water, own]) == [water, own, None, own]
    assert without_alike([water, (30, 119, 210)]) == [None, (30, 119, 210)]  # a user's colour comes first


def test_every_legend_follows_the_rule() -> None:
    names = ["soil", "tree", "water"]
    expected = choose_colors(names)
    legend = Legend.of([4, 7, 9], names)
    assert [entry.color for entry in legend] == expected
    known = Legend((LegendEntry(2, "water", expected[2]),))
    found = Labels.from_array(np.array([[2, 3]]), known).legend
    assert found.entries[0] == known.entries[0] and found.entries[1].color != expected[2]
