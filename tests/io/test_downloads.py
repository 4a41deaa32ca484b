"""Downloads of public scenes: the cache, checksums, mirrors and failures."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypercaps.errors import CatalogError, DataWarning
from hypercaps.io import catalog
from hypercaps.io.open import open_labels, open_scene
from support.tiny_scene import CUBE, CUBE_FILE, CUBE_SHA, GT, GT_FILE, Site, cached, mat

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Bar:
    """A progress bar that remembers."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size, self.total = name, size, 0
        self.done, self.closed = 0, False

    def update(self, amount: int) -> None:
        self.done += amount

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self.closed = True


class Bars:
    def __init__(self) -> None:
        self.made: list[Bar] = []

    def __call__(self, name: str, size: int) -> Bar:
        self.made.append(Bar(name, size))
        return self.made[-1]


# Downloads


def test_download(site: Site, tmp_path: Path) -> None:
    entry = catalog.get_scene("tiny")
    assert entry.locate("cube") is None
    assert entry.describe()["at_hand"] is False
    scene, labels = open_scene("tiny"), open_labels("tiny")
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(labels.array, GT)
    assert [item.name for item in labels.legend] == ["Grass", "Water"]
    assert site.asked == ["/a/Tiny.mat", "/b/Tiny_gt.mat"]
    assert cached(tmp_path) == ["Tiny.mat", "Tiny_gt.mat"]
    assert entry.describe()["at_hand"] is True


def test_the_second_time_nothing_is_asked(site: Site) -> None:
    open_scene("tiny")
    asked = list(site.asked)
    site.files.clear()
    bars = Bars()
    np.testing.assert_array_equal(open_scene("tiny", progress=bars).read().values, CUBE)
    assert site.asked == asked
    assert bars.made == []


def test_the_progress_bar_is_used(site: Site) -> None:
    bars = Bars()
    open_scene("tiny", progress=bars)
    open_labels("tiny", progress=bars)
    assert [(bar.name, bar.size) for bar in bars.made] == [
        ("Tiny.mat", len(CUBE_FILE)),
        ("Tiny_gt.mat", len(GT_FILE)),
    ]
    assert all(bar.done == bar.total == bar.size and bar.closed for bar in bars.made)


def test_the_base_address_without_a_mirror(
    site: Site, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYPERCAPS_MIRROR")
    document["base"] = site.address
    np.testing.assert_array_equal(open_labels("tiny").array, GT)


def test_a_mirror_without_a_slash_at_its_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_MIRROR", site.address.rstrip("/"))
    np.testing.assert_array_equal(open_labels("tiny").array, GT)


def test_a_damaged_download(site: Site, tmp_path: Path) -> None:
    site.files["/a/Tiny.mat"] = CUBE_FILE[:-1] + b"?"
    with pytest.raises(
        CatalogError, match=rf"was damaged in the download from {site.address}a/Tiny\.mat.*{CUBE_SHA}"
    ) as caught:
        open_scene("tiny")
    assert "by hand" in str(caught.value)
    assert cached(tmp_path) == []
    site.files["/a/Tiny.mat"] = CUBE_FILE  # the next time it works
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)


def test_a_damaged_download_says_what_came(site: Site) -> None:
    came = CUBE_FILE[:-1] + b"?"
    site.files["/a/Tiny.mat"] = came
    with pytest.raises(CatalogError, match=hashlib.sha256(came).hexdigest()):
        open_scene("tiny")


def test_a_file_that_is_not_on_the_server(site: Site, tmp_path: Path) -> None:
    del site.files["/a/Tiny.mat"]
    with pytest.raises(CatalogError) as caught:
        open_scene("tiny")
    for part in (
        "Tiny.mat can't be downloaded (HTTP 404)",
        f"get {site.address}a/Tiny.mat by hand",
        f"put it into {tmp_path / 'cache'}",
        "HYPERCAPS_DATA",
    ):
        assert part in str(caught.value)
    assert cached(tmp_path) == []


@pytest.mark.parametrize("sha256", [CUBE_SHA, ""], ids=["hash known", "no hash"])
def test_a_server_that_hangs_up(sha256: str, site: Site, document: dict[str, Any], tmp_path: Path) -> None:
    document["scenes"]["tiny"]["cube"]["sha256"] = sha256
    site.hangs_up = True
    with pytest.raises(CatalogError, match=r"Tiny\.mat can't be downloaded.*by hand"):
        open_scene("tiny")
    assert cached(tmp_path) == []


