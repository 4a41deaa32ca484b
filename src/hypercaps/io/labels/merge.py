"""Merge several label files into one raster.

Classes with the same name are one class, whatever their numbers; classes without a name are identified by number. The
numbers of a file are kept where possible; names without a number are numbered here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.colors import without_alike
from hypercaps.data.labels import MAX_LABEL, Labels, Legend, LegendEntry
from hypercaps.data.splits import connected_areas
from hypercaps.errors import LabelsError, warn_data

Numbering = dict[int, int]  # new label by the label in a file

_MOST_PAIRS = 5  # pairs of classes that a message names


class LabelFile(NamedTuple):
    labels: Labels
    legend: Legend  # all classes of the file, also those outside the scene
    invented: frozenset[int] = frozenset()  # labels that were assigned here to classes that have a name only


def merge(files: Sequence[LabelFile]) -> LabelFile:
    """One raster of all files; pixels of different classes in two files are left unlabelled."""
    if len(files) == 1:
        return files[0]
    first, name = files[0].labels, " + ".join(file.labels.name for file in files)
    for other, _, _ in files:
        if other.shape != first.shape:
            raise LabelsError(
                f"labels {first.name!r} have {first.shape[0]} x {first.shape[1]} pixels but {other.name!r} "
                f"{other.shape[0]} x {other.shape[1]}: labels to merge must be on one grid"
            )
    legend, numberings, invented = number_classes(files)
    merged, disputed = np.zeros(first.shape, dtype=np.int16), np.zeros(first.shape, dtype=bool)
    groups = np.zeros(first.shape, dtype=np.int32) if any(f.labels.groups is not None for f in files) else None
    overlaps: Counter[tuple[int, int]] = Counter()
    for (labels, _, _), numbering in zip(files, numberings, strict=True):
        new = _renumbered(labels.array, numbering)
        free, both = (new > 0) & (merged == 0), (new > 0) & (merged > 0) & (new != merged)
        pairs, counts = np.unique(np.sort(np.stack([merged[both], new[both]]), axis=0), axis=1, return_counts=True)
        for one, two, pixels in zip(*pairs.tolist(), counts.tolist(), strict=True):
            overlaps[one, two] += pixels
        disputed |= both
        merged[free] = new[free]
        if groups is not None:  # the connected areas of a raster count as polygons
            own = connected_areas(labels.array) if labels.groups is None else labels.groups
            groups[free] = own[free] + groups.max()
    merged[disputed] = 0
    if groups is not None:
        groups[disputed] = 0
    if overlaps:
        warn_data(overlap_message(overlaps, legend, "files", name))
    tiles = tuple(dict.fromkeys(tile for file in files for tile in file.labels.tiles))
    return LabelFile(Labels.from_array(merged, legend, name=name, groups=groups, tiles=tiles), legend, invented)


def _renumbered(array: npt.NDArray[np.int16], numbering: Numbering) -> npt.NDArray[np.int16]:
    """(rows, columns) the new label of each pixel; 0 stays."""
    table = np.zeros(MAX_LABEL + 1, dtype=np.int16)
    table[list(numbering)] = list(numbering.values())
    return table[array]


def overlap_message(overlaps: Mapping[tuple[int, int], int], legend: Legend, noun: str, name: str) -> str:
    """The pixels that several classes claim, by pair of classes; ``noun``: what overlaps, in the plural."""
    names = {entry.label: entry.name for entry in legend}
    pairs = sorted(overlaps.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{names[one]} and {names[other]}: {pixels:,}" for (one, other), pixels in pairs[:_MOST_PAIRS]]
    more = f", and {len(pairs) - _MOST_PAIRS} more pairs" if len(pairs) > _MOST_PAIRS else ""
    return (
        f"{name}: {noun} of different classes overlap, and the pixels they share are left unlabelled "
        f"({', '.join(shown)}{more})"
    )


def number_classes(files: Sequence[LabelFile]) -> tuple[Legend, list[Numbering], frozenset[int]]:
    """The classes of all files, the new labels of each file, and the labels that were assigned here."""
    classes: dict[int, LegendEntry] = {}
    by_name: dict[str, int] = {}
    numberings: list[Numbering] = [{} for _ in files]
    taken = {entry.label for _, legend, invented in files for entry in legend if entry.label not in invented}
    for (labels, legend, invented), numbering in zip(files, numberings, strict=True):
        for entry in legend:
            if entry.label in invented:
                continue
            same_label = classes.get(entry.label)
            if entry.is_named and entry.name in by_name:
                number = by_name[entry.name]
            elif same_label is None or not entry.is_named or not same_label.is_named:
                number = entry.label
            else:
                number = max(taken) + 1
                taken.add(number)
                warn_data(
                    f"{labels.name}: its class {entry.label}, {entry.name}, becomes {number}, because {entry.label} is "
                    f"{same_label.name}"
                )
            numbering[entry.label] = number
            if number not in classes or (entry.is_named and not classes[number].is_named):
                classes[number] = entry._replace(label=number)
            if entry.is_named:
                by_name[entry.name] = number
    for number, entry in classes.items():  # default names, such as 'class 3', may be names in other files
        by_name.setdefault(entry.name, number)
    names = {entry.name: entry for file in reversed(files) for entry in file.legend if entry.label in file.invented}
    new_names = sorted(names.keys() - by_name.keys())
    for number, name in enumerate(new_names, start=max(taken, default=0) + 1):
        by_name[name] = number
        classes[number] = names[name]._replace(label=number)
    for (labels, legend, invented), numbering in zip(files, numberings, strict=True):
        numbering |= {entry.label: by_name[entry.name] for entry in legend if entry.label in invented}
        if len(set(numbering.values())) < len(numbering):
            raise LabelsError(
                f"two classes of {labels.name!r} would become one, because some of its classes have names and some "
                "not: name all of them, or none"
            )
    if max(classes) > MAX_LABEL:
        raise LabelsError(f"these label files have classes up to {max(classes)}: {MAX_LABEL} is the highest possible")
    legend = _with_distinct_colors(Legend(tuple(classes[number] for number in sorted(classes))))
    return legend, numberings, frozenset(by_name[name] for name in new_names)


def _with_distinct_colors(legend: Legend) -> Legend:
    """Replace default colours that look like another's: each file has chosen its own."""
    colors = zip(legend, without_alike([entry.color for entry in legend]), strict=True)
    kept = {entry.label: color for entry, color in colors if color is not None}
    return Legend.of((entry.label for entry in legend), [entry.name for entry in legend], kept)


def renumber(file: LabelFile, legend: Legend) -> Labels:
    """Replace invented labels by those of the same names in ``legend``, that of a model."""
    labels, _, invented = file
    by_name = {entry.name: entry.label for entry in legend}
    used = {entry.label for entry in legend} | {entry.label for entry in labels.legend if entry.label not in invented}
    highest = max(used | invented, default=0)
    entries = []
    for entry in labels.legend:
        number = entry.label
        if number in invented and entry.name in by_name:
            number = by_name[entry.name]
        elif number in invented and number in used:  # a class that the model lacks must not get the label of another
            highest += 1
            number = highest
        entries.append(entry._replace(label=number))
    if tuple(entries) == labels.legend.entries:
        return labels
    array = _renumbered(labels.array, {old.label: new.label for old, new in zip(labels.legend, entries, strict=True)})
    merged = {entry.label: entry for entry in entries}  # a model's class and a numbered one may become the same
    kept = Legend(tuple(sorted(merged.values())))
    return Labels.from_array(array, kept, name=labels.name, groups=labels.groups, tiles=labels.tiles)
