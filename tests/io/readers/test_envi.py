"""ENVI: every number type, byte order and layout; what headers say; files that don't keep what headers promise."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS

from hypercaps.errors import DataWarning, HypercapsError, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.readers.envi import read_header
from hypercaps.io.readers.flat_binary import window_taker
from hypercaps.pipeline.describe import describe
from support.memory import output_of

CUBE = np.arange(6 * 5 * 4).reshape(6, 5, 4) + 3  # all below 128: any type holds it
TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
LAYOUTS = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}
UTM = "UTM, 1, 1, 500000, 4000000, 30, 30, 33, North, WGS-84, units=Meters"


def write(
    path: Path, cube: np.ndarray = CUBE, *, code: int = 2, interleave: str = "bsq", order: int | None = 0,
    offset: int = 0, **fields: str,
) -> Path:  # fmt: skip
    """An ENVI file and its header, which is given further ``fields`` with _ for a space."""
    stored = cube.astype(np.dtype(TYPES[code]).newbyteorder(">" if order else "<"))
    path.write_bytes(b"\xff" * offset + stored.transpose(LAYOUTS[interleave]).tobytes())
    rows, cols, bands = cube.shape
    lines = [
        "ENVI", "description = {made,", "  samples = 9 in a brace is no field}", "; a comment = 1",
        f"samples = {cols}", f"Lines   = {rows}", f"BANDS = {bands}", f"header offset = {offset}",
        f"data type = {code}", f"interleave = {interleave.upper()}",
    ]  # fmt: skip
    lines += [] if order is None else [f"byte order = {order}"]
    lines += [f"{key.replace('_', ' ')} = {value}" for key, value in fields.items()]
    path.with_suffix(".hdr").write_text("\r\n".join(lines) + "\r\n", newline="")
    return path


# Numbers


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("interleave", LAYOUTS)
def test_every_type_order_and_layout(code: int, order: int, interleave: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", code=code, order=order, interleave=interleave)
    scene = open_scene(path)
    assert (scene.shape, scene.dtype, scene.name) == (CUBE.shape, np.dtype(TYPES[code]), "a")
    pixels = scene.read()
    assert pixels.values.dtype == np.float32 and pixels.values.flags.c_contiguous and pixels.valid.all()
    np.testing.assert_array_equal(pixels.values, CUBE)
    part = scene.read(slice(2, 5), slice(1, 4))
    np.testing.assert_array_equal(part.values, CUBE[2:5, 1:4])
    assert scene.read(slice(2, 2)).values.shape == scene.read(slice(4, 2)).values.shape == (0, 5, 4)


def test_large_unsigned_numbers(tmp_path: Path) -> None:
    cube = np.full((2, 2, 2), 65535)
    np.testing.assert_array_equal(open_scene(write(tmp_path / "a.img", cube, code=12)).read().values, 65535)


def test_header_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", offset=7)
    np.testing.assert_array_equal(open_scene(path).read().values, CUBE)


def test_without_byte_order_little_endian_is_taken_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", order=None)
    with pytest.warns(DataWarning, match="byte order: little-endian"):
        scene = open_scene(path)
    np.testing.assert_array_equal(scene.read().values, CUBE)
    np.testing.assert_array_equal(open_scene(write(tmp_path / "b.img", code=1, order=None)).read().values, CUBE)


def test_pixels_stay_on_disk_and_a_file_that_shrinks_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", code=1)
    scene = open_scene(path)
    content = bytearray(path.read_bytes())
    content[0] = 99
    path.write_bytes(content)
    assert scene.read().values[0, 0, 0] == 99
    path.write_bytes(content[:50])
    with pytest.raises(SceneError, match="truncated"):
        scene.read()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_window_of_any_bands_is_what_lies_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Long and short runs, with gaps that are read and gaps that are skipped, bands in any order."""
    rows, cols, bands = (data.draw(st.integers(1, 9)) for _ in range(3))
    cube = np.arange(rows * cols * bands).reshape(rows, cols, bands)
    layout = data.draw(st.sampled_from(list(LAYOUTS.values())))
    dtype = np.dtype(data.draw(st.sampled_from(["<i2", ">i4", "u1", ">f8"])))
    path = tmp_path_factory.mktemp("plain") / "a"
    path.write_bytes(b"head" + cube.astype(dtype).transpose(layout).tobytes())
    take = window_taker(path, dtype, 4, cube.shape, layout)
    wanted = np.array(data.draw(st.permutations(range(bands))))[: data.draw(st.integers(1, bands))]
    r0, c0 = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1))
    window = slice(r0, data.draw(st.integers(r0 + 1, rows))), slice(c0, data.draw(st.integers(c0 + 1, cols)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hypercaps.io.readers.flat_binary._GAP", data.draw(st.sampled_from([0, 4, 1 << 16])))
        patch.setattr("hypercaps.io.readers.flat_binary._CHUNK", data.draw(st.sampled_from([1, 30, 1 << 20])))
        stored, valid = take(*window, wanted)
    assert valid is None and stored.dtype == dtype.newbyteorder("=")
    np.testing.assert_array_equal(stored, cube.astype(dtype)[window][:, :, wanted])


def test_windows_of_a_wide_file_take_the_memory_of_a_window(tmp_path: Path) -> None:
    """A mapped file's pages would count: 64 kB around every row of every band."""
    rows, cols, bands = 256, 20_000, 40
    (tmp_path / "a.hdr").write_text(
        f"ENVI\nsamples = {cols}\nlines = {rows}\nbands = {bands}\ndata type = 2\ninterleave = bsq\nbyte order = 0\n"
    )
    with (tmp_path / "a.img").open("wb") as file:
        file.truncate(rows * cols * bands * 2)
    code = f"""
from hypercaps.io.open import open_scene
scene = open_scene({str(tmp_path / "a.img")!r})
before = peak()
assert scene.read(slice(0, 128), slice(0, 128)).values.shape == (128, 128, 40)
print(peak() - before)
"""
    assert float(output_of(code)) < 40  # MB; mapped, this window takes 200


# What the header says of values and bands


def test_nodata_is_tested_before_the_scale(tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[1, 2, 3] = -9999
    cube[0, 0, 0] = 10000  # 1 after scaling
    path = write(tmp_path / "a.img", cube, reflectance_scale_factor="10000", data_ignore_value="-9999")
    pixels = open_scene(path).read()
    assert np.argwhere(~pixels.valid).tolist() == [[1, 2]]
    np.testing.assert_allclose(pixels.values[pixels.valid], cube[pixels.valid] / 10000, rtol=1e-6)
    # A nodata that only the scaled numbers would meet is none.
    assert open_scene(write(tmp_path / "b.img", cube, reflectance_scale_factor="10000", data_ignore_value="1")).read(
    ).valid.all()  # fmt: skip


def test_nodata_of_64_bits_is_compared_exactly(tmp_path: Path) -> None:
    cube = np.full((2, 2, 2), 2**60)
    cube[0, 0, 0] += 1  # the same float64
    path = write(tmp_path / "a.img", cube, code=14, data_ignore_value=str(2**60 + 1))
    assert np.argwhere(~open_scene(path).read().valid).tolist() == [[0, 0]]


def test_nan_and_infinity_are_invalid(tmp_path: Path) -> None:
    cube = CUBE.astype(np.float64)
    cube[0, 1, 2], cube[3, 4, 1], cube[5, 0, 0] = np.nan, np.inf, 1e300  # the last is beyond float32
    valid = open_scene(write(tmp_path / "a.img", cube, code=5, data_ignore_value="nan")).read().valid
    assert np.argwhere(~valid).tolist() == [[0, 1], [3, 4], [5, 0]]


def test_bad_bands_are_left_out_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", bbl="{1, 0,\n 1, 0}", wavelength="{400,\n500,\n600,700}", fwhm="{5, 6, 7, 8}")
    with pytest.warns(DataWarning, match=r"of 4 bands, these are left out: 2, 4 \(marked bad"):
        scene = open_scene(path)
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 2]])
    assert scene.wavelengths is not None and scene.wavelengths.tolist() == [400, 600]
    assert scene.fwhm is not None and scene.fwhm.tolist() == [5, 7]


