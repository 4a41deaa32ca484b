"""EnMAP and DESIS products: small ones of the documented structure; and XML that must not be believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hypercaps.cli import app
from hypercaps.errors import DataWarning, LabelsError, SceneError
from hypercaps.io.detect import detect_file
from hypercaps.io.open import open_labels, open_scene
from hypercaps.io.xml import read_xml
from support.memory import output_of
from support.rasters import CUBE, GRID, write
from support.sidecar_files import ENMAP, WAVES, enmap_xml

DESIS = "DESIS-HSI-L2A-DT0489826624_003-20200823T165204-V0210"
OTHER = (1.0, 2.0, 3.0, 4.0)


def desis_xml() -> str:
    bands = "".join(
        f"<band><bandNumber>{n}</bandNumber><wavelengthCenterOfBand>{wave}</wavelengthCenterOfBand>"
        f"<wavelengthWidthOfBand>3.5</wavelengthWidthOfBand><response>0.1,0.9</response><wavelengths>1,2</wavelengths>"
        "<gainOfBand>0.0001</gainOfBand><offsetOfBand>0.5</offsetOfBand></band>"
        for n, wave in enumerate((401.9, 404.6, 407.3, 410.0), 1)
    )
    return (
        f'<hsi_doc xmlns="http://www.desis.org"><base/><specific><interiorOrientation><band>1</band></interiorOrientation>'
        f"<backgroundValue>-32768</backgroundValue><bandCharacterisation>{bands}</bandCharacterisation></specific></hsi_doc>"
    )


def product(
    folder: Path, text: str | None = None, *, name: str = ENMAP, image: str = "-SPECTRAL_IMAGE.TIF", **more: Any
) -> Path:
    """A product's image and, beside it, its metadata."""
    cube = CUBE.copy()
    cube[2, 3] = -32768
    path = write(folder / (name + image), cube, crs="EPSG:32633", transform=GRID, **more)
    (folder / f"{name}-METADATA.{'xml' if name is DESIS else 'XML'}").write_text(text or enmap_xml())
    return path


def opened(path: Path, steps_back: bool = True) -> Any:
    if not steps_back:
        return open_scene(path)
    with pytest.warns(DataWarning, match="decrease in one place"):
        return open_scene(path)


@pytest.mark.parametrize("image", ["-SPECTRAL_IMAGE.TIF", "-SPECTRAL_IMAGE_COG.tiff"])
@pytest.mark.parametrize("backwards", [False, True])
def test_enmap(image: str, backwards: bool, tmp_path: Path) -> None:
    path = product(tmp_path, enmap_xml(backwards=backwards), image=image)
    metadata = path.with_name(f"{ENMAP}-METADATA.XML")
    assert detect_file(metadata).kind == "product"
    for named in (path, metadata):
        scene = opened(named)
        assert scene.name == path.stem
        np.testing.assert_allclose(scene.wavelengths, sorted(WAVES))
        np.testing.assert_allclose(scene.fwhm, [7, 9, 8, 10])
        pixels = scene.read()
        assert np.argwhere(~pixels.valid).tolist() == [[2, 3]]  # from its background value, before gain
        np.testing.assert_allclose(
            pixels.values[pixels.valid], CUBE[:, :, [0, 2, 1, 3]][pixels.valid] * 0.0001, rtol=1e-6
        )


def test_desis(tmp_path: Path) -> None:
    path = product(tmp_path, desis_xml(), name=DESIS, image="-SPECTRAL_IMAGE.tif")
    (tmp_path / f"{DESIS}-SPECTRAL_IMAGE.hdr").write_text("ENVI\nsamples = 1\n")  # comes along, and is not needed
    for named in (path, tmp_path / f"{DESIS}-METADATA.xml"):
        scene = open_scene(named)
        np.testing.assert_allclose(scene.wavelengths, [401.9, 404.6, 407.3, 410.0])
        np.testing.assert_allclose(scene.fwhm, 3.5)
        pixels = scene.read()
        assert np.argwhere(~pixels.valid).tolist() == [[2, 3]]
        np.testing.assert_allclose(pixels.values[pixels.valid], CUBE[pixels.valid] * 0.0001 + 0.5, rtol=1e-6)


def test_info_of_the_metadata_is_that_of_the_image(tmp_path: Path) -> None:
    product(tmp_path, enmap_xml((400, 500, 600, 2445.3)))
    result = CliRunner().invoke(app, ["info", str(tmp_path / f"{ENMAP}-METADATA.XML"), "--json"])
    about = json.loads(result.stdout)
    assert (about["kind"], about["bands"], about["wavelength_range_nm"]) == ("scene", 4, [400, 2445.3])


def test_enmap_in_the_layout_of_envi(tmp_path: Path) -> None:
    (tmp_path / f"{ENMAP}-METADATA.XML").write_text(enmap_xml())
    path = tmp_path / f"{ENMAP}-SPECTRAL_IMAGE.BSQ"
    path.write_bytes(CUBE[:3, :2].transpose(2, 0, 1).astype("<i2").tobytes())
    path.with_suffix(".HDR").write_text(
        "ENVI\nsamples = 2\nlines = 3\nbands = 4\ndata type = 2\ninterleave = bsq\nbyte order = 0\n"
    )
    scene = opened(tmp_path / f"{ENMAP}-METADATA.XML")
    np.testing.assert_allclose(scene.read().values, CUBE[:3, :2][:, :, [0, 2, 1, 3]] * 0.0001, rtol=1e-6)


