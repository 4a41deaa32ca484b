"""From values of options to objects (scenes, labels, sizes, clusters), and which options exclude each other."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hypercaps.cli import events
from hypercaps.cli.messages import console_err, say_written
from hypercaps.errors import LabelsError, OutputError, SceneError, SplitError, warn_data

if TYPE_CHECKING:
    from hypercaps.compute.cluster.pool import Cluster
    from hypercaps.data.labels import Labels, Legend
    from hypercaps.data.scene import Scene
    from hypercaps.inference.model import TrainedModel
    from hypercaps.inference.scene_shift import PreparedScene


STDOUT = Path("-")
_STDOUT_NAMES = frozenset(map(Path, ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")))


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


@dataclass(frozen=True)
class CommandOptions:
    """The options of a command by name: their values, and which of them were typed."""

    values: Mapping[str, Any]
    typed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, ctx: typer.Context) -> CommandOptions:
        sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
        typed = (name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
        parameters = {parameter.name: parameter for parameter in ctx.command.params if parameter.name}
        values = {name: _as_annotated(value, parameters.get(name)) for name, value in ctx.params.items()}
        defaults = {name: parameter.get_default(ctx) for name, parameter in parameters.items()}
        return cls(values, frozenset(typed), defaults)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


def _as_annotated(value: Any, parameter: Any) -> Any:
    """The value that a command gets: before 0.29, typer makes paths and lists only when it calls the command."""
    if isinstance(value, tuple):
        return list(value)
    is_path = getattr(getattr(parameter, "type", None), "name", None) == "path"
    return Path(value) if is_path and isinstance(value, str) else value


def refuse_together(options: CommandOptions, option: str, others: tuple[str, ...]) -> None:
    """Refuse an option if another one that makes it meaningless was given."""
    for other in others:
        if {option, other} <= options.typed:
            one, two = (f"--{name.replace('_', '-')}" for name in (option, other))
            raise SplitError(f"{one} and {two} were both given, and {one} makes {two} meaningless: give one of them")


def refuse_without(options: CommandOptions, option: str, other: str) -> None:
    """Refuse an option that has no meaning without another one."""
    if option in options.typed:
        raise SplitError(f"--{option.replace('_', '-')} has no meaning without {other}: give both, or neither")


def refuse_with(options: CommandOptions, option: str, other: str) -> None:
    """Refuse an option that has no meaning together with another one."""
    if option in options.typed:
        raise SplitError(f"--{option.replace('_', '-')} has no meaning with {other}: leave one of them out")


def check_device(options: CommandOptions) -> None:
    """Refuse a device or a precision that was typed and can't be used."""
    if {"device", "precision"} & options.typed:
        from hypercaps.compute.devices import Device  # imports torch

        Device(options["device"], options["precision"])


def open_cube(scene: str, wavelengths: Path | None, allow_remote: bool, *, quiet: bool = False) -> Scene:
    """Open a scene, with a progress bar if it is downloaded."""
    from hypercaps.io.open import open_scene

    bar = _download_bar(quiet=quiet)
    return open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=bar)


def _download_bar(*, quiet: bool) -> Callable[[str, int], object]:
    """A function that makes the bar of a download; rich is imported when there is one."""

    def bar(name: str, size: int) -> object:
        from hypercaps.cli import progress

        return progress.download_bar(console_err(quiet=quiet))(name, size)

    return bar


def open_truth(
    scene: str,
    labels: list[str] | None,
    cube: Scene,
    class_field: str | None,
    allow_remote: bool,
    legend: Legend | None = None,
    *,
    quiet: bool = False,
) -> Labels:
    """Open the labels of a scene, or those of a public scene; ``legend`` gives the numbers of a model's classes."""
    from hypercaps.io import catalog
    from hypercaps.io.open import open_labels

    if not labels and scene not in catalog.names():
        raise LabelsError(
            f"no labels were given for {scene}: name a file of class numbers, polygons or points after it, such "
            f"as '{scene} labels.gpkg'; only public scenes ({', '.join(catalog.names())}) bring their own"
        )
    truth = open_labels(
        labels or scene,
        scene=cube,
        class_field=class_field,
        legend=legend,
        allow_remote=allow_remote,
        progress=_download_bar(quiet=quiet),
    )
    truth.check_fits(cube)
    return truth


def checked_adaptation(how: str) -> str:
    """Refuse an unknown adaptation before anything is read."""
    from hypercaps.data.adaptation import check_mode

    check_mode(how)
    return how


def checked_progress(how: str) -> str:
    """Refuse an unknown way to show progress before anything is read."""
    if how not in events.MODES:
        raise OutputError(f"progress is {how!r}: {' or '.join(events.MODES)} is expected")
    return how


def stdout_as_dash(path: Path | None) -> Path | None:
    """Give the standard output one name."""
    return STDOUT if path in _STDOUT_NAMES else path


def check_json_file(path: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse a file or stream for JSON that can't be written, or a file that is an input."""
    from hypercaps.io.writers.atomic import check_output
    from hypercaps.io.writers.streams import check_stream, is_stream

    if path is None or path == STDOUT:
        return
    if is_stream(path):
        check_stream(path)
    else:
        check_output(path, inputs=inputs)


def write_or_print_json(json_file: Path, content: object, *, quiet: bool = False) -> None:
    """Write ``content`` to a file or stream as JSON, and say so unless ``quiet``; or print it if the file is '-'."""
    from hypercaps.io.writers.atomic import write_json
    from hypercaps.io.writers.streams import is_stream, write_stream

    text = json.dumps(content, indent=2, allow_nan=False)
    if json_file == STDOUT:
        typer.echo(text)
    elif is_stream(json_file):
        write_stream(json_file, f"{text}\n".encode())
    else:
        write_json(json_file, content)
        if not quiet:
            say_written(json_file)


def prepare_for(
    model: TrainedModel, scene: Scene, resample: bool, adapt: str = "auto", *, typed: bool = False
) -> PreparedScene:
    """The scene as the model is to see it; what differs from the training scene is printed as warnings.

    An adaptation that was typed is refused where it can't be done; the default then changes nothing.
    """
    from hypercaps.inference.scene_shift import prepare_scene

    prepared = prepare_scene(model, scene, adapt, resample=resample)
    if prepared.unchecked and typed and adapt != "none":
        raise SceneError(
            f"--adapt {adapt} needs a comparison of scene {scene.name!r} with the training scene, which can't be made "
            f"({prepared.unchecked}): leave it out"
        )
    _warn_of_wavelengths(model, scene)
    return prepared


def with_bands_of(model: TrainedModel, scene: Scene, resample: bool) -> Scene:
    """The scene with the model's bands: resampled if requested, otherwise checked."""
    if resample:
        return model.resampled(scene)
    model.check_fits(scene)
    _warn_of_wavelengths(model, scene)
    return scene


def _warn_of_wavelengths(model: TrainedModel, scene: Scene) -> None:
    if model.wavelengths is not None and scene.wavelengths is None:
        warn_data(
            f"scene {scene.name!r} has no wavelengths: its {scene.bands} bands are assumed to be those of the model"
        )


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
