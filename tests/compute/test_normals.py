"""Normal numbers: numpy's own, to the bit, with and without compiled kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hypercaps.compute import native
from hypercaps.compute.normals import standard_normal

VARIANTS = [name for name in native.VARIANTS if native.library_path(name).exists()]
compiled = pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")
UP_TO = (1 << 23) - 1
SMALL, LARGE = 0x0100_000A, 0xFF00_000A  # words from which a uniform number near 0, or near 1, is made


@pytest.fixture(params=[*VARIANTS, "off"])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HYPERCAPS_NATIVE", request.param)
    return request.param


class Words:
    """A generator for numpy that gives the words of a list and then two others in turn."""

    def __init__(self, *then: int) -> None:
        self.words: list[int] = []
        self.taken = 0

        def next_word(state: object) -> int:
            place, self.taken = self.taken, self.taken + 1
            after = place - len(self.words)
            return self.words[place] if after < 0 else then[after % len(then)]

        class Interface(ctypes.Structure):
            _fields_ = (
                ("state", ctypes.c_void_p),
                ("next_uint64", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)),
                ("next_uint32", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)),
                ("next_double", ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)),
                ("next_raw", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)),
            )

        kinds: dict[str, Any] = dict(Interface._fields_)
        self.interface = Interface(None, *(kinds[name](next_word) for name in list(kinds)[1:]))
        make: Any = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = make(ctypes.addressof(self.interface), b"BitGenerator", None)
        self.lock = threading.Lock()
        self.ctypes = SimpleNamespace(next_uint32=self.interface.next_uint32, state_address=0)

    def restart(self, words: list[int]) -> None:
        self.words, self.taken = words, 0


def word(layer: int, size: int, sign: int = 0) -> int:
    return layer | sign << 8 | size << 9


def first_outside(generator: Words, rng: np.random.Generator, layer: int) -> int:
    """The least size in a layer for which numpy needs more than one word."""
    least, most = 0, UP_TO + 1
    while least < most:
        middle = (least + most) // 2
        generator.restart([word(layer, middle)])
        rng.standard_normal(dtype=np.float32)
        least, most = (middle + 1, most) if generator.taken == 1 else (least, middle)
    return least


def test_they_are_those_of_numpy_to_the_bit_and_so_is_the_generator_after_them(variant: str) -> None:
    expected, used = np.random.default_rng(7), np.random.default_rng(7)
    for shape in ((3,), (1,), (1000, 401), (0, 5), (2, 3, 5)):  # half of a word of 64 bits is left in between
        theirs, ours = expected.standard_normal(shape, dtype=np.float32), standard_normal(used, shape)
        assert ours.shape == shape and ours.dtype == np.float32
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        assert used.bit_generator.state == expected.bit_generator.state


@compiled
@pytest.mark.parametrize("then", [(SMALL, LARGE), (LARGE, SMALL), (LARGE, SMALL, SMALL)])
def test_at_the_edges_of_the_layers_they_are_those_of_numpy(then: tuple[int, ...]) -> None:
    """Numbers that hardly ever occur: on the curve, just beside it and far in its tail."""
    generator = Words(*then)
    rng = np.random.Generator(generator)  # type: ignore[arg-type]
    edges = []
    searching = Words(SMALL, LARGE)
    search = np.random.Generator(searching)  # type: ignore[arg-type]
    for layer in range(256):
        edge = first_outside(searching, search, layer)
        edges.append(edge)
        for size in {max(edge - 1, 0), edge, min(edge + 1, UP_TO), (edge + UP_TO) // 2, UP_TO}:
            for sign in (0, 1):
                # In the tail, two numbers in this order always give one: with another, numpy would draw for ever.
                after = [SMALL, LARGE] if layer == 0 else []
                generator.restart([word(layer, size, sign), *after])
                theirs = rng.standard_normal((1,), dtype=np.float32), generator.taken
                generator.restart([word(layer, size, sign), *after])
                ours = standard_normal(rng, (1,)), generator.taken
                assert ours[0].tobytes() == theirs[0].tobytes() and ours[1] == theirs[1], (layer, size, sign)
    assert edges[1] == 0 and len(set(edges)) > 250
