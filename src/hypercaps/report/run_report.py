"""A run's folder in one HTML file that opens offline. It reads that folder and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hypercaps.data.tiling import thinning
from hypercaps.inference.run_metrics import RunMetrics
from hypercaps.io.writers.thumbnails import MapLook, look_at_map, look_at_raster
from hypercaps.report import page
from hypercaps.report.plots import confidence_colors, raster_picture, unbroken
from hypercaps.report.quicklook import LONGEST_SIDE, NOTHING
from hypercaps.report.wording import among_labels, both_text, leakage_text, scene_text, split_text

_SETS = {"test": (204, 204, 204), "val": (230, 159, 0), "train": (0, 114, 178)}  # as they are painted, last on top
_SPECTRUM = (320.0, 110.0, 84.0)  # width, height of the spectrum, and height of what was heard, in the drawing's units
Json = Mapping[str, Any]


def make_report(folder: Path, rasters: Mapping[str, str]) -> str:
    """The page of a run's folder, whose other files are written; ``rasters`` are file names with a description."""
    metrics = RunMetrics.from_json(json.loads((folder / "metrics.json").read_text(encoding="utf-8")))
    classes = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
    both = metrics.both or {}
    look = look_at_map(folder / "map.tif", LONGEST_SIDE) if (folder / "map.tif").exists() else None
    return page.render(
        "report",
        title=f"{metrics.scene}: map and scores",
        metrics=metrics,
        scene=classes["scene"],
        split_text=split_text(metrics),
        among_labels=among_labels(metrics),
        advice=[scene_text(metrics)] if both else [leakage_text(metrics), scene_text(metrics)],
        both=both,
        both_text=both_text(both) if both else None,
        tested=[sum(row.accuracy is not None for row in found.per_class) for found in (metrics, *both.values())],
        wide=classes["scene"]["cols"] > 2.5 * classes["scene"]["rows"],
        panels=_panels(folder, classes, look),
        rasters={name: about for name, about in rasters.items() if (folder / name).exists()},
        gradient=_gradient(),
        nothing=_hex(NOTHING),
        rows=_rows(metrics, classes, look),
        unsure=None if look is None or metrics.reject is None else _unsure(look, classes),
        hectares=look is not None and look.hectares is not None,
        confusion=_confusion(metrics),
        split_png=_split_picture(folder, classes),
        set_colors={name: _hex(color) for name, color in _SETS.items()},
        curves=(folder / "curves.png").read_bytes(),
        reliability=(folder / "reliability.png").read_bytes(),
        spectra=[_drawn(entry, classes) for entry in classes["classes"] if entry["spectrum"] is not None],
        asked=any(entry["share"] is not None for entry in classes["classes"]),
        axis=_axis(classes),
        size=_SPECTRUM,
        by_hand=_python(metrics),
    )


# ---- pictures of the scene -------------------------------------------------------------------------------------------


def _panels(folder: Path, classes: Json, look: MapLook | None) -> list[dict[str, Any]]:
    found = [
        {"title": "Scene", "note": classes["scene"]["picture"], "png": (folder / "scene.png").read_bytes()},
        {"title": "Ground truth", "note": "what is labelled", "png": (folder / "labels.png").read_bytes()},
    ]
    if look is not None:
        colors = np.tile(np.array(NOTHING, dtype=np.uint8), (max(look.counts, default=0) + 1, 1))
        for label, color in look.colors.items():
            colors[label] = color
        confidence = look_at_raster(folder / "confidence.tif", LONGEST_SIDE)
        found += [
            {"title": "Map", "note": "the class of each pixel", "png": raster_picture(colors[look.classes])},
            {"title": "Confidence", "note": None, "png": raster_picture(confidence_colors(confidence))},
        ]
    return found


