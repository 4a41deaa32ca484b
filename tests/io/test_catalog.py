"""The public scenes: what the catalogue says of them, and those that are installed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from hypercaps.errors import CatalogError
from hypercaps.io import catalog
from hypercaps.io.open import open_labels, open_scene

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
