"""What commands take: their arguments and options in words, and what is made of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypercaps.errors import LabelsError, SplitError
from hypercaps.messages import console_out, remember_debug

if TYPE_CHECKING:
    from hypercaps.modelfile import TrainedModel
    from hypercaps.scene import Labels, Scene

SceneArg = Annotated[
    str,
    typer.Argument(metavar="SCENE", help="A public scene's name, a file, or FILE:KEY for one array of several."),
]
LabelsArg = Annotated[
    str | None,
    typer.Argument(metavar="LABELS", help="A file of class numbers, 0 = unlabelled; left out for a public scene."),
]
ModelArg = Annotated[Path, typer.Argument(metavar="MODEL", help="A run's model.safetensors.")]
SplitOption = Annotated[
    Path | None, typer.Option("--split-file", metavar="F", help="Use the pixels of a run's split.npz.")
]
Resample = Annotated[bool, typer.Option("--resample", help="Bring the scene to the model's bands where it has others.")]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Where to compute: cpu, or as torch names it, say cuda.")
]
Devices = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Processes, with --device cuda GPUs, that share each step; see docs/devices.md."
    ),
]
Precision = Annotated[str, typer.Option(metavar="NAME", help="Of the products: float32 or bfloat16.")]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Processor threads; all cores if left out.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", callback=remember_debug, is_eager=True),
]


def listed(text: str | None) -> list[str] | None:
    """a,b -> [a, b]"""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def command_line() -> str:
    """What the user typed, for the page of a study."""
    return shlex.join(["hypercaps", *sys.argv[1:]])


def refuse_together(ctx: typer.Context, option: str, others: tuple[str, ...]) -> None:
    """An option that another one makes meaningless is not dropped in silence."""

    def given(name: str) -> bool:
        source = ctx.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    for other in others:
        if given(option) and given(other):
            one, two = (f"--{name.replace('_', '-')}" for name in (option, other))
            raise SplitError(f"{one} and {two} were both given, and {one} leaves nothing to {two}: give one of them")


def open_both(scene: str, labels: str | None) -> tuple[Scene, Labels]:
    """A scene and its labels; a public scene brings its own."""
    from hypercaps import terminal
    from hypercaps.io import catalog
    from hypercaps.io.open import open_labels, open_scene

    progress = terminal.download_bar(console_out())
    cube = open_scene(scene, progress=progress)
    if labels is None and scene not in catalog.names():
        raise LabelsError(
            f"no labels were given for {scene}: name a file of class numbers after it, such as "
            f"'{scene} labels.mat'; only public scenes ({', '.join(catalog.names())}) bring their own"
        )
    truth = open_labels(scene if labels is None else labels, scene=cube, progress=progress)
    truth.check_fits(cube)
    return cube, truth


def with_bands_of(model: TrainedModel, scene: Scene, resample: bool) -> Scene:
    """The scene as the model can use it: resampled if that was asked for, otherwise as it is or refused."""
    from hypercaps.io.stored import tell

    if resample:
        return model.resampled(scene)
    model.check_fits(scene)
    if model.wavelengths is not None and scene.wavelengths is None:
        tell(f"scene {scene.name!r} has no wavelengths: its {scene.bands} bands are taken for those of the model")
    return scene


def input_files(*given: str | Path | None) -> list[Path]:
    """The files that are named by arguments, with and without :KEY, to keep results from replacing them."""
    specs = [str(spec) for spec in given if spec is not None]
    return [Path(spec).expanduser() for text in specs for spec in (text, text.rpartition(":")[0]) if spec]


def set_threads(threads: int | None) -> None:
    if threads is not None:
        from hypercaps.training import use_threads

        use_threads(threads)