def test_all_bands_bad(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="all of its 4 bands as bad"):
        open_scene(write(tmp_path / "a.img", bbl="{0,0,0,0}"))


def test_bands_of_nodata_are_left_out(tmp_path: Path) -> None:
    cube = CUBE.copy()
    cube[:, :, [1, 2]] = -1
    cube[0, 0, 3] = -1
    path = write(tmp_path / "a.img", cube, data_ignore_value="-1")
    with pytest.warns(DataWarning, match=r"left out: 2-3 \(nodata"):
        scene = open_scene(path)
    pixels = scene.read()
    np.testing.assert_array_equal(pixels.values[pixels.valid], cube[:, :, [0, 3]][pixels.valid])
    assert np.argwhere(~pixels.valid).tolist() == [[0, 0]]


def test_a_scene_of_nothing_but_nodata(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match="no valid number"):
        open_scene(write(tmp_path / "a.img", np.zeros((3, 3, 2)), data_ignore_value="0"))


def test_of_a_large_raster_only_windows_are_looked_at(tmp_path: Path) -> None:
    """Data in one narrow column: evenly spread windows meet it, and a band without any is still found."""
    cube = np.zeros((640, 700, 3))
    cube[:, 300:400, :2] = 5
    path = write(tmp_path / "a.img", cube, code=1, data_ignore_value="0")
    with pytest.warns(DataWarning, match=r"left out: 3 \(nodata"):
        assert open_scene(path).shape == (640, 700, 2)


