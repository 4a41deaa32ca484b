"""Measure ``--method auto``: accuracy on new ground, calibration, and how far the reported score is from the truth.

    python benchmarks/evidence.py accuracy            # EnMAP tiles, Indian Pines, Pavia University's block, Salinas-A
    python benchmarks/evidence.py scores --draws 20   # reported OA against the truth, three designs of labels
    python benchmarks/evidence.py tables              # what has been measured so far

Every run is one line of --json (default: evidence.jsonl); runs that are in the file are not repeated, so that the
command can be stopped and started again, and ``--part 0/2`` and ``--part 1/2`` can run side by side. Needs the files
of HYPERCAPS_DATA for all but Indian Pines.

The reported draws are EnMAP seeds 1 to 3 and draws 10 and up of the other scenes. ``--first N`` measures others:
settings were chosen on EnMAP seeds 10 and up and on draws 100 and up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hypercaps import ConvCapsClassifier, Labels, Scene, open_labels, open_scene, split_blocks, split_per_class
from hypercaps.compute.devices import use_threads
from hypercaps.data.splits import connected_areas

DATA = Path(os.environ.get("HYPERCAPS_DATA", Path(__file__).parents[2] / "shared" / "data"))
METHODS: dict[str, dict[str, Any]] = {
    "auto": {"method": "auto", "split_by": "folds"},
    "lda": {"method": "lda", "split_by": "none"},
    "logistic": {"method": "logistic", "split_by": "none"},
    "rbf-svm": {"method": "rbf-svm", "split_by": "none"},
    "random-forest": {"method": "random-forest", "split_by": "none"},
    "lda-5": {"method": "lda", "patch": 5, "split_by": "none"},
    "lda-7": {"method": "lda", "patch": 7, "split_by": "none"},
    "network": {"method": "convcapsnet", "split_by": "none"},
    "network-1": {
        "method": "convcapsnet", "patch": 1, "recipe": "augmented", "whitening": "damped", "split_by": "none"
    },
}  # fmt: skip
SIMPLE = ("lda", "logistic", "rbf-svm", "random-forest", "lda-5", "lda-7")
Pixels = npt.NDArray[np.int64]


class Test(NamedTuple):
    """Pixels to test a model on; those of classes that were not trained count as errors."""

    scene: Scene
    pixels: Pixels
    truth: npt.NDArray[np.int16]


@dataclass(frozen=True)
class Case:
    """One training set and its test pixels."""

    group: str
    draw: int
    make: Callable[[], tuple[Scene, Labels, list[Test]]]
    methods: tuple[str, ...]


# ---- cases -----------------------------------------------------------------------------------------------------------


def enmap_files() -> tuple[list[str], list[str]]:
    images = sorted((DATA / "enmap_potsdam" / "images").glob("*.tif"))
    return [str(path) for path in images], [str(path.parents[1] / "labels" / path.name) for path in images]


def all_labels(scene: Scene, files: list[str]) -> Labels:
    return open_labels(files, scene=scene).where_valid(scene)


def enmap_tiles(k: int, seed: int, *, with_test_ground: bool) -> tuple[Scene, Labels, list[Test]]:
    """k training tiles; the other tiles are new, or part of the scene as unlabelled ground."""
    images, labels = enmap_files()
    order = np.random.default_rng(seed).permutation(12)
    train, test = order[:k], order[k:]
    if with_test_ground:
        scene = open_scene(images)
        everything = all_labels(scene, labels)
        own = all_labels(scene, [labels[i] for i in train])
        rest = np.flatnonzero((everything.array > 0) & (own.array == 0))
        return scene, own, [Test(scene, rest, everything.array.ravel()[rest])]
    scene = open_scene([images[i] for i in train] if k > 1 else images[train[0]])
    tests = []
    for i in test:
        tile = open_scene(images[i])
        found = all_labels(tile, [labels[i]]).array.ravel()
        tests.append(Test(tile, np.flatnonzero(found), found[found > 0]))
    return scene, all_labels(scene, [labels[i] for i in train]), tests


def enmap_points(n: int, seed: int) -> tuple[Scene, Labels, list[Test]]:
    images, files = enmap_files()
    scene = open_scene(images)
    return on_one_scene(scene, all_labels(scene, files), draw_points(all_labels(scene, files), n, seed))


def load(name: str) -> tuple[Scene, Labels]:
    if name == "pavia":
        file = DATA / "pavia_university" / "PaviaU_block.mat"
        return open_scene(f"{file}:paviaU"), open_labels(f"{file}:paviaU_gt")
    if name == "salinas-a":
        return open_scene(DATA / "salinas_a/SalinasA_corrected.mat"), open_labels(DATA / "salinas_a/SalinasA_gt.mat")
    return open_scene("indian-pines"), open_labels("indian-pines")


def on_one_scene(
    scene: Scene, labels: Labels, train: Pixels, test: Pixels | None = None
) -> tuple[Scene, Labels, list[Test]]:
    rest = np.setdiff1d(np.flatnonzero(labels.array), train) if test is None else test
    return scene, labels.only_pixels(train), [Test(scene, rest, labels.array.ravel()[rest])]


def drawn(name: str, design: str, seed: int) -> tuple[Scene, Labels, list[Test]]:
    scene, labels = load(name)
    if design == "blocks50":  # training and validation blocks of the split of benchmarks/best_recipe.py
        split = split_blocks(labels, 0.4, 0.1, seed=seed)
        return on_one_scene(scene, labels, np.concatenate([split.train, split.val]), split.test)
    if design == "random10":
        split = split_per_class(labels, 10, 0.1, seed=seed, at_most=0.5)
        return on_one_scene(scene, labels, split.train, split.test)
    if design == "blocks10":
        split = split_blocks(labels, 0.4, 0.1, per_class=10, seed=seed)
        return on_one_scene(scene, labels, split.train, split.test)
    draw: dict[str, Callable[[], Pixels]] = {
        "points": lambda: draw_points(labels, 30, seed),
        "polygons": lambda: draw_polygons(labels, 6, seed),
        "fields": lambda: draw_fields(labels, seed),
    }
    return on_one_scene(scene, labels, draw[design]())


def draw_points(labels: Labels, n: int, seed: int) -> Pixels:
    """n pixels of each class at random, at most half of it."""
    rng, flat = np.random.default_rng(seed), labels.array.ravel()
    of_class = [np.flatnonzero(flat == label) for label in labels.legend.labels]
    return np.sort(np.concatenate([rng.permutation(own)[: min(n, own.size // 2)] for own in of_class]))


def draw_polygons(labels: Labels, n: int, seed: int, half: int = 2) -> Pixels:
    """n squares of up to 5 x 5 pixels of each class at random places, at most half of the class."""
    rng, array = np.random.default_rng(seed), labels.array
    used = np.zeros(array.shape, dtype=bool)
    for label in labels.legend.labels:
        places = np.argwhere(array == label)
        pixels = polygons = 0
        for row, col in rng.permutation(places):
            if polygons == n or pixels >= len(places) // 2:
                break
            if used[row, col]:
                continue
            window = slice(max(row - half, 0), row + half + 1), slice(max(col - half, 0), col + half + 1)
            inside = (array[window] == label) & ~used[window]
            used[window] |= inside
            pixels, polygons = pixels + int(inside.sum()), polygons + 1
    return np.flatnonzero(used)


def draw_fields(labels: Labels, seed: int) -> Pixels:
    """Half of each class's connected fields, at least one."""
    rng, areas = np.random.default_rng(seed), connected_areas(labels.array)
    kept = [
        own
        for label in labels.legend.labels
        for ids in [np.unique(areas[labels.array == label])]
        for own in rng.permutation(ids)[: max(1, ids.size // 2)]
    ]
    return np.flatnonzero(np.isin(areas, kept) & (labels.array > 0))


def accuracy_cases(first: int | None, draws: int | None) -> Iterator[Case]:
    def numbers(start: int, count: int) -> range:
        start = start if first is None else first
        return range(start, start + (count if draws is None else draws))

    def case(group: str, draw: int, make: Callable[..., Any], *args: Any, network: str, **options: Any) -> Case:
        return Case(group, draw, partial(make, *args, **options), ("auto", *SIMPLE, network))

    for seed in numbers(1, 3):
        for k in (1, 3, 6, 9):
            for part in (False, True):
                group = f"enmap {'part' if part else 'new'} k={k}"
                yield case(group, seed, enmap_tiles, k, seed, network="network-1", with_test_ground=part)
        for n in (5, 10, 20, 50):
            yield case(f"enmap {n} per class", seed, enmap_points, n, seed, network="network-1")
    for draw in numbers(10, 10):
        yield case("indian-pines blocks50", draw, drawn, "indian-pines", "blocks50", draw, network="network")
        yield case("indian-pines random10", draw, drawn, "indian-pines", "random10", draw, network="network")
    for draw in numbers(10, 5):
        for name in ("pavia", "salinas-a"):
            for design in ("random10", "blocks10"):
                yield case(f"{name} {design}", draw, drawn, name, design, draw, network="network")


def score_cases(first: int | None, draws: int | None) -> Iterator[Case]:
    start = 10 if first is None else first
    for draw in range(start, start + (20 if draws is None else draws)):
        for design in ("points", "polygons", "fields"):
            for name in ("indian-pines", "pavia", "salinas-a"):
                if (name, design) != ("salinas-a", "fields"):  # every class is one field: nothing would be left
                    yield Case(f"score {name} {design}", draw, partial(drawn, name, design, draw), ("auto",))


# ---- running ---------------------------------------------------------------------------------------------------------


def run(case: Case, method: str) -> dict[str, Any]:
    scene, labels, tests = case.make()
    classifier = ConvCapsClassifier(**METHODS[method])
    started = time.perf_counter()
    classifier.fit(scene, labels)
    result: dict[str, Any] = {"seconds": time.perf_counter() - started, "labels": int((labels.array > 0).sum())}
    right, sure, of_tested = [], [], []
    for test in tests:
        mask = np.zeros(test.scene.shape[:2], dtype=bool)
        mask.ravel()[test.pixels] = True
        found = classifier.map(test.scene, only=mask)
        right.append(found.classes.ravel()[test.pixels] == test.truth)
        sure.append(found.confidence.ravel()[test.pixels])
        of_tested.append(np.isin(test.truth, _tested_classes(classifier)))
    correct, confidence = np.concatenate(right), np.concatenate(sure).astype(np.float64)
    result |= {"truth": 100 * float(correct.mean()), "tested": int(correct.size)}
    bins = np.clip((confidence * 15).astype(int), 0, 14)
    sums = [np.bincount(bins, weights=values, minlength=15).tolist() for values in (confidence, correct)]
    result["reliability"] = [np.bincount(bins, minlength=15).tolist(), *sums]
    if method == "auto":
        scores, selection = classifier.scores_, classifier.selection_
        assert selection is not None
        result |= {"oa": scores.oa, "oa_interval": scores.oa_interval, "title": classifier.model_.title}
        result |= {"units": selection.problem.folds.units.kind, "n_units": selection.problem.folds.units.count}
        result["untested"] = len(selection.problem.folds.untested())
        known = np.concatenate(of_tested)  # pixels of classes that the reported OA is about
        result["tested_share"] = float(known.mean())
        result["tested_truth"] = 100 * float(correct[known].mean()) if known.any() else None
        result["candidates"] = {row.name: [row.oa, row.log_loss, row.seconds] for row in selection.rows if row.folds}
    return result


def _tested_classes(classifier: ConvCapsClassifier) -> list[int]:
    """Labels of the classes with a score."""
    rows = classifier.scores_.per_class if hasattr(classifier, "scores_") else ()
    return [row.label for row in rows if row.accuracy is not None]


def read(path: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(r["group"], r["draw"], r["method"]): r for r in map(json.loads, lines)}


def measure(cases: Iterator[Case], path: Path, part: tuple[int, int], methods: list[str] | None) -> None:
    for number, case in enumerate(cases):
        if number % part[1] != part[0]:
            continue
        for method in case.methods if methods is None else [name for name in methods if name in case.methods]:
            if (case.group, case.draw, method) in read(path):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = {"group": case.group, "draw": case.draw, "method": method} | run(case, method)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            reported = f", reported {result['oa']:.1f}" if "oa" in result else ""
            print(
                f"{case.group}, draw {case.draw}, {method}: {result['truth']:.1f}{reported}, {result['seconds']:.1f} s"
                f" {result.get('title', '')}",
                flush=True,
            )


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(path: Path) -> None:
    results = read(path)
    groups = list(dict.fromkeys(group for group, _, _ in results))
    accuracy = [group for group in groups if not group.startswith("score")]
    if accuracy:
        print("\nOA in percent on test pixels: mean (EnMAP) or median of the draws; regret: best of all less auto")
        print(f"{'':28}" + "".join(f"{name:>14}" for name in METHODS) + f"{'regret':>9}{'ECE':>7}{'draws':>6}")
    for group in accuracy:
        print(_accuracy_line(group, [r for (g, _, _), r in results.items() if g == group]))
    for group in (group for group in groups if group.startswith("score")):
        print(_score_line(group, [r for (g, _, _), r in results.items() if g == group]))


def _accuracy_line(group: str, results: list[dict[str, Any]]) -> str:
    mean = statistics.mean if group.startswith("enmap") else statistics.median
    cells, auto = [], {r["draw"]: r for r in results if r["method"] == "auto"}
    for method in METHODS:
        truths = [r["truth"] for r in results if r["method"] == method]
        cells.append(f"{mean(truths):14.1f}" if truths else f"{'-':>14}")
    regrets = [max(r["truth"] for r in results if r["draw"] == draw) - own["truth"] for draw, own in auto.items()]
    regret = f"{statistics.mean(regrets):9.2f}" if regrets else f"{'-':>9}"
    return f"{group:28}" + "".join(cells) + regret + f"{pooled_error(list(auto.values())):7.3f}{len(auto):6}"


def pooled_error(results: list[dict[str, Any]]) -> float:
    """Expected calibration error of the pixels of all runs together."""
    if not results:
        return float("nan")
    count, sure, right = np.sum([r["reliability"] for r in results], axis=0)
    return float(np.abs(sure - right).sum() / count.sum())


def _score_line(group: str, results: list[dict[str, Any]]) -> str:
    bias = [r["oa"] - r["truth"] for r in results]
    held = [r["oa_interval"][0] <= r["truth"] <= r["oa_interval"][1] for r in results]
    truth = statistics.mean(r["truth"] for r in results)
    return (
        f"{group:32} truth {truth:5.1f}  reported - truth {statistics.mean(bias):+5.1f} "
        f"(sd {statistics.pstdev(bias):4.1f})  interval holds {100 * statistics.mean(held):3.0f} % of {len(results)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "scores", "tables"))
    parser.add_argument("--json", type=Path, default=Path("evidence.jsonl"))
    parser.add_argument("--first", type=int, help="first draw or seed, instead of the reported ones")
    parser.add_argument("--draws", type=int, help="number of draws")
    parser.add_argument("--methods", help="a,b: only these")
    parser.add_argument("--only", default="", help="only groups whose name contains this")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th case, from the I-th")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.what != "tables":
        use_threads(args.threads)
        cases = (accuracy_cases if args.what == "accuracy" else score_cases)(args.first, args.draws)
        part = tuple(map(int, args.part.split("/")))
        chosen = (case for case in cases if args.only in case.group)
        measure(chosen, args.json, (part[0], part[1]), args.methods.split(",") if args.methods else None)
    tables(args.json)


if __name__ == "__main__":
    main()
