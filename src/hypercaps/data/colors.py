"""Default colours of classes: typical ones by the class's name, else from a palette, and never two alike."""

from __future__ import annotations

import colorsys
import itertools
import math
import re
from collections.abc import Iterable, Sequence

Rgb = tuple[int, int, int]  # red, green, blue; 0 to 255
NO_DATA_COLOR: Rgb = (245, 245, 245)  # of pixels without values or without a class

_ALIKE = 55.0  # distance below which two colours look alike on a map
_FEW = 40  # classes whose colours can all look different
_WHEEL = 60  # colours from the colour wheel, after those of the palette


def parse_color(text: str) -> Rgb:
    """'#rrggbb' to (r, g, b)."""
    red, green, blue = bytes.fromhex(text[1:])
    return red, green, blue


# Words of class names, in the singular, and typical colours of them, the most typical first. Greys are dark or
# light: medium grey means unsure.
_SHADES = {
    "water river lake sea ocean pond stream canal reservoir waterbody":
        "#1f78d1 #0b3d91 #6db6f2",
    "wetland marsh swamp bog fen reed mangrove":
        "#2a9d8f #0f5e5a #7ed0c4",
    "tree forest wood woods woodland birch oak beech pine spruce fir conifer deciduous coniferous":
        "#14532d #3d8b40 #6b7f2a",
    "vegetation grass grassland meadow pasture lawn shrub shrubland bush green moss vegetated herb":
        "#7ac943 #4caf50 #b9e07e #2e9e6b",
    "crop cropland corn maize wheat barley oat rye rice soy soybean farmland arable agriculture field hay":
        "#e8c520 #f3e08a #c79a1b #e8a33d",
    "soil bare fallow ground earth mud dirt":
        "#8b5a2b #c08a5a #5a3716",
    "sand beach dune desert":
        "#e6cd98 #cfa968",
    "rock stone gravel scree cliff":
        "#a08f7c #6f6255",
    "building roof house urban built settlement city residential industrial brick tile":
        "#d7301f #f2795f #8e1b14",
    "road street asphalt bitumen concrete pavement paved parking impervious railway sealed":
        "#54585e #2b2d31 #a9b3bd",
    "snow ice glacier":
        "#c2ecf8 #8fd3ea",
    "cloud haze":
        "#dcd3ec",
    "shadow shade":
        "#3b2f5c",
}  # fmt: skip
_BY_WORD = {
    word: tuple(map(parse_color, shades.split())) for words, shades in _SHADES.items() for word in words.split()
}
_NEGATIONS = frozenset({"no", "non", "not", "without", "un"})
# Twelve distinct colours, for classes whose names have no typical colour
_PALETTE = (
    "#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#911eb4",
    "#46f0f0", "#f032e6", "#bcf60c", "#008080", "#9a6324", "#808000",
)  # fmt: skip


def choose_colors(names: Sequence[str], given: Sequence[Rgb | None] | None = None) -> list[Rgb]:
    """The colour of each class of a legend.

    names : of the classes, in the order of the legend
    given : colours that some of them have already, None for the others; no default colour is like one of these
    """
    colors: list[Rgb | None] = [None] * len(names) if given is None else list(given)
    used = _UsedColors([color for color in colors if color is not None], are_few=len(names) <= _FEW)
    missing = [i for i, color in enumerate(colors) if color is None]
    for i in missing:  # names first: classes without a typical colour take what remains
        colors[i] = used.first_unlike(shades_of(names[i]))
    for i in missing:
        colors[i] = colors[i] or used.any_unlike(i)
    return [color for color in colors if color is not None]


class _UsedColors:
    """The colours used in a legend so far. With many classes some look alike, but no two are equal."""

    def __init__(self, colors: Iterable[Rgb], *, are_few: bool) -> None:
        self._colors, self._are_few = set(colors), are_few

    def first_unlike(self, candidates: Iterable[Rgb]) -> Rgb | None:
        """Take the first candidate that is not like a colour so far; None if all are."""
        for color in candidates:
            if color not in self._colors and not (self._are_few and self._distance(color) < _ALIKE):
                self._colors.add(color)
                return color
        return None

    def any_unlike(self, position: int) -> Rgb:
        """Take the palette's colour at a position, or another where that is like one so far."""
        default = _palette_color(position)
        color = self.first_unlike([default, *_ALL_OF_PALETTE] if self._are_few else [default])
        if color is None:
            color = max(_ALL_OF_PALETTE, key=self._distance) if self._are_few else default
            while color in self._colors:
                color = _next_color(color)
            self._colors.add(color)
        return color

    def _distance(self, color: Rgb) -> float:
        """To the nearest colour so far: between Euclidean and what eyes see ("redmean"), 0 to 765."""
        return min((_difference(color, other) for other in self._colors), default=math.inf)


def _next_color(color: Rgb) -> Rgb:
    """A slightly different colour; repeated, it gives all of them."""
    red, green, blue = color
    number = ((red * 256 + green) * 256 + blue + 0x030507) % 256**3
    return number // 256**2, number // 256 % 256, number % 256


def _difference(first: Rgb, second: Rgb) -> float:
    red = (first[0] + second[0]) / 512
    r, g, b = (a - z for a, z in zip(first, second, strict=True))
    return math.sqrt((2 + red) * r * r + 4 * g * g + (3 - red) * b * b)


def without_alike(colors: Sequence[Rgb]) -> list[Rgb | None]:
    """The colours of several legends together: None for a default colour that looks like an earlier one, or a user's.

    A user's own colours stay; so does one that equals a default colour, unless it is like another.
    """
    own = {color for color in colors if color not in _DEFAULTS}
    used = _UsedColors(own, are_few=len(colors) <= _FEW)
    return [color if color in own else used.first_unlike([color]) for color in colors]


def shades_of(name: str) -> tuple[Rgb, ...]:
    """Typical colours of a class name, by its last word that has some; empty if none has."""
    words = re.findall(r"[^\W\d_]+", name.casefold())
    if _NEGATIONS.intersection(words):
        return ()
    for word in reversed(words):
        for form in (word, word.removesuffix("s"), word.removesuffix("es")):
            if form in _BY_WORD:
                return _BY_WORD[form]
    return ()


def _palette_color(position: int) -> Rgb:
    if position < len(_PALETTE):
        return parse_color(_PALETTE[position])
    turn = (position * 0.61803398875) % 1.0  # the golden angle keeps neighbours apart
    r, g, b = colorsys.hsv_to_rgb(turn, 0.55 + 0.35 * (position % 2), 0.85)
    return round(r * 255), round(g * 255), round(b * 255)


_ALL_OF_PALETTE = tuple(map(_palette_color, range(len(_PALETTE) + _WHEEL)))
_DEFAULTS = frozenset(itertools.chain(_ALL_OF_PALETTE, *_BY_WORD.values()))
