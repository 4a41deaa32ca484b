"""Zarr stores of both versions: cubes by the names of their dimensions; no code is run, no other file is read."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from rasterio.crs import CRS
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers.zarr import zarr_arrays
from hypercaps.pipeline.describe import describe
from support.cubes import COLS, CUBE, HUGE, ROWS, WAVES, dataset, put_sum, utm, waves
from support.mutants import mutants, outcome

VERSIONS = [2, 3]


def save(data: xr.Dataset, path: Path, version: int = 3, consolidated: bool = True, **encoding: Any) -> Path:
    """As xarray writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of consolidated metadata in version 3
        chosen = {"reflectance": encoding} if encoding else None
        data.to_zarr(path, zarr_format=version, consolidated=consolidated, encoding=chosen)  # type: ignore[call-overload]
    return path


def array(path: Path, cube: np.ndarray = CUBE, version: int = 3, **options: Any) -> Path:
    """One array on its own, as Zarr writes it."""
    options = {"chunks": (3, 2, 5)} | options
    stored = zarr.create_array(path, shape=cube.shape, dtype=cube.dtype, zarr_format=version, **options)
    stored[...] = cube
    return path


def rewrite(path: Path, **changes: Any) -> None:
    """Change metadata."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# Cubes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "dims", [("y", "x", "wavelength"), ("wavelength", "y", "x"), ("band", "longitude", "latitude")]
)
def test_any_order_of_dimensions(dims: tuple[str, ...], version: int, tmp_path: Path) -> None:
    path = save(dataset(dims=dims), tmp_path / "a.zarr", version)
    assert detect_file(path).kind == "zarr"
    scene = open_scene(path)
    assert (scene.shape, scene.dtype, scene.name) == (CUBE.shape, np.int16, "a")
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(scene.read(slice(2, 5), slice(1, 6)).values, CUBE[2:5, 1:6])


@pytest.mark.parametrize("version", VERSIONS)
def test_bands_numbers_and_georeference(version: int, tmp_path: Path) -> None:
    cube = CUBE.astype(np.float32)
    cube[1, 1, 2], cube[2, 2, 0] = -9999, np.nan
    coords = utm() | {"wavelength": waves("um", np.array(WAVES) / 1e3), "fwhm": ("wavelength", [0.01] * 5)}
    attrs = {"grid_mapping": "spatial_ref", "scale_factor": 0.5}
    data = dataset(cube, attrs=attrs, **coords)
    data["reflectance"].attrs["_FillValue"] = np.float32(-9999)
    scene = open_scene(save(data, tmp_path / "a.zarr", version))
    np.testing.assert_allclose(scene.wavelengths, WAVES)
    np.testing.assert_allclose(scene.fwhm, [10] * 5)
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)
    assert scene.transform == (30, 0, 599985, 0, -30, 5000015)
    pixels = scene.read()
    assert np.argwhere(~pixels.valid).tolist() == [[1, 1], [2, 2]]
    np.testing.assert_array_equal(pixels.values[pixels.valid], cube[pixels.valid] / 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_array_on_its_own(version: int, tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", version=version, attributes={"wavelengths": WAVES})
    scene = open_scene(path)
    np.testing.assert_array_equal(scene.read().values, CUBE)
    assert scene.block == (3, 2) and scene.wavelengths is not None and scene.wavelengths.tolist() == WAVES
    assert describe(str(path)).to_json()["bands"] == 5


@pytest.mark.parametrize("version", VERSIONS)
def test_zero_is_valid_unless_declared_missing(version: int, tmp_path: Path) -> None:
    """Zarr's own fill value is 0 unless another is given."""
    cube = CUBE.copy()
    cube[3, 3, 1] = 0
    assert open_scene(array(tmp_path / "a.zarr", cube, version)).read().valid.all()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_zipped_store_and_groups(version: int, tmp_path: Path) -> None:
    folder = save(dataset(dims=("band", "y", "x")), tmp_path / "a.zarr", version, consolidated=False)
    array(folder / "deep" / "er", -CUBE, version)
    if version == 2:
        (folder / "deep" / ".zgroup").write_text('{"zarr_format": 2}')
    else:
        (folder / "deep" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    shutil.make_archive(str(tmp_path / "a"), "zip", folder)
    for path in (folder, tmp_path / "a.zip"):
        assert detect_file(path).kind == "zarr"
        assert [str(found) for found in detect_file(path).arrays] == ["deep/er (7 x 6 x 5)", "reflectance (7 x 6 x 5)"]
        np.testing.assert_array_equal(open_scene(f"{path}:reflectance").read().values, CUBE)
        np.testing.assert_array_equal(open_scene(f"{path}:deep/er").read(slice(1, 3)).values, -CUBE[1:3])
        with pytest.raises(SceneError, match="several arrays"):
            open_scene(path)


def test_shards(tmp_path: Path) -> None:
    scene = open_scene(array(tmp_path / "a.zarr", chunks=(2, 3, 5), shards=(4, 6, 5)))
    assert scene.block == (2, 3)
    np.testing.assert_array_equal(scene.read().values, CUBE)


@pytest.mark.parametrize(
    "compressor",
    [numcodecs.Blosc(), numcodecs.Zlib(), numcodecs.GZip(), numcodecs.BZ2(), numcodecs.LZMA(), numcodecs.LZ4(), None],
)
def test_compressors_of_version_2(compressor: Any, tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", version=2, compressors=compressor, filters=[numcodecs.Delta("<i2")], order="F")
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)


@pytest.mark.parametrize("version", VERSIONS)
def test_labels(version: int, tmp_path: Path) -> None:
    gt = (np.arange(ROWS * COLS).reshape(ROWS, COLS) % 4).astype(np.uint8)
    attrs = {"flag_values": [1, 2, 3], "flag_meanings": "water trees grass"}
    path = save(xr.Dataset({"gt": (("y", "x"), gt, attrs)}), tmp_path / "gt.zarr", version)
    labels = open_labels(path)
    np.testing.assert_array_equal(labels.array, gt)
    assert [entry.name for entry in labels.legend] == ["water", "trees", "grass"]
    with pytest.raises(SceneError, match="no 3-D array"):
        open_scene(path)


def test_a_forked_process_reads_on_its_own(tmp_path: Path) -> None:
    scene = open_scene(array(tmp_path / "a.zarr"))
    scene.read()
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    child = multiprocessing.get_context("fork").Process(target=put_sum, args=(scene, queue))
    child.start()
    assert queue.get() == CUBE.sum()
    child.join()


# Missing chunks


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_chunks_give_a_warning_and_count_as_nodata(version: int, tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", version=version)
    gone = path / ("1.2.0" if version == 2 else "c/1/2/0")
    gone.unlink()
    with pytest.warns(DataWarning, match=r"1 of 9 chunks of the array are missing"):
        scene = open_scene(path)
    expected = np.ones((ROWS, COLS), dtype=bool)
    expected[3:6, 4:6] = False
    np.testing.assert_array_equal(scene.read().valid, expected)
    np.testing.assert_array_equal(scene.read(slice(2, 7), slice(3, 5)).valid, expected[2:7, 3:5])


def test_a_band_without_chunks_is_left_out(tmp_path: Path) -> None:
    """A chunk that holds nothing but the fill value is not written."""
    cube = CUBE.copy()
    cube[:, :, 2] = 0
    with pytest.warns(DataWarning) as told:
        scene = open_scene(array(tmp_path / "a.zarr", cube, chunks=(7, 6, 1)))
    assert "1 of 5 chunks" in str(told[0].message) and "left out: 3 (nodata" in str(told[1].message)
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 1, 3, 4]])
    assert scene.read().valid.all()


