"""Which options of a job exclude or need each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypercaps import ConvCapsClassifier
from hypercaps.errors import ModelFileError, OutputError
from hypercaps.pipeline.layers import LAYERS
from hypercaps.pipeline.requests import MapRequest, TrainRequest, run_files
from hypercaps.pipeline.run_files import RUN_FILES


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 90.0, float("nan")])
def test_shares_outside_0_to_1_are_refused(share: float) -> None:
    for changed in ({"reject": share}, {"coverage": share, "files": run_files(["sets"])}):
        with pytest.raises(OutputError, match="a share between 0 and 1"):
            MapRequest(**changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"coverage": 0.9}, {"files": run_files(["sets"])}])
def test_sets_need_a_file_and_a_coverage(options: dict[str, Any]) -> None:
    with pytest.raises(OutputError, match="both a file and a coverage"):
        MapRequest(**options)


def test_an_unknown_type_of_confidence() -> None:
    with pytest.raises(OutputError, match="float32 or uint8 is expected"):
        MapRequest(confidence_dtype="int8")


def test_an_unknown_layer_names_those_that_exist() -> None:
    with pytest.raises(OutputError, match="no layer 'entropy': classes, confidence, familiarity, prob"):
        MapRequest({"entropy": Path("e.tif")})


def test_too_little_memory_to_be_meant() -> None:
    with pytest.raises(OutputError, match="memory is 500 bytes: a size such as 500MB"):
        MapRequest(memory=500)


@pytest.mark.parametrize("options", [{"reject": 0.9}, {"coverage": 0.9, "files": run_files(["sets"])}])
def test_options_of_the_map_need_a_map_and_a_calibration(options: dict[str, Any], trained: ConvCapsClassifier) -> None:
    request = MapRequest(**options)
    assert TrainRequest(map=request).with_map
    with pytest.raises(OutputError, match="is about the map, and --no-map leaves it out"):
        TrainRequest(map=request, with_map=False)
    request.check_model(trained.model_)
    uncalibrated = ConvCapsClassifier()
    uncalibrated.model_ = type(trained.model_)(**{**vars(trained.model_), "calibration": None})
    with pytest.raises(ModelFileError, match="is not calibrated and --"):
        request.check_model(uncalibrated.model_)
    MapRequest({"classes": Path("m.tif")}).check_model(uncalibrated.model_)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5.0, float("nan")])
def test_a_share_of_unknown_ground_lies_between_0_and_1(share: float) -> None:
    with pytest.raises(OutputError, match=r"--unknown is .*: a share between 0 and 1, such as 0\.05, is expected"):
        MapRequest(unknown=share)


def test_unknown_ground_needs_a_map_and_a_model_that_knows_it(trained: ConvCapsClassifier) -> None:
    with pytest.raises(OutputError, match="--unknown is about the map"):
        TrainRequest(map=MapRequest(unknown=0.05), with_map=False)
    old = replace(trained.model_, familiarity=None)
    for request, option in ((MapRequest(unknown=0.05), "--unknown"), (MapRequest(), "--familiarity")):
        request.check_model(trained.model_)
        with pytest.raises(ModelFileError, match=f"{option} needs to know what ground was labelled, .* train it again"):
            request.check_model(old)
    MapRequest({"classes": Path("m.tif")}).check_model(old)


def test_outputs_that_collide_are_refused(tmp_path: Path) -> None:
    classes = tmp_path / "m.tif"
    MapRequest({"classes": classes}).check_outputs([])
    MapRequest({"classes": tmp_path / "new" / "folder" / "m.tif"}).check_outputs([])
    (tmp_path / "file").write_text("no folder")
    for files, message in (
        ({"classes": classes, "confidence": classes}, "is asked for twice or is an input"),
        ({"classes": classes, "confidence": tmp_path / "m.tif.partial"}, "its name must end in .tif or .tiff"),
        ({"classes": tmp_path / "m.jpg"}, "its name must end in .png or .tif or .tiff"),
        ({"classes": tmp_path / "file" / "m.tif"}, "there is no folder"),
    ):
        with pytest.raises(OutputError, match=message):
            MapRequest(files).check_outputs([])
    for taken in (classes, tmp_path / "m.qml", tmp_path / "m.tif.aux.xml", tmp_path / "m.tif.partial"):
        with pytest.raises(OutputError, match="is asked for twice or is an input"):
            MapRequest({"classes": classes}).check_outputs([taken])


def test_every_layer_has_its_files_in_the_run_folder(tmp_path: Path) -> None:
    request = MapRequest(run_files(LAYERS), coverage=0.9).inside(tmp_path)
    names = {path.name for path in request.outputs()}
    assert names <= set(RUN_FILES) and len(names) == len(LAYERS) + 3  # two files of the legend, and the picture
    assert request.main == tmp_path / "map.tif" and request.partial == tmp_path / "map.tif.partial"
    assert all(layer.description and RUN_FILES[layer.file] == layer.description for layer in LAYERS.values())


@pytest.mark.parametrize(
    ("option", "request_"),
    [
        ("probabilities", MapRequest(run_files(["probabilities"]))),
        ("mask", MapRequest(mask=np.ones((2, 2), dtype=bool))),
    ],
)
def test_layers_and_masks_are_refused_without_a_map(option: str, request_: MapRequest) -> None:
    assert TrainRequest(map=request_).with_map
    with pytest.raises(OutputError, match=f"--{option} is about the map, and --no-map leaves it out"):
        TrainRequest(map=request_, with_map=False)
