"""The files of a run folder, with one line about each."""

from __future__ import annotations

from hypercaps.pipeline.layers import LAYERS, Layer


def _layer_files(layer: Layer) -> dict[str, str]:
    files = {layer.file: layer.description}
    if layer.has_legend:
        stem = layer.file.removesuffix(".tif")
        files |= {f"{layer.file}.aux.xml": "class names, for GDAL", f"{stem}.qml": "style of the map, for QGIS"}
    return files


LAYER_FILES = {layer.file: layer.description for layer in LAYERS.values()}

RUN_FILES = {  # in the order in which they are listed after a training
    "report.html": "everything on one page: look here first",
    "map.png": "the map beside the ground truth",
    **{name: about for layer in LAYERS.values() for name, about in _layer_files(layer).items()},
    "metrics.json": "all figures",
    "curves.png": "loss and validation accuracy by epoch",
    "history.csv": "loss and validation accuracy by epoch, as numbers",
    "reliability.png": "how reliable the confidence is",
    "scene.png": "the scene in three of its bands",
    "labels.png": "the ground truth",
    "classes.json": "spectra and band attribution of the classes",
    "doubtful.gpkg": "labels that the other labels contradict",
    "doubtful.csv": "labels that the other labels contradict",
    "doubtful.json": "spectra of the first twenty of them",
    "split.npz": "pixels of the training, validation and test sets",
    "model.safetensors": "the model, for 'hypercaps map'",
}