# Refused


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    for opening, error in ((open_scene, SceneError), (open_labels, LabelsError)):
        with pytest.raises(error, match="is a folder"):
            opening(tmp_path)  # type: ignore[operator]


class Trap:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("sprung"),)


def test_a_pickle_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = array(tmp_path / "a.zarr", version=2, chunks=CUBE.shape)
    (path / "0.0.0").write_bytes(pickle.dumps(Trap()))
    for changes in (
        {"filters": [{"id": "pickle"}], "compressor": None},
        {"filters": None, "compressor": {"id": "pickle"}},
        {"dtype": "|O", "filters": [{"id": "pickle"}], "compressor": None, "fill_value": None},
    ):
        rewrite(path / ".zarray", **changes)
        with pytest.raises(SceneError, match=r"packs '' with pickle|holds nothing"):
            open_scene(path).read()
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("what", ["chunk", "folder"])
def test_links_out_of_the_store(what: str, version: int, tmp_path: Path) -> None:
    path = save(dataset(), tmp_path / "a.zarr", version)
    secret = save(dataset(CUBE * 2), tmp_path / "secret.zarr", version)
    inner = Path("reflectance") / ("0.0.0" if version == 2 else "c/0/0/0")
    target = inner if what == "chunk" else Path("reflectance")
    if what == "chunk":
        (path / target).unlink()
    else:
        shutil.rmtree(path / target)
    (path / target).symlink_to(secret / target)
    with pytest.raises(SceneError, match="refers elsewhere"):
        open_scene(path)
    (path / target).unlink()
    shutil.copytree(secret / target, path / target) if what == "folder" else shutil.copy(secret / target, path / target)
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE * 2)


