"""The kernels for ARM processors, cross-compiled and run by an emulator: where both are installed (Debian's
gcc-aarch64-linux-gnu with libc6-dev-arm64-cross, and qemu-user)."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypercaps import Scene
from hypercaps.compute import native
from hypercaps.models.convcapsnet import ConvCapsNet
from hypercaps.training.preprocessing import PCAWhitening

COMPILER, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")


def runs_a_program(folder: Path) -> bool:
    """True where the compiler finds a C library for ARM, which Debian packages apart, and the emulator runs it."""
    source, program = folder / "hello.c", folder / "hello"
    source.write_text('#include <math.h>\n#include <stdio.h>\nint main(void) { return puts("hello") < 0; }\n')
    compiled = subprocess.run([str(COMPILER), "-static", str(source), "-o", str(program), "-lm"], capture_output=True)
    if compiled.returncode != 0:
        return False
    return subprocess.run([str(EMULATOR), str(program)], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels and ``run_kernel.c`` as a program for ARM."""
    path = tmp_path_factory.mktemp("arm") / "run_kernel"
    if not (COMPILER and EMULATOR and native.available() and runs_a_program(path.parent)):
        pytest.skip("no cross-compiler with a C library and emulator for ARM here")
    sources = str(Path(__file__).with_name("run_kernel.c")), str(Path(native.__file__).with_name("kernels.c"))
    command = [str(COMPILER), "-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror", *sources, "-o", str(path)]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def emulated(program: Path) -> Callable[..., None]:
    """``native.run`` by the emulator: arguments are sent to it, and what it makes of the tensors comes back."""

    def run(name: str, *arguments: Any) -> None:
        sent, memory = struct.pack("2q", native._KERNELS.index(name), len(arguments)), []
        for argument in arguments:
            if isinstance(argument, native.LayerWeights):
                parts = [memory_of(part, part.nbytes) for part in argument.keep]
                sent += struct.pack("2q", 2, len(parts)) + b"".join(struct.pack("q", len(p)) + bytes(p) for p in parts)
            elif isinstance(argument, (torch.Tensor, np.ndarray, ctypes.Structure)):
                size = ctypes.sizeof(argument) if isinstance(argument, ctypes.Structure) else argument.nbytes
                parts = [memory_of(argument, size)]
                sent += struct.pack("2q", 1, size) + bytes(parts[0])
            else:
                parts, sent = [], sent + struct.pack("2q", 0, argument or 0)
            memory += parts
        done = subprocess.run([str(EMULATOR), str(program)], input=sent, capture_output=True, check=True)
        at = 0
        for part in memory:
            part[:] = done.stdout[at : at + len(part)]
            at += len(part)
        assert at == len(done.stdout)

    return run


def memory_of(argument: Any, size: int) -> Any:
    return (ctypes.c_char * size).from_address(native._number(argument))


def results(classes: int) -> list[torch.Tensor]:
    """Lengths in one pass, lengths with gradients, and the gradients of all weights."""
    network = ConvCapsNet(43, classes, patch=3, generator=torch.Generator().manual_seed(1))
    patches = torch.randn(11, 3, 3, 43, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        at_once = network(patches)
    lengths = network(patches)
    lengths.square().sum().backward()
    return [at_once, lengths.detach(), *(weight.grad for weight in network.parameters())]


@pytest.mark.parametrize("classes", [3, 4])
def test_an_emulated_processor_finds_the_same(program: Path, monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    expected = results(classes)
    monkeypatch.setattr(native, "run", emulated(program))
    found = results(classes)
    assert len(found) == len(expected) > 6
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


def test_an_emulated_processor_gives_a_pixel_the_same_bits_in_any_company(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "run", emulated(program))
    network = ConvCapsNet(43, 3, patch=3, generator=torch.Generator().manual_seed(1))
    patches = torch.randn(29, 3, 3, 43, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found = network(patches)
        for some in (1, 6, 25):
            assert torch.equal(network(patches[-some:]), found[-some:])


def test_an_emulated_processor_whitens_the_same(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(6, 7, 21)).astype(np.float32)
    whitening = PCAWhitening.fit(Scene.from_array(values))
    expected = whitening.transform(values)
    monkeypatch.setattr(native, "run", emulated(program))
    np.testing.assert_allclose(whitening.transform(values), expected, rtol=1e-5, atol=1e-5)