def test_wavelengths_that_step_back_are_sorted_with_their_bands(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", wavelength="{400, 600, 500, 600}", fwhm="{1,2,3,4}", wavelength_units="nm")
    with pytest.warns(DataWarning, match="decrease in one place"):
        scene = open_scene(path)
    assert scene.wavelengths is not None and scene.wavelengths.tolist() == [400, 500, 600, 600]
    assert scene.fwhm is not None and scene.fwhm.tolist() == [1, 3, 2, 4]
    np.testing.assert_array_equal(scene.read().values, CUBE[:, :, [0, 2, 1, 3]])
    np.testing.assert_array_equal(scene.read(slice(1, 2), slice(2, 4)).values, CUBE[1:2, 2:4][:, :, [0, 2, 1, 3]])


@pytest.mark.parametrize(
    ("units", "values", "nm"),
    [
        ("Micrometers", "0.4, 0.5, 0.6, 0.7", 400), ("um", "0.4,1,2,3", 400), ("Nanometers", "400,500,600,700", 400),
        ("nanometers", "40,50,60,70", 40), (None, "0.4,1,2,2.5", 400), ("Unknown", "400,500,600,700", 400),
    ],
)  # fmt: skip
def test_wavelength_units(units: str | None, values: str, nm: float, tmp_path: Path) -> None:
    fields = {} if units is None else {"Wavelength_Units": units}
    scene = open_scene(write(tmp_path / "a.img", wavelength=f"{{{values}}}", fwhm="{0.01,0.01,0.01,0.01}", **fields))
    assert scene.wavelengths is not None and scene.wavelengths[0] == pytest.approx(nm)
    factor = nm / float(values.split(",")[0])
    assert scene.fwhm is not None and scene.fwhm[0] == pytest.approx(0.01 * factor)


def test_units_that_are_no_length(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="'Index'"):
        scene = open_scene(write(tmp_path / "a.img", wavelength="{1,2,3,4}", wavelength_units="Index"))
    assert scene.wavelengths is None


# Where it lies


@pytest.mark.parametrize("rotation", ["", ", rotation=30.0", ", rotation=-112.5"])
def test_map_info_as_gdal_reads_it(rotation: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", map_info=f"{{{UTM}{rotation}}}")
    scene = open_scene(path)
    with rasterio.open(path, driver="ENVI") as independent:
        np.testing.assert_allclose(scene.transform, tuple(independent.transform)[:6], atol=1e-9)
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32633)


def test_the_reference_pixel_keeps_its_place_when_turned(tmp_path: Path) -> None:
    info = "{UTM, 3.5, 2.5, 500000, 4000000, 10, 20, 33, South, WGS-84, units=Meters, rotation=90}"
    scene = open_scene(write(tmp_path / "a.img", map_info=info))
    assert scene.transform is not None and scene.crs is not None
    a, b, c, d, e, f = scene.transform

    def place(col: float, row: float) -> tuple[float, float]:
        return a * col + b * row + c, d * col + e * row + f

    np.testing.assert_allclose(place(2.5, 1.5), (500000, 4000000))  # the middle of column 3, row 2
    np.testing.assert_allclose(place(3.5, 1.5), (500000, 4000010), atol=1e-6)  # a column on is north now
    np.testing.assert_allclose(place(2.5, 2.5), (500020, 4000000), atol=1e-6)  # and a row down is east
    assert CRS.from_wkt(scene.crs) == CRS.from_epsg(32733)


def test_coordinate_system_string(tmp_path: Path) -> None:
    info = "{Lambert, 1, 1, 4000000, 3000000, 30, 30, ETRS89, units=Meters}"
    wkt = CRS.from_epsg(3035).to_wkt()
    scene = open_scene(write(tmp_path / "a.img", map_info=info, coordinate_system_string=f"{{{wkt}}}"))
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(3035)
    with pytest.warns(DataWarning, match="can't be parsed"):
        broken = open_scene(write(tmp_path / "b.img", map_info=info, coordinate_system_string="{PROJCS[}"))
    assert broken.crs is None and broken.transform == (30, 0, 4000000, 0, -30, 3000000)
    with pytest.warns(DataWarning, match="disagree"):
        other = open_scene(write(tmp_path / "c.img", map_info=f"{{{UTM}}}", coordinate_system_string=f"{{{wkt}}}"))
    assert other.crs is not None and CRS.from_wkt(other.crs) == CRS.from_epsg(32633)


# Two files


@pytest.mark.parametrize("header", ["a.hdr", "a.img.hdr", "a.HDR"])
def test_either_of_the_two_files_may_be_named(header: str, tmp_path: Path) -> None:
    write(tmp_path / "a.img")
    (tmp_path / "a.hdr").rename(tmp_path / header)
    for named in ("a.img", header):
        assert detect_file(tmp_path / named).kind == "envi"
        scene = open_scene(tmp_path / named)
        assert scene.name == "a"
        np.testing.assert_array_equal(scene.read().values, CUBE)


def test_a_data_file_without_ending(tmp_path: Path) -> None:
    write(tmp_path / "scene.img").rename(tmp_path / "scene")
    for named in ("scene", "scene.hdr"):
        np.testing.assert_array_equal(open_scene(tmp_path / named).read().values, CUBE)


def test_a_header_alone_or_with_two_data_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img")
    (tmp_path / "a.dat").write_bytes(path.read_bytes())
    with pytest.raises(SceneError, match=r"a\.dat, a\.img: name the data file"):
        open_scene(tmp_path / "a.hdr")
    (tmp_path / "a.dat").unlink()
    path.unlink()
    with pytest.raises(SceneError, match="no data file beside"):
        open_scene(tmp_path / "a.hdr")


# Refused


@pytest.mark.parametrize("opening", [open_scene, open_labels])
def test_a_file_shorter_than_its_header_says(opening: object, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", offset=10)
    path.write_bytes(path.read_bytes()[:-1])
    error = SceneError if opening is open_scene else LabelsError
    with pytest.raises(error, match=r"has 249 bytes but its header a\.hdr describes 250"):
        opening(path)  # type: ignore[operator]


def test_a_file_longer_than_its_header_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img")
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.warns(DataWarning, match=r"a\.img has 4 bytes more than its header a\.hdr describes"):
        np.testing.assert_array_equal(open_scene(path).read().values, CUBE)


def test_a_header_that_claims_terabytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.img")
    header = tmp_path / "a.hdr"
    header.write_text(header.read_text().replace("samples = 5", "samples = 999999999999"))
    with pytest.raises(SceneError, match="get the whole file again"):
        open_scene(path)


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        ("data type = 6", "complex"), ("data type = 99", "99 as data type"), ("interleave = tiles", "'tiles'"),
        ("byte order = 2", "2 as byte order"), ("bands = many", "'many'"), ("samples = 0", "at least 1"),
        ("header offset = -5", "at least 0"), ("wavelength = {1, 2}", "2 numbers as 'wavelength' for 4 bands"),
        ("bbl = {1, 1, x, 1}", "'bbl' that is no number"), ("wavelength = {1, 2, nan, 4}", "NaN"),
        ("reflectance scale factor = 0", "above 0"), ("data ignore value = none", "'none'"),
        ("file compression = 1", "compressed"), ("wavelength = {1, 2", "no closing brace"),
        ("map info = {UTM, 1, 1}", "map info"), ("map info = {UTM, 1, 1, 0, 0, 0, 0, 33, North, WGS-84}", "map info"),
    ],
)  # fmt: skip
def test_headers_that_can_not_be_meant(field: str, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img")
    with (tmp_path / "a.hdr").open("a") as file:
        file.write(field + "\n")
    with pytest.raises(SceneError, match=sentence):
        open_scene(path)


@pytest.mark.parametrize("key", ["samples", "lines", "bands", "data type", "interleave"])
def test_headers_that_lack_something(key: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img")
    header = tmp_path / "a.hdr"
    kept = [line for line in header.read_text().splitlines() if not line.lower().startswith(key)]
    header.write_text("\n".join(kept))
    with pytest.raises(SceneError, match=key):
        open_scene(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_headers_never_crash(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("envi")
    path = write(folder / "a.img", wavelength="{1, 2,\n 3, 4}", bbl="{1,1,1,0}", map_info=f"{{{UTM}}}")
    raw = bytearray((folder / "a.hdr").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(5, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (folder / "a.hdr").write_bytes(raw[: data.draw(st.integers(6, len(raw)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            scene = open_scene(path)
        except HypercapsError:
            return
        assert scene.read().values.shape == scene.shape


def test_reading_a_header_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.hdr").write_bytes(b"ENVI\nclass names = {none, B\xe4ume}\n")
    assert read_header(tmp_path / "a.hdr")["class names"] == "{none, Bäume}"


# Labels


def test_a_classification_keeps_names_and_colours(tmp_path: Path) -> None:
    gt = (np.arange(30).reshape(6, 5, 1) % 4).astype(np.uint8)
    gt[0, 3] = 255
    path = write(
        tmp_path / "gt.img", gt, code=1, file_type="ENVI Classification", classes="4", data_ignore_value="255",
        class_names="{Unclassified,\n Water, Old trees, Bare}", class_lookup="{0,0,0, 0,0,255, 0,90,0, 0,0,0}",
    )  # fmt: skip
    labels = open_labels(path)
    assert [tuple(entry) for entry in labels.legend] == [
        (1, "Water", (0, 0, 255)), (2, "Old trees", (0, 90, 0)), (3, "Bare", (0, 0, 0)),
    ]  # fmt: skip
    np.testing.assert_array_equal(labels.array, np.where(gt == 255, 0, gt)[:, :, 0])
    assert describe(str(path)).to_json()["kind"] == "labels"


def test_a_cube_is_no_label_raster(tmp_path: Path) -> None:
    with pytest.raises(LabelsError, match="no 2-D array"):
        open_labels(write(tmp_path / "a.img"))


# Real files


def test_jasper_ridge(real_data: Path) -> None:
    with pytest.warns(DataWarning, match="decrease in 2 places"):
        scene = open_scene(real_data / "envi" / "jasperRidge2_R198.img")
    assert scene.shape == (100, 100, 198) and scene.wavelengths is not None and (np.diff(scene.wavelengths) >= 0).all()
    stored = np.fromfile(real_data / "envi" / "jasperRidge2_R198.img", "<i2").reshape(100, 198, 100)
    values = scene.read(slice(10, 20), slice(30, 60)).values
    np.testing.assert_allclose(values[:, :, 0], stored[10:20, 0, 30:60] / 10000, rtol=1e-6)
    np.testing.assert_allclose(values.sum(axis=2), stored[10:20, :, 30:60].sum(axis=1) / 10000, rtol=1e-4)


def test_samson(real_data: Path) -> None:
    path = real_data / "envi" / "samson_1.img"
    with pytest.warns(DataWarning, match="disagree"):  # its string has an earth of 638 km
        scene = open_scene(path)
    with rasterio.open(path, driver="ENVI") as independent:
        np.testing.assert_array_equal(scene.read().values, np.moveaxis(independent.read(), 0, -1))
        assert scene.transform == tuple(independent.transform)[:6]
    assert scene.crs is not None and CRS.from_wkt(scene.crs) == CRS.from_epsg(32610)


def test_corn_kernel(real_data: Path) -> None:
    path = real_data / "envi" / "corn-kernel-hyperspectral.raw"
    with pytest.warns(DataWarning, match="byte order"):
        scene = open_scene(path)
    assert scene.shape == (31, 43, 580)
    stored = np.fromfile(path, "<u2").reshape(31, 580, 43)
    np.testing.assert_array_equal(scene.read().values, stored.transpose(0, 2, 1))
