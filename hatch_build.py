"""Compiles src/hypercaps/compute/native/kernels.c when hypercaps is installed or a wheel is built.

The compiler is $CC, or the first of cc, gcc and clang; where there is none, pip fetches one for the time of the build
(the ziglang package). If all of that fails the installation goes on without, and hypercaps uses torch alone, which is
several times slower.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/hypercaps/compute/native")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ["-std=gnu11", "-O3", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi"]
HAS_ZIG = {(s, m) for s in ("Linux", "Darwin", "Windows") for m in ("x86_64", "amd64", "arm64", "aarch64")}
FLAGS += [] if sys.platform == "win32" else ["-fPIC"]


class KernelsHook(BuildHookInterface):  # type: ignore[misc]
    """Puts one shared library for each variant into the wheel, or, for an editable install, beside its source."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        system = platform.system(), platform.machine().lower()
        return ["ziglang>=0.13,<1"] if not system_compiler() and system in HAS_ZIG else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        compiled = compile_kernels(root / FOLDER, root / FOLDER)
        for library in compiled:
            build_data["artifacts"].append(str(library.relative_to(root).as_posix()))
        if compiled:  # a library for this system, but for any version of Python
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"


def platform_tag() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_kernels(source: Path, target: Path) -> list[Path]:
    """The compiled variants, or none, with the reason on standard error."""
    compiler = system_compiler()
    zig = compiler is None and importlib.util.find_spec("ziglang") is not None
    if zig:
        compiler = [sys.executable, "-m", "ziglang", "cc"]
    if compiler is None or struct.calcsize("P") != 8:
        print("hypercaps: no C compiler found, so without compiled kernels: slower", file=sys.stderr)
        return []
    # Left alone, zig compiles for the very processor it runs on.
    variants = {"baseline": ["-mcpu=baseline"] if zig else []}
    if platform.machine().lower() in ("x86_64", "amd64"):
        variants["avx2"] = ["-mcpu=x86_64_v3"] if zig else ["-mavx2", "-mfma"]
    found: list[Path] = []
    for name, flags in variants.items():
        library = target / f"_kernels_{name}{SUFFIX}"
        partial = library.with_name(f".partial-{os.getpid()}-{library.name}")
        command = [*compiler, *FLAGS, *flags, str(source / "kernels.c"), "-o", str(partial), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"hypercaps: {shlex.join(command)} failed, so without compiled kernels: slower", file=sys.stderr)
            print(done.stderr, file=sys.stderr)
            partial.unlink(missing_ok=True)
            for other in found:
                other.unlink()
            return []
        partial.replace(library)  # a program that runs keeps the file it has loaded
        found.append(library)
    return found


def system_compiler() -> list[str] | None:
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    names = ("cc", "gcc", "clang") if sys.platform != "win32" else ("gcc", "clang")
    return next(([path] for path in map(shutil.which, names) if path), None)
