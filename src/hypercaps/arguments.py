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
    from hypercaps.scene import Labels, Scene

SceneArg = Annotated[
    str,
    typer.Argument(
        metavar="SCENE",
        help="A public scene's name, a file, FILE:KEY for one array of several, or tiles of one grid: 'tiles/*.tif' in "
        "quotes, a.tif,b.tif, or @LIST with one a line.",
    ),
]
LabelsArg = Annotated[
    str | None,
    typer.Argument(metavar="LABELS", help="A file of class numbers, 0 = unlabelled; left out for a public scene."),
]
ModelArg = Annotated[Path, typer.Argument(metavar="MODEL", help="A run's model.safetensors.")]
Wavelengths = Annotated[
    Path | None,
    typer.Option(
        "--wavelengths",
        metavar="FILE",
        help="For a scene that does not know its own: a text file, one wavelength a line in nm or micrometres, and the "
        "band's width (FWHM) beside it if known.",
    ),
]
AllowRemote = Annotated[
    bool, typer.Option("--allow-remote", help="Read GeoTIFFs at http and https addresses, window by window.")
]
SplitOption = Annotated[
    Path | None, typer.Option("--split-file", metavar="F", help="Use the pixels of a run's split.npz.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Where to compute: cpu, or as torch names it, say cuda.")
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


def open_both(
    scene: str, labels: str | None, *, wavelengths: Path | None = None, allow_remote: bool = False
) -> tuple[Scene, Labels]:
    """A scene and its labels; a public scene brings its own."""
    from hypercaps import terminal
    from hypercaps.io import catalog
    from hypercaps.io.open import open_labels, open_scene

    progress = terminal.download_bar(console_out())
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=progress)
    if labels is None and scene not in catalog.names():
        raise LabelsError(
            f"no labels were given for {scene}: name a file of class numbers after it, such as "
            f"'{scene} labels.mat'; only public scenes ({', '.join(catalog.names())}) bring their own"
        )
    named = scene if labels is None else labels
    truth = open_labels(named, scene=cube, allow_remote=allow_remote, progress=progress)
    truth.check_fits(cube)
    return cube, truth


def input_files(*given: str | Path | None) -> list[Path]:
    """The files that are named by arguments, tiles and those with :KEY too, to keep results from replacing them."""
    from hypercaps.io.places import files_in

    return [path for named in given if named is not None for path in files_in(named)]


def set_threads(threads: int | None) -> None:
    if threads is not None:
        from hypercaps.training import use_threads

        use_threads(threads)
