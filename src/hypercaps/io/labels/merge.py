"""Several label files that add up to one.

Classes with the same name are one class, whatever their numbers; classes without a name go by their number. Numbers
that a file brought are kept where they can be; names that had none are numbered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps.data.labels import MAX_LABEL, Labels, Legend, LegendEntry, default_color
from hypercaps.data.splits import connected_areas
from hypercaps.errors import LabelsError, warn_data

Numbering = dict[int, int]  # from a file's labels to those of all files

_MOST_PAIRS = 5  # pairs of classes that are named in one message
_PALETTE = 256  # default colours that nobody chose


class LabelFile(NamedTuple):
    """Labels as they came out of a file."""

    labels: Labels
    legend: Legend  # all classes of the file, also those that are not in the scene
    invented: frozenset[int] = frozenset()  # labels that stand for names only: their numbers are ours


def merge(files: Sequence[LabelFile]) -> LabelFile:
    """One raster of all files; pixels that two of them give different classes are left unlabelled."""
    if len(files) == 1:
        return files[0]
    first, name = files[0].labels, " + ".join(file.labels.name for file in files)
    for other, _, _ in files:
        if other.shape != first.shape:
            raise LabelsError(
                f"labels {first.name!r} have {first.shape[0]} x {first.shape[1]} pixels but {other.name!r} "
                f"{other.shape[0]} x {other.shape[1]}: labels that add up lie on one grid"
            )
    legend, numberings, invented = number_classes(files)
    merged, disputed = np.zeros(first.shape, dtype=np.int16), np.zeros(first.shape, dtype=bool)
    groups = np.zeros(first.shape, dtype=np.int32) if any(f.labels.groups is not None for f in files) else None
    overlaps: Counter[tuple[int, int]] = Counter()
    for (labels, _, _), numbering in zip(files, numberings, strict=True):
        table = np.zeros(MAX_LABEL + 1, dtype=np.int16)
        table[list(numbering)] = list(numbering.values())
        new = table[labels.array]  # (rows, columns)
        fresh, both = (new > 0) & (merged == 0), (new > 0) & (merged > 0) & (new != merged)
        pairs = np.sort(np.stack([merged[both], new[both]]), axis=0)
        for (one, other_label), pixels in zip(*_counted(pairs), strict=True):
            overlaps[int(one), int(other_label)] += int(pixels)
        disputed |= both
        merged[fresh] = new[fresh]
        if groups is not None:  # the areas of a raster are polygons like others
            own = connected_areas(labels.array) if labels.groups is None else labels.groups
            groups[fresh] = own[fresh] + groups.max()
    merged[disputed] = 0
    if groups is not None:
        groups[disputed] = 0
    if overlaps:
        warn_data(overlap_message(overlaps, legend, "files", name))
    return LabelFile(Labels.from_array(merged, legend, name=name, groups=groups), legend, invented)


def _counted(pairs: npt.NDArray[np.int16]) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64]]:
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return found.T, counts


def overlap_message(overlaps: Mapping[tuple[int, int], int], legend: Legend, what: str, where: str) -> str:
    """How many pixels several classes claim, and which."""
    names = {entry.label: entry.name for entry in legend}
    pairs = sorted(overlaps.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{names[one]} and {names[other]}: {pixels:,}" for (one, other), pixels in pairs[:_MOST_PAIRS]]
    more = f", and {len(pairs) - _MOST_PAIRS} more pairs" if len(pairs) > _MOST_PAIRS else ""
    return (
        f"{where}: {what} of different classes overlap, and the pixels they share are left unlabelled "
        f"({', '.join(shown)}{more})"
    )


def number_classes(files: Sequence[LabelFile]) -> tuple[Legend, list[Numbering], frozenset[int]]:
    """The classes of all files, the new number of each file's labels, and those numbers that are ours."""
    classes: dict[int, LegendEntry] = {}
    by_name: dict[str, int] = {}
    numberings: list[Numbering] = [{} for _ in files]
    taken = {entry.label for _, legend, ours in files for entry in legend if entry.label not in ours}
    for (labels, legend, ours), numbering in zip(files, numberings, strict=True):
        for entry in legend:
            if entry.label in ours:
                continue
            there = classes.get(entry.label)
            if entry.is_named and entry.name in by_name:
                number = by_name[entry.name]
            elif there is None or not entry.is_named or not there.is_named:
                number = entry.label
            else:
                number = max(taken) + 1
                taken.add(number)
                warn_data(
                    f"{labels.name}: its class {entry.label}, {entry.name}, becomes {number}, for {entry.label} is "
                    f"{there.name}"
                )
            numbering[entry.label] = number
            if number not in classes or (entry.is_named and not classes[number].is_named):
                classes[number] = entry._replace(label=number)
            if entry.is_named:
                by_name[entry.name] = number
    for number, entry in classes.items():  # a name like 'class 3' that somebody typed
        by_name.setdefault(entry.name, number)
    names = {entry.name: entry for _, legend, ours in reversed(files) for entry in legend if entry.label in ours}
    fresh = sorted(names.keys() - by_name.keys())
    for number, name in enumerate(fresh, start=max(taken, default=0) + 1):
        by_name[name] = number
        classes[number] = names[name]._replace(label=number)
    for (labels, legend, ours), numbering in zip(files, numberings, strict=True):
        numbering |= {entry.label: by_name[entry.name] for entry in legend if entry.label in ours}
        if len(set(numbering.values())) < len(numbering):
            raise LabelsError(
                f"two classes of {labels.name!r} would become one, for some of its classes have names and some not: "
                "name all of them, or none"
            )
    if max(classes) > MAX_LABEL:
        raise LabelsError(f"these label files have classes up to {max(classes)}: {MAX_LABEL} is the highest possible")
    together = _told_apart(Legend(tuple(classes[number] for number in sorted(classes))))
    return together, numberings, frozenset(by_name[name] for name in fresh)


def _told_apart(legend: Legend) -> Legend:
    """Colours that nobody chose are chosen again where two files had taken the same."""
    palette = [default_color(place) for place in range(_PALETTE)]
    used: set[tuple[int, int, int]] = set()
    entries = []
    for entry in legend:
        color = entry.color
        if color in used and color in palette:
            color = next((other for other in palette if other not in used), color)
        used.add(color)
        entries.append(entry._replace(color=color))
    return Legend(tuple(entries))


def renumber(file: LabelFile, legend: Legend) -> Labels:
    """Labels whose invented numbers are those of the same names in ``legend``, as a model has learned them."""
    labels, _, ours = file
    known = {entry.name: entry.label for entry in legend}
    used = {entry.label for entry in legend} | {entry.label for entry in labels.legend if entry.label not in ours}
    highest = max(used | ours, default=0)
    numbering: Numbering = {}
    for entry in labels.legend:
        number = entry.label
        if number in ours and entry.name in known:
            number = known[entry.name]
        elif number in ours and number in used:  # a class that the model does not know keeps apart from those it does
            highest += 1
            number = highest
        numbering[entry.label] = number
    if all(old == new for old, new in numbering.items()):
        return labels
    table = np.zeros(MAX_LABEL + 1, dtype=np.int16)
    table[list(numbering)] = list(numbering.values())
    entries = {numbering[entry.label]: entry._replace(label=numbering[entry.label]) for entry in labels.legend}
    return Labels.from_array(
        table[labels.array],
        Legend(tuple(entries[number] for number in sorted(entries))),
        name=labels.name,
        groups=labels.groups,
    )
