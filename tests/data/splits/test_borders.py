"""Whole fields are told from parts of fields by the border of the labels."""

from __future__ import annotations

import numpy as np

from hypercaps import Labels, Scene
from hypercaps.data.splits import SplitRequest
from hypercaps.data.splits.borders import are_whole_fields
from hypercaps.data.splits.draw import draw_requested_folds


def fields() -> tuple[Scene, np.ndarray]:
    """Fields of 20 x 20 pixels of three kinds, 60 x 120, as a scene and as classes."""
    rng = np.random.default_rng(0)
    classes = np.kron(np.add.outer(np.arange(3), np.arange(6)) % 3 + 1, np.ones((20, 20), dtype=int))
    cube = rng.normal(size=(4, 8))[classes] * 5 + rng.normal(size=(60, 120, 8))
    return Scene.from_array(cube.astype(np.float32)), classes


def test_fields_end_at_edges_and_parts_of_fields_do_not() -> None:
    scene, classes = fields()
    rows, cols = np.indices(classes.shape)
    whole = Labels.from_array(np.where((rows // 20 + cols // 20) % 2 == 0, classes, 0))
    halves = Labels.from_array(np.where(cols % 20 < 10, classes, 0))
    assert are_whole_fields(scene, whole) and not are_whole_fields(scene, halves)
    everything = Labels.from_array(classes)
    assert not are_whole_fields(scene, everything)  # there is no border


def test_parts_of_fields_are_held_out_in_pieces() -> None:
    scene, classes = fields()
    cols = np.indices(classes.shape)[1]
    labels = Labels.from_array(np.where(cols % 20 < 10, classes, 0))
    folds = draw_requested_folds(labels, SplitRequest("folds", block=8), scene=scene)
    assert folds.units.kind == "areas" and folds.units.block == 8 and folds.units.count > 18


def test_pixels_without_data_are_no_ground_to_be_mapped() -> None:
    """Whole fields with narrow strips between them, in a scene whose other half has no data."""
    scene, classes = fields()
    rows, cols = np.indices(classes.shape)
    strips = (rows % 20 > 17) | (cols % 20 > 17)
    spectra = np.where(strips[..., None], 30, scene.read(slice(0, 60), slice(0, 120)).values)
    array = np.pad(np.where(strips, 0, classes), ((0, 300), (0, 0)))
    cube = np.pad(spectra, ((0, 300), (0, 0), (0, 0)), constant_values=np.nan).astype(np.float32)
    labels, request = Labels.from_array(array), SplitRequest("folds", block=6)
    empty_half = draw_requested_folds(labels, request, scene=Scene.from_array(cube))
    assert are_whole_fields(Scene.from_array(cube), labels) and empty_half.units.block == 6
    full = draw_requested_folds(labels, request, scene=Scene.from_array(np.nan_to_num(cube, nan=30)))
    assert full.units.block != 6  # the other half is far from all labels: whole fields are held out


def test_blocks_are_held_out_where_whole_blocks_were_labelled() -> None:
    """Pieces of fields would be held out beside other fields' labels, and unlabelled ground has none that near."""
    scene, classes = fields()
    rows, cols = np.indices(classes.shape)
    labels = Labels.from_array(np.where((rows // 24 + cols // 24) % 2 == 0, classes, 0))
    folds = draw_requested_folds(labels, SplitRequest("folds", block=16), scene=scene)
    assert folds.units.kind == "blocks" and folds.units.block == 16 and folds.untested().size == 0
    assert all(np.unique(folds.fold[folds.units.unit == unit]).size == 1 for unit in range(folds.units.count))