def test_a_pipe_in_place_of_a_chunk(tmp_path: Path) -> None:
    """Reading it would wait forever."""
    path = array(tmp_path / "a.zarr")
    (path / "c/0/0/0").unlink()
    os.mkfifo(path / "c/0/0/0")
    with pytest.raises(SceneError, match="is no file"):
        open_scene(path)


BAD_2 = [
    ({"shape": [10**6, 10**6, 200], "chunks": [100, 100, 200]}, "claims"),
    ({"shape": [1 << 70, 2, 2]}, "whole numbers are expected"),
    ({"shape": [-7, 6, 5]}, "whole numbers are expected"),
    ({"shape": "all"}, "whole numbers are expected"),
    ({"shape": [1] * 40, "chunks": [1] * 40}, "whole numbers are expected"),
    ({"chunks": [0, 2, 5]}, "whole numbers are expected"),
    ({"chunks": [1 << 40, 1 << 10, 5]}, "chunks of"),
    ({"chunks": [3, 2]}, "2 chunk lengths for 3"),
    ({"dtype": "|O"}, "holds nothing"),
    ({"dtype": [["a", "<i2"]]}, "holds nothing"),
    ({"dtype": "<c16"}, "holds nothing"),
    ({"compressor": {"id": "snappy"}}, "snappy"),
    ({"compressor": "zstd and more"}, "zstd and more"),
    ({"dtype": "<f8"}, "truncated, damaged"),
    ({"compressor": {"id": "zlib", "level": 1}}, "truncated, damaged"),
]
BAD_3 = [
    ({"shape": [10**7, 10**7, 200]}, "claims"),
    ({"data_type": "string"}, "holds nothing"),
    ({"data_type": {"name": "struct", "configuration": {}}}, "holds nothing"),
    ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 12] * 3}}}, "chunks of"),
    ({"chunk_grid": "regular"}, "whole numbers are expected"),
    ({"codecs": [{"name": "bytes"}, {"name": "pickle"}]}, "pickle"),
    ({"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 2, 5], "codecs": ["vlen-utf8"]}}]},
     "vlen-utf8"),
    ({"storage_transformers": [{"name": "away"}]}, "storage transformers"),
    ({"codecs": []}, "truncated, damaged"),
    ({"chunk_key_encoding": {"name": "../../etc"}}, "truncated, damaged"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "changes", "sentence"), [(2, *bad) for bad in BAD_2] + [(3, *bad) for bad in BAD_3]
)
def test_unusable_metadata(version: int, changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", version=version)
    rewrite(path / (".zarray" if version == 2 else "zarr.json"), **changes)
    with pytest.raises(SceneError, match=sentence):
        open_scene(path).read(slice(0, 3), slice(0, 2))


def test_consolidated_metadata_must_agree(tmp_path: Path) -> None:
    for version, name in ((2, ".zarray"), (3, "zarr.json")):
        path = save(dataset(), tmp_path / f"{version}.zarr", version)
        rewrite(path / "reflectance" / name, shape=[ROWS, COLS, 4])
        with pytest.raises(SceneError, match="in two ways"):
            open_scene(path)


def test_a_chunk_of_another_size(tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", compressors=None)
    (path / "c/0/0/0").write_bytes(bytes(1 << 20))
    with pytest.raises(SceneError, match="a chunk of 1,048,576 bytes"):
        open_scene(path)


def test_metadata_that_is_too_long_or_too_deep(tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr")
    (path / "zarr.json").write_text(" " * (1 << 25))
    with pytest.raises(SceneError, match="far fewer"):
        open_scene(path)
    (path / "zarr.json").write_text("[" * 100_000)
    with pytest.raises(SceneError, match="truncated, damaged"):
        open_scene(path)
    for depth in range(30):
        inner = tmp_path / "b.zarr" / Path(*"x" * depth)
        inner.mkdir()
        (inner / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(SceneError, match="deep"):
        open_scene(tmp_path / "b.zarr")


def test_a_truncated_zip(tmp_path: Path) -> None:
    shutil.make_archive(str(tmp_path / "a"), "zip", array(tmp_path / "a.zarr"))
    whole = (tmp_path / "a.zip").read_bytes()
    (tmp_path / "a.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SceneError, match="truncated"):
        open_scene(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("zarr.json", "{}")
    with pytest.raises(SceneError, match="holds nothing"):
        open_scene(tmp_path / "b.zip")


def test_false_sizes_cost_no_memory(tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr")
    rewrite(path / "zarr.json", shape=[10**6, 10**6, 200])
    done = subprocess.run([sys.executable, "-c", HUGE, str(path)], capture_output=True, text=True, check=True)
    sentence, _, memory = done.stdout.strip().rpartition("\n")
    assert "claims" in sentence and int(memory) < 100, done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores(version: int, tmp_path: Path) -> None:
    """With checksums for chunks and consolidated metadata, no damage gives wrong numbers.

    Without them this can't be guaranteed: metadata with another byte order looks as good as the true one.
    """
    checked = {"compressors": (ZstdCodec(), Crc32cCodec())} if version == 3 else {"filters": [numcodecs.CRC32()]}
    path = save(dataset(**utm()), tmp_path / "a.zarr", version, chunks=(4, 3, 5), **checked)
    sound, found = open_scene(path), []
    files = sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        whole = file.read_bytes()
        for content in mutants(whole, -(-250 // len(files)), seed=len(found)):
            file.write_bytes(content)
            found.append(outcome(path, sound))
        file.write_bytes(whole)
    assert len(found) >= 250 and set(found) <= {"refused", "same", "told"}, found
    assert found.count("refused") > 100 and open_scene(path).read().valid.all()
    assert zarr_arrays(path)


# Chunks that decompress to far more than a chunk


def bomb(compressor: str) -> bytes:
    codec = numcodecs.get_codec({"id": compressor})
    return bytes(codec.encode(bytes(40_000_000)))


@pytest.mark.parametrize("compressor", ["gzip", "zlib", "bz2", "lzma", "zstd", "blosc", "lz4"])
def test_a_chunk_that_is_a_bomb(compressor: str, tmp_path: Path) -> None:
    options: Any = {"compressors": numcodecs.get_codec({"id": compressor}), "chunks": CUBE.shape}
    path = array(tmp_path / "a.zarr", version=2, **options)
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)
    (path / "0.0.0").write_bytes(bomb(compressor))
    tracemalloc.start()
    try:
        with pytest.raises(SceneError, match=r"a\.zarr has a (damaged )?chunk"):
            open_scene(path).read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_bomb_in_a_shard(at: str, tmp_path: Path) -> None:
    from zarr.codecs import ShardingCodec

    shards = ShardingCodec(chunk_shape=(3, 2, 5), codecs=[BytesCodec(), ZstdCodec()], index_location=at)  # type: ignore[arg-type]
    stored = zarr.create_array(
        tmp_path / "a.zarr", shape=CUBE.shape, dtype=CUBE.dtype, chunks=(6, 4, 10), serializer=shards, compressors=None
    )
    stored[...] = CUBE
    np.testing.assert_array_equal(open_scene(tmp_path / "a.zarr").read().values, CUBE)
    file = tmp_path / "a.zarr" / "c" / "0" / "0" / "0"
    raw = bytearray(file.read_bytes())
    place = raw.index(b"\x28\xb5\x2f\xfd")  # a chunk: its header now claims 4 GB
    raw[place + 4 : place + 9] = b"\xa0" + (1 << 31).to_bytes(4, "little")
    file.write_bytes(raw)
    with pytest.raises(SceneError, match=r"a\.zarr has a damaged chunk"):
        open_scene(tmp_path / "a.zarr").read()


def test_chunks_that_are_compressed_twice(tmp_path: Path) -> None:
    path = array(tmp_path / "a.zarr", version=2, compressors=numcodecs.BZ2())
    rewrite(path / ".zarray", filters=[{"id": "bz2", "level": 1}])
    with pytest.raises(SceneError, match=r"packs '' several times"):
        open_scene(path)
    path = array(tmp_path / "b.zarr", version=3, compressors=[ZstdCodec(), ZstdCodec()])
    with pytest.raises(SceneError, match=r"packs '' several times"):
        open_scene(path)
