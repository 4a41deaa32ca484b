"""Checks of the plugin inside QGIS, and a picture made by QGIS; run by the Python that QGIS uses.

    python3 in_qgis.py PLUGINS SCENE LABELS MODEL FOLDER

PLUGINS is the folder with the installed plugin; FOLDER gets results and result.png. Prints what was found as one line
of JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from qgis.core import (
    QgsApplication,
    QgsCoordinateReferenceSystem,
    QgsLayoutExporter,
    QgsLayoutItemLabel,
    QgsLayoutItemLegend,
    QgsLayoutItemMap,
    QgsLayoutPoint,
    QgsLayoutSize,
    QgsLegendStyle,
    QgsPalettedRasterRenderer,
    QgsPrintLayout,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingFeatureSourceDefinition,
    QgsProcessingFeedback,
    QgsProject,
    QgsRasterLayer,
    QgsUnitTypes,
    QgsVectorLayer,
)
from qgis.PyQt.QtGui import QFont

PLUGINS, SCENE, LABELS, MODEL, FOLDER = sys.argv[1:]
FIELD = "crop"


class Log(QgsProcessingFeedback):
    """Keeps what an algorithm says."""

    def __init__(self, *, cancel_at_progress: bool = False) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"info": [], "warning": [], "error": [], "progress": []}
        self._cancels = cancel_at_progress

    def pushInfo(self, info: str) -> None:  # noqa: N802
        self.texts["info"].append(info)

    def pushWarning(self, warning: str) -> None:  # noqa: N802
        self.texts["warning"].append(warning)

    def reportError(self, error: str, fatalError: bool = False) -> None:  # noqa: N802, N803
        self.texts["error"].append(error)

    def setProgressText(self, text: str) -> None:  # noqa: N802
        self.texts["progress"].append(text)
        if self._cancels:
            self.cancel()


def run(name: str, log: Log | None = None, **parameters: Any) -> Any:
    import processing

    return processing.run(f"hypercaps:{name}", parameters, feedback=log or Log())


def in_memory(layer: Any) -> Any:
    """A copy of a layer without a file."""
    copy = QgsVectorLayer(f"Polygon?crs={layer.crs().authid()}", "in memory", "memory")
    copy.dataProvider().addAttributes(layer.fields().toList())
    copy.updateFields()
    copy.dataProvider().addFeatures(list(layer.getFeatures()))
    return copy


def labels_layer() -> Any:
    return QgsVectorLayer(f"{LABELS}|layername=fields", "fields", "ogr")


def labels_of_every_kind() -> dict[str, Any]:
    """What the plugin passes to hypercaps for layers that are not what their file contains."""
    from hypercaps_qgis.layers import exported, plain_file

    layers = {"file": labels_layer(), "memory": in_memory(labels_layer())}
    layers["filter"] = labels_layer()
    layers["filter"].setSubsetString("\"crop\" = 'Corn-notill'")
    layers["edits"] = labels_layer()
    layers["edits"].startEditing()
    layers["edits"].deleteFeature(next(layers["edits"].getFeatures()).id())
    layers["other CRS"] = labels_layer()
    layers["other CRS"].setCrs(QgsCoordinateReferenceSystem("EPSG:32617"))
    found: dict[str, Any] = {"all": labels_layer().featureCount()}
    for name, layer in layers.items():
        assert layer.isValid(), name
        found[name] = plain_file(layer, layer, FIELD)
        if found[name] is None:
            labels = exported(Source(layer), FIELD, QgsProcessingContext())
            copy = QgsVectorLayer(labels.path, "copy", "ogr")
            classes = sorted({feature[FIELD] for feature in copy.getFeatures()})
            found[name] = [copy.featureCount(), copy.crs().authid(), classes[0]]
    return found


class Source:
    """A layer as Processing gives it to an algorithm."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.fields, self.sourceCrs, self.wkbType = layer.fields, layer.crs, layer.wkbType

    def getFeatures(self, request: Any, flags: Any) -> Any:  # noqa: N802
        return self._layer.getFeatures(request)


def runs_on_such_layers(folder: Path) -> dict[str, Any]:
    """Evaluate with labels in memory, and with selected features only."""
    log = Log()
    memory = in_memory(labels_layer())
    scores = run("evaluate", log, MODEL=MODEL, SCENE=SCENE, LABELS=memory, FIELD=FIELD, OUTPUT=str(folder / "m.json"))
    selected = labels_layer()
    selected.selectByExpression("\"crop\" = 'Woods'")
    QgsProject.instance().addMapLayer(selected)
    only = QgsProcessingFeatureSourceDefinition(selected.id(), selectedFeaturesOnly=True)
    run("evaluate", Log(), MODEL=MODEL, SCENE=SCENE, LABELS=only, FIELD=FIELD, OUTPUT=str(folder / "s.json"))
    return {"oa": scores["OA"], "info": log.texts["info"], "progress": log.texts["progress"]}


def refused_rasters(folder: Path) -> dict[str, str]:
    """What is said to layers that are no files."""
    import zipfile

    with zipfile.ZipFile(folder / "scene.zip", "w") as archive:
        archive.write(SCENE, "scene.tif")
    layer = QgsRasterLayer(f"/vsizip/{folder / 'scene.zip'}/scene.tif", "zipped")
    assert layer.isValid()
    QgsProject.instance().addMapLayer(layer, False)
    log = Log()
    with contextlib.suppress(QgsProcessingException):  # says only that there were errors
        run("map", log, MODEL=MODEL, SCENE=layer, OUTPUT=str(folder / "refused.tif"))
    return {"zipped": " ".join(log.texts["error"])}


