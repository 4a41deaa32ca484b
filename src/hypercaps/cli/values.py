"""From values of options to objects (scenes, labels, sizes, clusters), and which options exclude each other."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hypercaps.cli.messages import console_out, plain
from hypercaps.errors import LabelsError, OutputError, SplitError, warn_data

if TYPE_CHECKING:
    from hypercaps.compute.cluster.pool import Cluster
    from hypercaps.data.labels import Labels, Legend
    from hypercaps.data.scene import Scene
    from hypercaps.inference.model import TrainedModel


STDOUT = Path("-")


def listed(text: str | None) -> list[str] | None:
    """a,b -> [a, b]"""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def command_line() -> str:
    """The command line as typed, for the report."""
    return shlex.join(["hypercaps", *sys.argv[1:]])


def memory_bytes(text: str) -> int:
    """500MB, 1.5 GB, 2g -> bytes"""
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if match is None or not (size := int(float(match[1]) * units[match[2]])) >= 10**6:
        raise OutputError(f"memory is {text!r}: a size such as 500MB or 2GB is expected")
    return size


def refuse_together(ctx: typer.Context, option: str, others: tuple[str, ...]) -> None:
    """Refuse an option together with another one that makes it meaningless."""
    for other in others:
        if is_given(ctx, option) and is_given(ctx, other):
            one, two = (f"--{name.replace('_', '-')}" for name in (option, other))
            raise SplitError(f"{one} and {two} were both given, and {one} makes {two} meaningless: give one of them")


def refuse_without(ctx: typer.Context, option: str, other: str) -> None:
    """Refuse an option that has no meaning without another one."""
    if is_given(ctx, option):
        raise SplitError(f"--{option.replace('_', '-')} has no meaning without {other}: give both, or neither")


def refuse_with(ctx: typer.Context, option: str, other: str) -> None:
    """Refuse an option that has no meaning together with another one."""
    if is_given(ctx, option):
        raise SplitError(f"--{option.replace('_', '-')} has no meaning with {other}: leave one of them out")


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option was typed, with any value."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def open_cube(scene: str, wavelengths: Path | None, allow_remote: bool) -> Scene:
    """Open a scene, with a progress bar if it is downloaded."""
    from hypercaps.cli import progress
    from hypercaps.io.open import open_scene

    download = progress.download_bar(console_out())
    return open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)


def open_truth(
    scene: str,
    labels: list[str] | None,
    cube: Scene,
    class_field: str | None,
    allow_remote: bool,
    legend: Legend | None = None,
) -> Labels:
    """Open the labels of a scene, or those of a public scene; ``legend`` gives the numbers of a model's classes."""
    from hypercaps.cli import progress
    from hypercaps.io import catalog
    from hypercaps.io.open import open_labels

    if not labels and scene not in catalog.names():
        raise LabelsError(
            f"no labels were given for {scene}: name a file of class numbers after it, such as "
            f"'{scene} labels.mat'; only public scenes ({', '.join(catalog.names())}) bring their own"
        )
    truth = open_labels(
        labels or scene,
        scene=cube,
        class_field=class_field,
        legend=legend,
        allow_remote=allow_remote,
        progress=progress.download_bar(console_out()),
    )
    truth.check_fits(cube)
    return truth


def write_or_print_json(json_file: Path, content: object) -> None:
    """Write ``content`` to a file as JSON, or print it if the file is '-'."""
    from hypercaps.io.writers.atomic import write_json

    if json_file == STDOUT:
        typer.echo(json.dumps(content, indent=2, allow_nan=False))
    else:
        write_json(json_file, content)
        console_out().print(f"wrote {plain(json_file)}", soft_wrap=True)


def with_bands_of(model: TrainedModel, scene: Scene, resample: bool) -> Scene:
    """The scene with the model's bands: resampled if requested, otherwise checked."""
    if resample:
        return model.resampled(scene)
    model.check_fits(scene)
    if model.wavelengths is not None and scene.wavelengths is None:
        warn_data(
            f"scene {scene.name!r} has no wavelengths: its {scene.bands} bands are assumed to be those of the model"
        )
    return scene


def cluster_of(
    address: str | None, workers: int = 1, threads: int | None = None
) -> AbstractContextManager[Cluster | None]:
    """A running cluster, processes on this machine, or None for this process alone."""
    if address is None and workers == 1:
        return nullcontext()
    from hypercaps.compute.cluster.pool import Cluster

    return Cluster(address, workers=workers if address is None else None, threads=threads)


def set_threads(threads: int | None) -> None:
    if threads is not None:
        from hypercaps.compute.devices import use_threads

        use_threads(threads)
