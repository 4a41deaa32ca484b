"""Check the files of a release: what is in them, and that each works in an empty environment.

python release/check_dist.py DIST, as ``make dist`` does after building. Each environment is new, and neither a compiler
nor node is on its PATH: there, ``hypercaps train``, ``map`` and ``serve --help`` are run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FRONTEND = "src/hypercaps/workbench/frontend"
PAGE = ("app.js", "app.css", "index.html", "icon.svg", "licences.txt")
TOOLS = ("cc", "gcc", "clang", "c++", "node", "npm")
# In an installed package: the kernels are compiled, and the page is there.
INSTALLED = """
from pathlib import Path
import hypercaps
from hypercaps.compute import native
print(hypercaps.__version__, native.variant(), (Path(hypercaps.__file__).parent / "workbench/static/app.js").is_file())
"""


def main() -> None:
    folder = Path(sys.argv[1])
    wheel, sdist = _only(folder, "hypercaps-*.whl"), _only(folder, "hypercaps-*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    for package in (wheel, sdist):
        started = time.monotonic()
        run_installed(package)
        print(f"{package.name}: installed and run without compiler and node, {time.monotonic() - started:.0f} s")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}: one is expected")
    return found[0]


def check_wheel(wheel: Path) -> None:
    """Kernels, page and licences are in it, and nothing that is made for developers."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licences = archive.read("hypercaps/workbench/static/licences.txt").decode()
    expected = {f"hypercaps/workbench/static/{name}" for name in PAGE} | {
        "hypercaps/py.typed",
        "hypercaps/io/scenes.toml",
    }
    _refuse(wheel, "lacks", expected - names)
    kernels = [name for name in names if "/native/_kernels_" in name]
    _refuse(wheel, "lacks", set() if kernels else {"the compiled kernels"})
    _refuse(
        wheel,
        "lacks the licence of",
        {"hypercaps"} if not any("/licenses/LICENSE" in name for name in names) else set(),
    )
    _refuse(wheel, "lacks the licences of", bundled_packages() - set(_licensed(licences)))
    _refuse(
        wheel, "has", {name for name in names if "node_modules" in name or "/frontend/" in name or ".partial" in name}
    )
    print(f"{wheel.name}: {len(names)} files, {len(kernels)} variants of the kernels, page with licences")


def check_sdist(sdist: Path) -> None:
    """Everything that a wheel is made from, and the page, which then needs no node."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    expected = {f"src/hypercaps/workbench/static/{name}" for name in (*PAGE, "sources.sha256")}
    expected |= {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "hatch_build.py", f"{FRONTEND}/src/main.ts"}
    expected.add("src/hypercaps/compute/native/kernels.c")
    _refuse(sdist, "lacks", expected - names)
    _refuse(
        sdist, "has", {name for name in names if "node_modules" in name or name.startswith((".venv", "runs", "build"))}
    )
    print(f"{sdist.name}: {len(names)} files, page included")


def bundled_packages() -> set[str]:
    """Names of the packages that the page depends on directly: all of them are in its bundle."""
    about = json.loads((ROOT / FRONTEND / "package.json").read_text(encoding="utf-8"))
    return set(about.get("dependencies", {})) - {"esbuild"}  # which bundles and is not bundled


def _licensed(licences: str) -> list[str]:
    """Names of the packages in licences.txt."""
    sections = licences.split(f"\n{'-' * 80}\n\n")
    return [section.split()[0] for section in sections if section.strip()]


def _refuse(package: Path, what: str, names: set[str]) -> None:
    if names:
        sys.exit(f"{package.name} {what} {', '.join(sorted(names)[:10])}")


def run_installed(package: Path) -> None:
    """Install a file into an empty environment, and use it there."""
    with tempfile.TemporaryDirectory(prefix="hypercaps-dist-") as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        environment = {name: value for name, value in os.environ.items() if name not in ("CC", "PYTHONPATH")}
        environment["PATH"] = str(programs)
        if here := [tool for tool in TOOLS if shutil.which(tool, path=environment["PATH"])]:
            sys.exit(f"the empty environment has {', '.join(here)}")

        def run(*command: str) -> str:
            done = subprocess.run(
                [str(programs / command[0]), *command[1:]],
                cwd=folder, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"{package.name}: {' '.join(command)} failed\n{done.stdout}\n{done.stderr}")
            return done.stdout

        constraints = str(ROOT / "constraints.txt")
        run("python", "-m", "pip", "install", "--quiet", "-c", constraints, f"{package.resolve()}[serve]")
        version, kernels, page = run("python", "-c", INSTALLED).split()
        if kernels == "None" or page != "True":
            sys.exit(f"{package.name}: kernels {kernels}, page {page} after installing")
        run("hypercaps", "train", "indian-pines", "--out", "run", "--epochs", "1", "--train", "0.05", "--quiet")
        run("hypercaps", "map", "run", "indian-pines", "--out", "map.tif", "--quiet")
        run("hypercaps", "serve", "--help")
        if not (folder / "map.tif").is_file():
            sys.exit(f"{package.name}: no map was written")
        print(f"{package.name}: hypercaps {version} with {kernels} kernels trains, maps and serves")


if __name__ == "__main__":
    main()
