"""From layers of QGIS to files that hypercaps reads; labels that are not a plain file become a temporary one."""

from __future__ import annotations

from typing import Any

from qgis.core import (
    QgsFeature,
    QgsFeatureRequest,
    QgsFeatureSink,
    QgsFields,
    QgsProcessingFeatureSource,
    QgsProcessingFeatureSourceDefinition,
    QgsProcessingUtils,
    QgsProviderRegistry,
    QgsVectorFileWriter,
)

from .commands import CommandError, Labels, LayerSource, raster_argument, vector_argument


def scene_argument(layer: Any, feedback: Any) -> str:
    """The file of a raster layer; says so if QGIS uses another coordinate system for it than the file has."""
    argument = raster_argument(source_of(layer))
    in_file, in_qgis = layer.dataProvider().crs(), layer.crs()
    if in_qgis != in_file:
        feedback.pushWarning(
            f"In QGIS, layer {layer.name()!r} has the coordinate system {_named(in_qgis)}; its file has "
            f"{_named(in_file)}, which hypercaps uses. To change the file: Raster > Projections > Assign Projection."
        )
    return argument


def source_of(layer: Any) -> LayerSource:
    provider, source = layer.providerType(), layer.source()
    parts = QgsProviderRegistry.instance().decodeUri(provider, source)
    # Missing values are None or a null QVariant
    known = {name: value for name, value in parts.items() if isinstance(value, (str, int)) and value != ""}
    return LayerSource(layer.name(), provider, source, known)


def plain_file(parameter: Any, layer: Any, class_field: str) -> str | None:
    """The labels' own file, FILE or FILE:LAYER; None if QGIS shows something else than the file contains.

    That is so for selected features, filters, edits that are not saved, another coordinate system, fields that are
    computed or joined, and layers in memory or in a database.
    """
    if layer is None or (isinstance(parameter, QgsProcessingFeatureSourceDefinition) and _is_part(parameter)):
        return None
    field = layer.fields().indexFromName(class_field) if class_field else None
    is_own = field is None or layer.fields().fieldOrigin(field) == QgsFields.OriginProvider
    is_as_saved = not layer.isModified() and layer.crs() == layer.dataProvider().crs()
    if layer.subsetString() or not is_as_saved or not is_own:
        return None
    return vector_argument(source_of(layer))


def _is_part(parameter: Any) -> bool:
    """Whether only some features are to be used."""
    return bool(
        parameter.selectedFeaturesOnly or parameter.featureLimit > 0 or getattr(parameter, "filterExpression", "")
    )


def exported(source: Any, class_field: str, context: Any) -> Labels:
    """Write the features of a source, as QGIS shows them, to a temporary GeoPackage."""
    path = QgsProcessingUtils.generateTempFilename("labels.gpkg")
    kept = QgsFields()
    index = source.fields().indexFromName(class_field) if class_field else -1
    if index >= 0:
        kept.append(source.fields().at(index))
    options = QgsVectorFileWriter.SaveVectorOptions()
    options.driverName, options.layerName = "GPKG", "labels"
    options.layerOptions = ["FID=hypercaps_fid"]  # the class may be in a field of the usual name
    crs, transforms = source.sourceCrs(), context.transformContext()
    writer = QgsVectorFileWriter.create(path, kept, source.wkbType(), crs, transforms, options)
    # hypercaps says itself which geometries it can't use
    for feature in source.getFeatures(QgsFeatureRequest(), QgsProcessingFeatureSource.FlagSkipGeometryValidityChecks):
        copy = QgsFeature(kept)
        copy.setGeometry(feature.geometry())
        if index >= 0:
            copy.setAttribute(0, feature.attribute(index))
        if not writer.addFeature(copy, QgsFeatureSink.FastInsert):
            raise CommandError(f"the labels can't be written to {path}: {writer.errorMessage()}")
    if writer.hasError() != QgsVectorFileWriter.NoError:
        raise CommandError(f"the labels can't be written to {path}: {writer.errorMessage()}")
    del writer  # closes the file
    return Labels(path, class_field)


def _named(crs: Any) -> str:
    return crs.authid() or crs.description() or "none"