def another_crs(folder: Path) -> list[str]:
    """What is said to a layer whose coordinate system was changed in QGIS only."""
    layer, log = QgsRasterLayer(SCENE, "moved"), Log()
    layer.setCrs(QgsCoordinateReferenceSystem("EPSG:32617"))
    QgsProject.instance().addMapLayer(layer, False)
    run("suggest", log, MODEL=MODEL, SCENE=layer, NUMBER=3, OUTPUT=str(folder / "moved.gpkg"))
    return log.texts["warning"]


def cancelled(folder: Path) -> dict[str, Any]:
    """A training of many minutes is ended at its first sign of progress."""
    log, started = Log(cancel_at_progress=True), time.monotonic()
    results = run(
        "train", log, SCENE=SCENE, LABELS=labels_layer(), FIELD=FIELD, METHOD="convcapsnet", OUTPUT=str(folder / "c")
    )
    return {"results": list(results), "seconds": time.monotonic() - started, "progress": log.texts["progress"]}


def loaded(name: str, path: str, context: Any, **parameters: Any) -> Any:
    """Run an algorithm as the toolbox does; the layer of the project whose file is ``path``."""
    from processing.core.Processing import Processing
    from processing.gui.Postprocessing import handleAlgorithmResults

    algorithm, log = QgsApplication.processingRegistry().createAlgorithmById(f"hypercaps:{name}"), Log()
    Processing.runAlgorithm(algorithm, {"SCENE": SCENE, **parameters}, lambda *_: None, log, context)
    assert handleAlgorithmResults(algorithm, context, log)
    (layer,) = (layer for layer in QgsProject.instance().mapLayers().values() if layer.source() == path)
    return layer


def loaded_map(folder: Path) -> Any:
    """The map of the tool Map."""
    path, context = str(folder / "map of the scene.tif"), new_context()
    context.addLayerToLoadOnCompletion(path, QgsProcessingContext.LayerDetails("Map", QgsProject.instance(), "OUTPUT"))
    return loaded("map", path, context, MODEL=MODEL, OUTPUT=path)


def loaded_training(folder: Path) -> Any:
    """The map of the tool Train."""
    out = folder / "trained"
    parameters = {"LABELS": labels_layer(), "FIELD": FIELD, "METHOD": "lda", "SPLIT": 1, "OUTPUT": str(out)}
    return loaded("train", str(out / "map.tif"), new_context(), **parameters)


def new_context() -> Any:
    context = QgsProcessingContext()
    context.setProject(QgsProject.instance())
    return context


def classes_of(layer: Any) -> list[list[str]]:
    renderer = layer.renderer()
    assert isinstance(renderer, QgsPalettedRasterRenderer), type(renderer)
    return [[entry.label, entry.color.name()] for entry in renderer.classes()]


def draw(layer: Any, target: Path) -> None:
    """A page with the map and its legend, laid out and drawn by QGIS."""
    layout = QgsPrintLayout(QgsProject.instance())
    layout.initializeDefaults()
    page = layout.pageCollection().page(0)
    page.setPageSize(QgsLayoutSize(170, 120, QgsUnitTypes.LayoutMillimeters))
    map_item = QgsLayoutItemMap(layout)
    place(layout, map_item, 4, 10, 104, 104)
    map_item.setLayers([layer])
    map_item.setKeepLayerSet(True)
    map_item.setCrs(layer.crs())
    map_item.setExtent(layer.extent())
    legend = QgsLayoutItemLegend(layout)
    legend.setAutoUpdateModel(False)
    legend.model().rootGroup().clear()
    legend.model().rootGroup().addLayer(layer)
    for part in (QgsLegendStyle.Subgroup, QgsLegendStyle.SymbolLabel):
        legend.setStyleFont(part, QFont("DejaVu Sans", 8))
    legend.setSymbolHeight(3.5)
    place(layout, legend, 110, 8, 58, 108)
    title = QgsLayoutItemLabel(layout)
    title.setText("Indian Pines, mapped by hypercaps in QGIS")
    title.setFont(QFont("DejaVu Sans", 11))
    place(layout, title, 4, 3, 160, 7)
    settings = QgsLayoutExporter.ImageExportSettings()
    settings.dpi = 130
    assert QgsLayoutExporter(layout).exportToImage(str(target), settings) == QgsLayoutExporter.Success


def place(layout: Any, item: Any, x: float, y: float, width: float, height: float) -> None:
    layout.addLayoutItem(item)
    item.attemptMove(QgsLayoutPoint(x, y, QgsUnitTypes.LayoutMillimeters))
    item.attemptResize(QgsLayoutSize(width, height, QgsUnitTypes.LayoutMillimeters))


def main() -> None:
    application = QgsApplication([], True)
    application.initQgis()
    sys.path += [str(Path(QgsApplication.pkgDataPath()) / "python" / "plugins"), PLUGINS]
    from processing.core.Processing import Processing

    Processing.initialize()
    import hypercaps_qgis

    plugin = hypercaps_qgis.classFactory(None)
    plugin.initGui()
    folder = Path(FOLDER)
    layer = loaded_map(folder)
    draw(layer, folder / "result.png")
    found = {
        "classes": classes_of(layer),
        "classes of training": classes_of(loaded_training(folder)),
        "labels": labels_of_every_kind(),
        "runs": runs_on_such_layers(folder),
        "refused": refused_rasters(folder),
        "other CRS": another_crs(folder),
        "cancelled": cancelled(folder),
    }
    plugin.unload()
    found["unloaded"] = QgsApplication.processingRegistry().providerById("hypercaps") is None
    sys.stdout.write(json.dumps(found) + "\n")


main()