def _split_picture(folder: Path, classes: Json) -> bytes:
    """Which pixels trained, validated and tested; of a large scene each cell shows the rarest that lies in it."""
    rows, cols = classes["scene"]["rows"], classes["scene"]["cols"]
    step = thinning((rows, cols), LONGEST_SIDE)
    picture = np.empty((-(-rows // step), -(-cols // step), 3), dtype=np.uint8)
    picture[:] = NOTHING
    with np.load(folder / "split.npz", allow_pickle=False) as split:
        for name, color in _SETS.items():
            r, c = np.divmod(split[name], cols)
            picture[r // step, c // step] = color
    return raster_picture(picture)


def _gradient() -> str:
    """The colours of confidence from 0 to 1, for a style sheet."""
    return ", ".join(_hex(color) for color in confidence_colors(np.linspace(0, 1, 9)[None])[0].tolist())


def _hex(color: Any) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _rows(metrics: RunMetrics, classes: Json, look: MapLook | None) -> list[dict[str, Any]]:
    """The table of classes: how many pixels, how well they were found, and how much of the map they take."""
    confusion = np.asarray(metrics.confusion)
    said = confusion.sum(axis=0)
    rows = []
    for i, (score, entry) in enumerate(zip(metrics.per_class, classes["classes"], strict=True)):
        rows.append(
            {
                **{key: entry[key] for key in ("label", "name", "color", "train", "val", "test")},
                "found": score.accuracy,
                "right": 100 * confusion[i, i] / said[i] if said[i] else None,
                **_ground(look, look.counts[entry["label"]] if look else 0),
            }
        )
    return rows


def _unsure(look: MapLook, classes: Json) -> dict[str, Any]:
    """Of a map with ``--reject``: its one number that is no class."""
    known = {entry["label"] for entry in classes["classes"]} | {0}
    [label] = set(look.colors) - known
    return {"color": _hex(look.colors[label]), **_ground(look, look.counts[label])}


def _ground(look: MapLook | None, pixels: int) -> dict[str, Any]:
    """How much of the map some pixels are."""
    if look is None:
        return dict.fromkeys(("pixels", "share", "hectares"))
    mapped = sum(look.counts.values()) - look.counts[0]
    hectares = None if look.hectares is None else pixels * look.hectares
    return {"pixels": pixels, "share": 100 * pixels / mapped if mapped else 0.0, "hectares": hectares}


def _confusion(metrics: RunMetrics) -> list[dict[str, Any]]:
    """Rows of the confusion matrix, each cell with how much of its row it is: 0 to 1."""
    names = [score.name for score in metrics.per_class]
    labels = [score.label for score in metrics.per_class]
    rows = []
    for i, counts in enumerate(metrics.confusion):
        total = sum(counts)
        cells = [
            {"n": n, "share": n / total if total else 0.0, "right": i == j, "said": names[j]}
            for j, n in enumerate(counts)
        ]
        rows.append({"label": labels[i], "name": names[i], "cells": cells, "total": total})
    return rows


# ---- spectra ---------------------------------------------------------------------------------------------------------


def _positions(classes: Json) -> npt.NDArray[np.float64]:
    """Wavelengths, or numbers of bands."""
    waves = classes["wavelengths_nm"]
    return np.arange(1.0, classes["scene"]["bands"] + 1) if waves is None else np.asarray(waves, dtype=float)


def _across(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Positions along the spectrum in the drawing's units."""
    span = float(x.max() - x.min())
    return np.asarray((x - x.min()) / span * _SPECTRUM[0] if span else np.full(x.size, _SPECTRUM[0] / 2))


def _axis(classes: Json) -> dict[str, Any]:
    """Three ticks below the drawings."""
    x = _positions(classes)
    at = np.linspace(x.min(), x.max(), 3)
    return {"unit": "band" if classes["wavelengths_nm"] is None else "nm", "ticks": [f"{value:.0f}" for value in at]}


def _drawn(entry: Json, classes: Json) -> dict[str, Any]:
    """One class: its mean spectrum and spread, and what was heard, as paths."""
    x = _positions(classes)
    across, pieces = _across(x), unbroken(x)
    height, lower = _SPECTRUM[1:]
    mean, spread = np.asarray(entry["spectrum"]), np.asarray(entry["spread"])
    scene = np.asarray(classes["mean_spectrum"])
    low, high = min((mean - spread).min(), scene.min()), max((mean + spread).max(), scene.max())
    scale = height / (high - low) if high > low else 1.0

    def down(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(height - (values - low) * scale)

    drawn: dict[str, Any] = {
        "label": entry["label"],
        "name": entry["name"],
        "color": entry["color"],
        "pixels": entry["pixels"],
        "explained": entry["explained"],
        "line": _line(across, down(mean), pieces),
        "scene": _line(across, down(scene), pieces),
        "band": "".join(
            _path(np.concatenate([across[p], across[p][::-1]]),
                  np.concatenate([down(mean + spread)[p], down(mean - spread)[p][::-1]])) + "Z"
            for p in pieces
        ),
        "bars": None,
    }  # fmt: skip
    if entry["share"] is not None:
        share = np.asarray(entry["share"])
        most = float(np.abs(share).max()) or 1.0
        width = 0.8 * _SPECTRUM[0] / max(x.size, 1)
        zero = height + lower / 2 + 6
        drawn["zero"] = zero
        drawn["bars"] = {
            sign: "".join(
                f"M{at - width / 2:.1f} {zero:.1f}h{width:.2f}v{-part / most * lower / 2:.2f}h{-width:.2f}Z"
                for at, part in zip(across, share, strict=True)
                if (part > 0) == (sign == "for") and abs(part) > most / 200
            )
            for sign in ("for", "against")
        }
        unit = "band {:.0f}" if classes["wavelengths_nm"] is None else "{:.0f} nm"
        top = [band for band in np.argsort(-share)[:3] if share[band] > 0]
        drawn["top"] = ", ".join(unit.format(x[band]) for band in top)
        drawn["deletion"] = entry["deletion"]
    return drawn


def _line(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], pieces: list[npt.NDArray[np.intp]]) -> str:
    return "".join(_path(x[piece], y[piece]) for piece in pieces)


def _path(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


# ---- how to repeat it ------------------------------------------------------------------------------------------------


def _python(metrics: RunMetrics) -> str:
    """The same run in Python."""
    changed = ", ".join(f"{name}={value!r}" for name, value in (metrics.params or {}).items())
    given = metrics.split in ("file", "given")
    lines = [
        f"from hypercaps import ConvCapsClassifier, open_labels, open_scene{', open_split' if given else ''}",
        "scene = open_scene(...)  # as named above",
        "labels = open_labels(..., scene=scene)",
        *(['split = open_split("split.npz", labels)'] if given else []),
        f"ConvCapsClassifier({changed}).fit(scene, labels{', split' if given else ''})",
    ]
    return "\n".join(lines)
