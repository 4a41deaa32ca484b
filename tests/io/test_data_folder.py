"""Public scenes in the folder that HYPERCAPS_DATA names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from hypercaps.errors import CatalogError
from hypercaps.io import catalog
from hypercaps.io.open import open_labels, open_scene
from support.plain_user import plain_user
from support.tiny_scene import CUBE, CUBE_FILE, CUBE_SHA, GT_FILE, Site, cached

# After a refused download pooch leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("HYPERCAPS_DATA", str(folder))
    return folder


@pytest.mark.parametrize("where", ["", "one", "one/two/three"])
def test_a_file_at_any_depth_is_found(where: str, data: Path, site: Site, tmp_path: Path) -> None:
    (data / where).mkdir(parents=True, exist_ok=True)
    (data / where / "Tiny.mat").write_bytes(CUBE_FILE)
    entry = catalog.get_scene("tiny")
    assert entry.locate("cube") == data / where / "Tiny.mat"
    assert entry.get("cube") == (data / where / "Tiny.mat", "tiny")
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)
    assert site.asked == []
    assert cached(tmp_path) == []


def test_the_data_folder_comes_before_the_cache(data: Path, site: Site) -> None:
    open_labels("tiny")
    assert site.asked == ["/b/Tiny_gt.mat"]
    (data / "Tiny_gt.mat").write_bytes(GT_FILE)
    assert catalog.get_scene("tiny").get("labels")[0] == data / "Tiny_gt.mat"


@pytest.mark.usefixtures("data")
def test_what_is_not_in_the_data_folder_is_downloaded(site: Site) -> None:
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)
    assert site.asked == ["/a/Tiny.mat"]


def test_a_damaged_file_in_the_data_folder(data: Path, site: Site) -> None:
    (data / "deep").mkdir()
    (data / "deep" / "Tiny.mat").write_bytes(CUBE_FILE[:-10])
    with pytest.raises(CatalogError) as caught:
        open_scene("tiny")
    for part in (
        str(data / "deep" / "Tiny.mat"),
        f"SHA-256 {CUBE_SHA} was expected",
        f"{hashlib.sha256(CUBE_FILE[:-10]).hexdigest()} came",
        f"{len(CUBE_FILE) - 10:,} bytes, not {len(CUBE_FILE):,}",
        f"{site.address}a/Tiny.mat",
    ):
        assert part in str(caught.value)
    assert site.asked == []


@pytest.mark.parametrize("intact", ["a", "b"])
@pytest.mark.usefixtures("document", "offline")
def test_of_two_candidates_the_intact_one_is_used(intact: str, data: Path) -> None:
    for folder in ("a", "b"):
        (data / folder).mkdir()
        (data / folder / "Tiny.mat").write_bytes(CUBE_FILE if folder == intact else b"damaged")
    assert catalog.get_scene("tiny").get("cube")[0] == data / intact / "Tiny.mat"
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)


@pytest.mark.usefixtures("document", "offline")
def test_a_folder_with_the_files_name_is_passed_over(data: Path) -> None:
    (data / "a" / "Tiny.mat").mkdir(parents=True)
    (data / "b").mkdir()
    (data / "b" / "Tiny.mat").write_bytes(CUBE_FILE)
    np.testing.assert_array_equal(open_scene("tiny").read().values, CUBE)


@pytest.mark.parametrize("kind", ["missing", "file"])
@pytest.mark.usefixtures("document", "offline")
def test_a_data_folder_that_is_none(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "data"
    if kind == "file":
        place.write_text("a file")
    monkeypatch.setenv("HYPERCAPS_DATA", str(place))
    with pytest.raises(CatalogError, match=re.escape(f"HYPERCAPS_DATA names {place}, which is not a folder")):
        open_scene("tiny")


def test_an_empty_variable_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_DATA", "")
    open_labels("tiny")
    assert site.asked == ["/b/Tiny_gt.mat"]


@pytest.mark.usefixtures("document", "offline")
def test_a_file_in_the_data_folder_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_user() as folder:
        (folder / "Tiny.mat").write_bytes(CUBE_FILE)
        (folder / "Tiny.mat").chmod(0)
        monkeypatch.setenv("HYPERCAPS_DATA", str(folder))
        with pytest.raises(CatalogError, match=r"Tiny\.mat"):
            open_scene("tiny")
