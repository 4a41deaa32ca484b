"""The public scenes: what the catalogue says of them, where files are looked for, and downloading."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from hypercaps.errors import CatalogError, DataWarning
from hypercaps.io import catalog
from hypercaps.io.open import open_labels, open_scene
from support.plain_user import plain_user

# After a refused download pooch leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

NAMES = [
    "indian-pines",
    "indian-pines-220",
    "pavia-university",
    "salinas",
    "salinas-corrected",
    "salinas-a",
    "pavia-centre",
    "ksc",
    "botswana",
]


# What the catalogue says

# Rows, columns, bands, classes and labelled pixels, as the scenes' page gives them.
FACTS = {
    "indian-pines": (145, 145, 200, 16, 10249),
    "indian-pines-220": (145, 145, 220, 16, 10249),
    "pavia-university": (610, 340, 103, 9, 42776),
    "salinas": (512, 217, 224, 16, 54129),
    "salinas-corrected": (512, 217, 204, 16, 54129),
    "salinas-a": (83, 86, 204, 6, 5348),
    "pavia-centre": (1096, 715, 102, 9, 148152),
    "ksc": (512, 614, 176, 13, 5211),
    "botswana": (1476, 256, 145, 14, 3248),
}


def test_the_nine_scenes() -> None:
    assert catalog.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str) -> None:
    entry = catalog.get_scene(name)
    assert (*entry.shape, len(entry.legend), entry.labelled) == FACTS[name]
    assert 0 < entry.labelled <= entry.shape[0] * entry.shape[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_is_complete(name: str) -> None:
    entry = catalog.get_scene(name)
    for text in (entry.title, entry.place, entry.sensor, entry.licence, entry.citation):
        assert text.strip()
    assert entry.pixel_m > 0
    low, high = entry.range_nm
    assert 300 < low < high <= 2600
    names = [item.name for item in entry.legend]
    colors = [item.color for item in entry.legend]
    assert all(names)
    assert len(set(names)) == len(names)
    assert len(set(colors)) == len(colors)
    assert all(0 <= part <= 255 for color in colors for part in color)
    for file in entry.files.values():
        assert file.key
        assert file.name.endswith(".mat")
        assert re.fullmatch(r"https://www\.ehu\.eus/ccwintco/uploads/[0-9a-f]/[0-9a-f]{2}/\w+\.mat", file.url)
        if (name, file) != ("salinas", entry.files["cube"]):  # the one that nobody has published
            assert re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert file.bytes > 0
    assert list(entry.files) == ["cube", "labels"]


@pytest.mark.parametrize("name", NAMES)
def test_wavelengths_are_one_for_each_band(name: str) -> None:
    entry = catalog.get_scene(name)
    if entry.wavelengths is None:
        assert not name.startswith("indian-pines")
        return
    assert len(entry.wavelengths) == entry.shape[2]
    assert entry.range_nm[0] <= min(entry.wavelengths)
    assert max(entry.wavelengths) <= entry.range_nm[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_description_can_be_written_as_json(name: str) -> None:
    described = json.loads(json.dumps(catalog.get_scene(name).describe(), allow_nan=False))
    rows, cols, bands, classes, labelled = FACTS[name]
    assert (described["rows"], described["cols"], described["bands"]) == (rows, cols, bands)
    assert (len(described["classes"]), described["labelled"]) == (classes, labelled)
    assert described["at_hand"] is (name == "indian-pines")  # nothing else is there without a download
    assert len(described["files"]) == 2


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(CatalogError, match=r"no public scene 'indian-pine'.*botswana.*did you mean indian-pines\?"):
        catalog.get_scene("indian-pine")
    with pytest.raises(CatalogError, match=r"known are indian-pines.*botswana$"):
        catalog.get_scene("zzz")


def test_sizes_and_checksums_are_the_published_ones(real_data: Path) -> None:
    text = (real_data / "README.md").read_text(encoding="utf-8")
    published = dict(re.findall(r"^\| ([0-9a-f]/[0-9a-f]{2}/\w+\.mat) \| (\d+ \| [0-9a-f]{64}) \|$", text, re.M))
    stated = {}
    for entry in map(catalog.get_scene, NAMES):
        for file in entry.files.values():
            stated[file.path] = f"{file.bytes} | {file.sha256}"
    assert stated.pop("f/f1/Salinas.mat") == "0 | "
    assert stated == published


# The scene that is always there


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a download was tried")

    monkeypatch.setattr(catalog, "_download", refuse)


@pytest.mark.usefixtures("offline")
def test_indian_pines_is_there_offline() -> None:
    scene, labels = open_scene("indian-pines"), open_labels("indian-pines")
    assert (scene.name, scene.shape) == ("indian-pines", (145, 145, 200))
    assert scene.wavelengths is not None
    assert scene.wavelengths.shape == (200,)
    labels.check_fits(scene)
    assert int((labels.array > 0).sum()) == 10249
    assert labels.legend == catalog.get_scene("indian-pines").legend
    assert labels.counts()[11] == 2455  # Soybean-mintill
    assert labels.counts()[9] == 20  # Oats


def dropped() -> list[int]:
    """The water bands that the corrected scene leaves out, counted from 0."""
    return [*range(103, 108), *range(149, 163), 219]


@pytest.mark.usefixtures("offline")
def test_dropped_bands_have_no_wavelength(real_data: Path) -> None:
    lines = (real_data / "indian_pines" / "92AV3C.spc").read_text().splitlines()
    sensor = np.array([float(line.split()[0]) for line in lines if re.match(r"\d+\.\d+\s", line)])
    assert sensor.shape == (220,)
    all_bands = catalog.get_scene("indian-pines-220").wavelengths
    np.testing.assert_allclose(all_bands, sensor, atol=0.0051)
    waves = open_scene("indian-pines").wavelengths
    assert waves is not None
    np.testing.assert_allclose(waves, np.delete(sensor, dropped()), atol=0.0051)
    for band in dropped():
        assert np.abs(waves - sensor[band]).min() > 1


@pytest.mark.usefixtures("offline")
def test_indian_pines_is_the_canonical_file(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carried, carried_labels = open_scene("indian-pines").read().values, open_labels("indian-pines").array
    monkeypatch.setenv("HYPERCAPS_DATA", str(real_data))
    path, key = catalog.get_scene("indian-pines").get("cube")
    assert (path.name, path.is_relative_to(real_data), key) == (
        "Indian_pines_corrected.mat",
        True,
        "indian_pines_corrected",
    )
    np.testing.assert_array_equal(open_scene("indian-pines").read().values, carried)
    np.testing.assert_array_equal(open_labels("indian-pines").array, carried_labels)


def test_a_damaged_package_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    (tmp_path / "datasets" / "data" / "Indian_pines_gt.npy").write_bytes(b"something else")

    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda _: Spec)
    with pytest.raises(CatalogError, match="SHA-256 44610d21"):
        open_labels("indian-pines")


# Other real scenes


@pytest.mark.usefixtures("offline")
def test_salinas_a(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_DATA", str(real_data))
    scene, labels = open_scene("salinas-a"), open_labels("salinas-a")
    assert (scene.shape, scene.dtype) == ((83, 86, 204), np.dtype(np.int16))
    assert scene.read().values.min() == -9
    labels.check_fits(scene)
    assert labels.legend.labels.tolist() == [1, 10, 11, 12, 13, 14]
    assert [entry.name for entry in labels.legend][:2] == ["Brocoli_green_weeds_1", "Corn_senesced_green_weeds"]
    assert int((labels.array > 0).sum()) == 5348


@pytest.mark.usefixtures("offline")
def test_labels_without_their_cube(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Pavia University only the ground truth is at hand, beside a block under another name."""
    monkeypatch.setenv("HYPERCAPS_DATA", str(real_data))
    labels = open_labels("pavia-university")
    assert labels.shape == (610, 340)
    assert int((labels.array > 0).sum()) == 42776
    assert labels.legend == catalog.get_scene("pavia-university").legend
    assert catalog.get_scene("pavia-university").locate("cube") is None
    assert catalog.get_scene("pavia-university").describe()["at_hand"] is False


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["indian-pines-220", "salinas", "salinas-corrected"])
def test_ground_truths_agree_with_the_catalogue(name: str, real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERCAPS_DATA", str(real_data))
    entry, labels = catalog.get_scene(name), open_labels(name)
    assert labels.shape == entry.shape[:2]
    assert int((labels.array > 0).sum()) == entry.labelled
    assert labels.legend == entry.legend


# A made scene in a catalogue of its own

CUBE = np.arange(6 * 5 * 8, dtype=np.uint16).reshape(6, 5, 8)
GT = (np.arange(30).reshape(6, 5) % 3).astype(np.uint8)


def mat(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays, do_compression=True)
    return buffer.getvalue()


CUBE_FILE, GT_FILE = mat(tiny=CUBE), mat(tiny_gt=GT)
CUBE_SHA, GT_SHA = (hashlib.sha256(content).hexdigest() for content in (CUBE_FILE, GT_FILE))


class Site:
    """What a server on this machine has, and what was asked of it."""

    def __init__(self) -> None:
        self.files = {"/a/Tiny.mat": CUBE_FILE, "/b/Tiny_gt.mat": GT_FILE}
        self.asked: list[str] = []
        self.hangs_up = False  # in the middle of a file
        self.address = ""


@pytest.fixture
def document(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The catalogue, with one small scene in place of the nine."""
    made: dict[str, Any] = {
        "base": "http://127.0.0.1:1/never/",
        "scenes": {
            "tiny": {
                "title": "Tiny",
                "place": "nowhere",
                "sensor": "none",
                "shape": [6, 5, 8],
                "labelled": 20,
                "range_nm": [400, 2500],
                "pixel_m": 1,
                "licence": "CC0",
                "citation": "none",
                "cube": {"path": "a/Tiny.mat", "bytes": len(CUBE_FILE), "sha256": CUBE_SHA, "key": "tiny"},
                "labels": {"path": "b/Tiny_gt.mat", "bytes": len(GT_FILE), "sha256": GT_SHA, "key": "tiny_gt"},
                "classes": [[1, "Grass", "#00ff00"], [2, "Water", "#0000ff"]],
            }
        },
    }
    monkeypatch.setattr(catalog, "_document", lambda: made)
    return made


@pytest.fixture
def site(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with the files of the small scene, as the mirror."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if site.hangs_up else content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_port}/"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HYPERCAPS_MIRROR", site.address)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield site
        server.shutdown()
        thread.join()
    gc.collect()  # here and not in somebody else's test


def cached(tmp_path: Path) -> list[str]:
    """The names in the cache that every test has of its own."""
    folder = tmp_path / "cache"
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


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


# HYPERCAPS_DATA


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