def test_a_server_that_is_not_there(document: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HYPERCAPS_MIRROR", f"http://127.0.0.1:{port}/")
    with pytest.raises(CatalogError, match=rf"can't be downloaded \(\w+\): get http://127.0.0.1:{port}/a/Tiny\.mat by"):
        open_scene("tiny")
    assert cached(tmp_path) == []


@pytest.mark.parametrize("address", ["nonsense", "http://", "gopher://127.0.0.1/"])
@pytest.mark.usefixtures("document")
def test_a_mirror_that_is_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_MIRROR", address)
    with pytest.raises(CatalogError, match=r"can't be downloaded.*by hand"):
        open_scene("tiny")


def test_a_failed_download_closes_its_progress_bar(site: Site) -> None:
    """A bar that stays open goes on drawing over the error."""
    for spoil in ("missing", "damaged", "hangs up"):
        site.files["/a/Tiny.mat"] = CUBE_FILE[:-1] + b"?"
        if spoil == "missing":
            del site.files["/a/Tiny.mat"]
        site.hangs_up = spoil == "hangs up"
        bars = Bars()
        with pytest.raises(CatalogError):
            open_scene("tiny", progress=bars)
        assert [bar.closed for bar in bars.made] == [True], spoil


def test_ctrl_c_while_downloading(site: Site, tmp_path: Path) -> None:
    class Stopping(Bar):
        def update(self, amount: int) -> None:
            raise KeyboardInterrupt

    made: list[Bar] = []

    def progress(name: str, size: int) -> Bar:
        made.append(Stopping(name, size))
        return made[-1]

    with pytest.raises(KeyboardInterrupt):
        open_scene("tiny", progress=progress)
    assert cached(tmp_path) == []
    assert made[0].closed
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)
    assert site.asked == ["/a/Tiny.mat"] * 2


@pytest.mark.usefixtures("site")
def test_a_cache_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CatalogError, match=r"Tiny\.mat can't be kept in .*cache.*by hand"):
        open_scene("tiny")


def test_a_cached_file_that_was_damaged(site: Site, tmp_path: Path) -> None:
    open_scene("tiny")
    (tmp_path / "cache" / "Tiny.mat").write_bytes(b"damaged")
    with pytest.raises(CatalogError, match=rf"SHA-256 {CUBE_SHA} was expected and .*7 bytes.*delete it"):
        open_scene("tiny")
    (tmp_path / "cache" / "Tiny.mat").unlink()
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)
    assert len(site.asked) == 2


# A file whose checksum nobody has published


@pytest.fixture
def unpublished(document: dict[str, Any]) -> None:
    document["scenes"]["tiny"]["cube"].update(sha256="", bytes=0)


@pytest.mark.usefixtures("unpublished")
def test_an_unpublished_checksum_is_pinned(site: Site, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match=rf"no SHA-256 of Tiny\.mat.*{CUBE_SHA}.*expected from now on") as heard:
        scene = open_scene("tiny")
    assert len(heard) == 1
    np.testing.assert_array_equal(scene.read().values, CUBE)
    assert cached(tmp_path) == ["Tiny.mat", "Tiny.mat.sha256"]
    assert (tmp_path / "cache" / "Tiny.mat.sha256").read_text().strip() == CUBE_SHA
    open_scene("tiny")  # in silence: warnings are errors here
    assert site.asked == ["/a/Tiny.mat"]


@pytest.mark.usefixtures("unpublished", "site")
def test_a_pinned_file_that_changed(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="expected from now on"):
        open_scene("tiny")
    other = mat(tiny=CUBE + 1)
    (tmp_path / "cache" / "Tiny.mat").write_bytes(other)
    with pytest.raises(CatalogError, match=rf"{CUBE_SHA} was expected and {hashlib.sha256(other).hexdigest()} came"):
        open_scene("tiny")


@pytest.mark.usefixtures("unpublished")
def test_a_pinned_file_that_changed_on_the_server(site: Site, tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="expected from now on"):
        open_scene("tiny")
    (tmp_path / "cache" / "Tiny.mat").unlink()
    site.files["/a/Tiny.mat"] = mat(tiny=CUBE + 1)
    with pytest.raises(CatalogError, match=rf"was damaged in the download.*{CUBE_SHA}"):
        open_scene("tiny")
    assert cached(tmp_path) == ["Tiny.mat.sha256"]
    site.files["/a/Tiny.mat"] = CUBE_FILE
    open_scene("tiny")


@pytest.mark.usefixtures("unpublished", "offline")
def test_an_unpublished_file_in_the_data_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_DATA", str(tmp_path))
    (tmp_path / "Tiny.mat").write_bytes(CUBE_FILE)
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)
