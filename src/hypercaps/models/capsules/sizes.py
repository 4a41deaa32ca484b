"""Sizes of 1D-ConvCapsNet, without torch: of its layers and of all its weights."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from hypercaps.errors import ModelError

_WINDOW, _STRIDE = 9, 2  # the paper's, of both layers along the spectrum
_SHORT_WINDOW = 3  # with stride 1, for spectra that are too short for the paper's


def positions_after(length: int, window: int, stride: int) -> int:
    """Number of output positions of an unpadded convolution (may be <= 0)."""
    return (length - window) // stride + 1


def window_and_stride(bands: int, window: int | None = None, stride: int | None = None) -> tuple[int, int]:
    """Window and stride of a layer along the spectrum as given; None: the paper's, or short ones for few bands."""
    is_long = bands >= _WINDOW + _STRIDE * (_WINDOW - 1)
    # Two windows of 3 need 5 bands. On Indian Pines averaged to 12 and 24 bands they beat longer ones with stride 2.
    usual = (_WINDOW, _STRIDE) if is_long else (min(_SHORT_WINDOW, (bands + 1) // 2), 1)
    return usual[0] if window is None else window, usual[1] if stride is None else stride


def positions_after_two(bands: int, first: tuple[int, int], second: tuple[int, int]) -> int:
    """Positions after two unpadded convolutions of (window, stride) along the spectrum; refuses too few bands."""
    check_bands(bands, first[0] + first[1] * (second[0] - 1), f"windows of {first[0]} and {second[0]}")
    return positions_after(positions_after(bands, *first), *second)


def check_bands(bands: int, least: int, what: str) -> None:
    """Refuse fewer bands than the windows of a network need."""
    if bands < least:
        number = "1 band is" if bands == 1 else f"{bands} bands are"
        raise ModelError(
            f"{number} too few for {what}: at least {least} are needed; use a method that takes any number of bands, "
            "such as convcapsnet or lda, or smaller windows"
        )


def check_sizes(sizes: Mapping[str, object]) -> None:
    """Refuse sizes below 1; values that are no whole numbers are ignored."""
    for name, value in sizes.items():
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, int) and number < 1:
                raise ModelError(f"{name} is {value}: a whole number of 1 or more is expected")


def check_centre(patch: int) -> None:
    """Refuse a patch without a centre."""
    if patch % 2 == 0:
        raise ModelError(f"patch is {patch}: an odd number is expected, so that the pixel is its centre")


@dataclass(frozen=True)
class ConvCapsSizes:
    """Sizes of the network; defaults are the paper's structure table.

    Fewer than 25 bands are too short for its windows: there the defaults are windows of at most 3 with stride 1.
    """

    bands: int
    classes: int
    patch: int = 7
    spatial_filters: int = 16
    primary_arrays: int = 2
    primary_size: int = 8
    primary_window: int | None = None  # None: 9 and stride 2, or less for few bands
    primary_stride: int | None = None
    conv_arrays: int = 4
    conv_size: int = 8
    conv_window: int | None = None
    conv_stride: int | None = None
    class_size: int = 16
    routings: int = 3

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if value is not None:
                operator.index(value)  # TypeError for anything but whole numbers
        check_sizes(vars(self))
        check_centre(self.patch)

    @property
    def primary(self) -> tuple[int, int]:
        """Window and stride of PrimaryCaps."""
        return window_and_stride(self.bands, self.primary_window, self.primary_stride)

    @property
    def conv(self) -> tuple[int, int]:
        """Window and stride of 1D-ConvCaps."""
        return window_and_stride(self.bands, self.conv_window, self.conv_stride)

    @property
    def positions(self) -> int:
        """Positions of the capsules that are routed; refuses too few bands."""
        return positions_after_two(self.bands, self.primary, self.conv)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each weight, by its name in the module and in model files."""
        primary, conv = self.primary_arrays * self.primary_size, self.conv_arrays * self.conv_size
        return {
            "spatial.weight": (self.spatial_filters, self.patch**2),
            "spatial.bias": (self.spatial_filters, 1),
            "primary.conv.weight": (primary, self.spatial_filters, self.primary[0]),
            "primary.conv.bias": (primary,),
            "conv.conv.weight": (conv, primary, self.conv[0]),
            "conv.conv.bias": (conv,),
            "classcaps.viewpoints": (self.positions, self.conv_arrays, self.classes, self.conv_size, self.class_size),
        }
