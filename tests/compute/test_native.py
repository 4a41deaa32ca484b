"""Whether compiled kernels are found, what happens without, and that threads and processes get along."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hypercaps.compute import native
from hypercaps.errors import SpeedWarning
from hypercaps.models.convcapsnet import ConvCapsNet
from support.build_hook import load_build_hook

compiled = pytest.mark.skipif(not native.available(), reason="hypercaps was installed without compiled kernels")


def lengths() -> torch.Tensor:
    network = ConvCapsNet(40, 3, patch=3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return network(torch.randn(200, 3, 3, 40, generator=torch.Generator().manual_seed(2)))


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(native, "library_path", lambda variant: tmp_path / f"{variant}.so")
    native._load.cache_clear()
    yield
    native._load.cache_clear()


def test_without_compiled_kernels_it_warns_once_and_gives_the_same_result(
    nothing_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(SpeedWarning, match="several times slower: install a C compiler"):
        found = lengths()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(lengths(), found)
    monkeypatch.undo()
    native._load.cache_clear()
    torch.testing.assert_close(lengths(), found, rtol=0, atol=1e-5)


@compiled
def test_they_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with_them = lengths()
    monkeypatch.setenv("HYPERCAPS_NATIVE", "off")
    assert not native.available()
    torch.testing.assert_close(lengths(), with_them, rtol=0, atol=1e-5)


@compiled
def test_a_narrower_variant_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a wider one than the processor has, and only one whose library is there."""
    widest = native.variant()
    assert widest is not None
    for name, bits in native.VARIANTS.items():
        monkeypatch.setenv("HYPERCAPS_NATIVE", name)
        assert native.VARIANTS[str(native.variant())] == min(bits, native.VARIANTS[widest])
    monkeypatch.setenv("HYPERCAPS_NATIVE", "baseline")
    assert native.variant() == "baseline"


@compiled
@pytest.mark.parametrize("functions", [{}, {"hypercaps_widest": lambda: 0}, {"hypercaps_run": SimpleNamespace()}])
def test_a_library_of_an_older_version_is_not_used(functions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    native._load.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(native.ctypes, "CDLL", lambda path: SimpleNamespace(**functions))
        with pytest.warns(SpeedWarning, match="reinstall"):
            assert not native.available()
    native._load.cache_clear()


@compiled
def test_several_threads_of_a_program_can_use_them_at_once() -> None:
    expected, found = lengths(), []
    threads = [threading.Thread(target=lambda: found.append(lengths())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and all(torch.equal(one, expected) for one in found)


def _in_child(pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(lengths().tolist())


@compiled
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_gets_helpers_of_its_own() -> None:
    expected = lengths()  # the helpers of this process are awake now
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(theirs,))
    child.start()
    assert ours.poll(60), "the child hangs"
    assert torch.equal(torch.tensor(ours.recv()), expected)
    child.join(60)
    assert child.exitcode == 0


def test_torch_gets_its_threads_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), native.torch_on_one_thread():
        assert torch.get_num_threads() == 1 and native.threads() == before
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before


def test_every_thread_gets_its_torch_threads_back() -> None:
    """Also one that is done while another is not."""
    before, entered, done = torch.get_num_threads(), threading.Event(), threading.Event()

    def stay_inside() -> None:
        with native.torch_on_one_thread():
            entered.set()
            done.wait(60)

    other = threading.Thread(target=stay_inside)
    with native.torch_on_one_thread():
        other.start()
        assert entered.wait(60)
        with native.torch_on_one_thread():
            pass
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == native.threads() == before
    done.set()
    other.join()
    assert torch.get_num_threads() == native.threads() == before


@compiled
def test_the_first_use_is_fast() -> None:
    """A new program that maps its first pixels compiles nothing: what it imports is what it takes."""
    script = (
        "import sys, time, torch, numpy, sklearn.base, safetensors.torch\n"
        "from hypercaps.models.convcapsnet import ConvCapsNet\n"
        "before = set(sys.modules)\n"
        "with torch.no_grad(): ConvCapsNet(40, 3, patch=3)(torch.zeros(1, 3, 3, 40))\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numba", "torch._inductor", "torch._dynamo"} & set(done.stdout.split("'"))


# ---- how they are compiled -------------------------------------------------------------------------------------------


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_build_hook(monkeypatch)


SOURCE = Path(native.__file__).parent


def test_every_variant_is_compiled_without_a_warning(hook: ModuleType, tmp_path: Path) -> None:
    if hook.system_compiler() is None:
        pytest.skip("no C compiler here")
    found = hook.compile_kernels(SOURCE, tmp_path)
    assert {path.name for path in found} >= {native.library_path("baseline").name}
    assert sorted(tmp_path.iterdir()) == sorted(found)
    command = [*hook.system_compiler(), *hook.FLAGS, "-Werror", str(SOURCE / "kernels.c"), "-o", str(tmp_path / "x")]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_installing_goes_on_where_compiling_fails(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", f"{sys.executable} -c 'raise SystemExit(1)'")
    assert hook.compile_kernels(SOURCE, tmp_path) == []
    assert "without compiled kernels" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_pip_installs_one(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(hook.platform, "system", lambda: "Windows")
    monkeypatch.setattr(hook.platform, "machine", lambda: "AMD64")
    assert hook.compiler_package() == ["ziglang>=0.13,<1"]
    monkeypatch.setattr(hook.platform, "machine", lambda: "riscv64")
    assert hook.compiler_package() == []
    monkeypatch.setenv("CC", "cc")
    assert hook.compiler_package() == []