def test_what_the_image_says_itself_comes_first(tmp_path: Path) -> None:
    """Wavelengths, scale and nodata of the file; of the metadata only what the file does not say."""
    tags = [{"wavelength": str(wave)} for wave in (400, 500, 600, 700)]
    path = product(tmp_path, tags=tags, scales=[0.5] * 4, nodata=7)
    scene = open_scene(path)
    assert scene.wavelengths is not None and scene.wavelengths.tolist() == [400, 500, 600, 700]
    assert scene.fwhm is None  # widths of other wavelengths are not theirs
    pixels = scene.read()
    assert pixels.valid[2, 3] and not pixels.valid[CUBE[:, :, 0] == 7].any()
    np.testing.assert_allclose(pixels.values[0, 0], CUBE[0, 0] * 0.5)
    near = [{"wavelength": str(wave + 0.3)} for wave in WAVES]
    assert opened(product(tmp_path, tags=near)).fwhm.tolist() == [7, 9, 8, 10]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (enmap_xml(WAVES[:3]), "describes 3 bands but the image beside it has 4"),
        (enmap_xml().replace("bandCharacterisation", "bands"), "does not describe bands"),
        (enmap_xml().replace("418.42", "blue"), "'blue' as wavelengthCenterOfBand"),
        (enmap_xml().replace("418.42", "nan"), "'nan' as wavelengthCenterOfBand"),
        (enmap_xml().replace("418.42", "-418.42"), "a wavelength above 0"),
        (enmap_xml().replace("<wavelengthCenterOfBand>418.42</wavelengthCenterOfBand>", ""), "only some bands"),
        (enmap_xml().replace("wavelengthCenter", "center"), "a wavelength above 0"),
        (enmap_xml().replace('number="2"', 'number="3"'), "from 1 to 4"),
        (enmap_xml(gain="0"), "gain of 0"), (enmap_xml(offset="1e999"), "'1e999' as OffsetOfBand"),
        (enmap_xml().replace("-32768", ""), "'' as backgroundValue"),
        (enmap_xml()[:-30], "not valid XML"), (enmap_xml().replace("</specific>", "", 1), "not valid XML"),
        (enmap_xml().replace("UTF-8", "klingon"), "not valid XML"),
        ("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>" + enmap_xml().partition("?>\n")[2], "DOCTYPE"),
        ("<a>" * 1000 + "</a>" * 1000, "nested more than 64"),
        ("<a>" + "<b/>" * 300_000 + "</a>", "than 200,000 elements"),
        ("", "not valid XML"),
    ],
    ids=range(18),
)  # fmt: skip
def test_metadata_that_can_not_be_meant(text: str, sentence: str, tmp_path: Path) -> None:
    path = product(tmp_path)
    (tmp_path / f"{ENMAP}-METADATA.XML").write_text(text)
    with pytest.raises(SceneError, match=sentence):
        open_scene(path)


def test_metadata_alone_or_with_two_images(tmp_path: Path) -> None:
    path = product(tmp_path)
    metadata = tmp_path / f"{ENMAP}-METADATA.XML"
    write(tmp_path / f"{ENMAP}-SPECTRAL_IMAGE_COG.TIF")
    with pytest.raises(SceneError, match="name the image instead"):
        open_scene(metadata)
    for image in (path, tmp_path / f"{ENMAP}-SPECTRAL_IMAGE_COG.TIF"):
        image.unlink()
    with pytest.raises(SceneError, match="no image beside"):
        open_scene(metadata)
    write(tmp_path / "other-SPECTRAL_IMAGE.TIF")  # of another product
    with pytest.raises(SceneError, match=f"{ENMAP}-SPECTRAL_IMAGE.TIF, for example"):
        open_scene(metadata)
    with pytest.raises(LabelsError, match="no image beside"):
        open_labels(metadata)


def test_two_files_of_metadata(tmp_path: Path) -> None:
    path = product(tmp_path)
    (tmp_path / f"{ENMAP}-metadata.xml").write_text(enmap_xml(OTHER))
    with pytest.raises(SceneError, match="more than one"):
        open_scene(path)


def test_an_image_that_only_looks_like_a_product(tmp_path: Path) -> None:
    np.testing.assert_array_equal(open_scene(write(tmp_path / "a-SPECTRAL_IMAGE.TIF")).read().values, CUBE)


# XML itself


def test_a_billion_laughs_cost_nothing(tmp_path: Path) -> None:
    entities = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12))
    path = tmp_path / "a.xml"
    path.write_text(f"<!DOCTYPE x [<!ENTITY a0 'ha'>{entities}]><x>&a11;</x>")
    code = f"""
from hypercaps.errors import SceneError
from hypercaps.io.xml import read_xml
from pathlib import Path
before = peak()
try:
    read_xml(Path({str(path)!r}))
except SceneError as error:
    print("DOCTYPE" in str(error), peak() - before < 20)
"""
    assert output_of(code).split() == ["True", "True"]


def test_a_document_type_is_seen_in_any_encoding(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "a.xml").write_bytes("<!DOCTYPE x SYSTEM 'http://127.0.0.1:9/x.dtd'><x/>".encode(encoding))
        with pytest.raises(SceneError, match="document type"):
            read_xml(tmp_path / "a.xml")


def test_xml_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.xml").open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(SceneError, match="17,179,869,184 bytes"):
        read_xml(tmp_path / "a.xml")


def test_namespaces_and_comments_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<x xmlns='http://a'><!-- <!DOCTYPE> --><y>1 &lt; 2</y></x>")
    assert read_xml(tmp_path / "a.xml").findtext("y") == "1 < 2"
