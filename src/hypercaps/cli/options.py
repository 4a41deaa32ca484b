"""What commands take: their arguments and options in words, and what is made of them."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypercaps.cli.messages import console_out, remember_debug
from hypercaps.errors import LabelsError, OutputError, SplitError

if TYPE_CHECKING:
    from hypercaps.compute.cluster.pool import Cluster
    from hypercaps.data.labels import Labels, Legend
    from hypercaps.data.scene import Scene
    from hypercaps.inference.model import TrainedModel

SceneArg = Annotated[
    str,
    typer.Argument(
        metavar="SCENE",
        help="A public scene's name, a file, FILE:KEY for one array of several, or tiles of one grid: 'tiles/*.tif' in "
        "quotes, a.tif,b.tif, or @LIST with one a line.",
    ),
]
LabelsArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LABELS",
        help="Files of class numbers, 0 = unlabelled, or of polygons, lines or points (FILE:LAYER for one layer of "
        "several); several add up. Left out for a public scene.",
    ),
]
ClassField = Annotated[
    str | None,
    typer.Option("--class-field", metavar="NAME", help="The field of polygons, lines or points that holds the class."),
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
Block = Annotated[
    int, typer.Option("--block", min=2, metavar="N", help="Side of the blocks of --split blocks, in pixels.")
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
Memory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="Memory that mapping keeps to, each process of it, as in 500MB or 2GB."),
]
ConfidenceDtype = Annotated[
    str, typer.Option(metavar="TYPE", help="Of the confidence raster: float32, or uint8 in steps of 0.004.")
]
Coverage = Annotated[
    float | None,
    typer.Option(
        metavar="C", help="Also write how many classes it takes to hold the true one in this share of pixels."
    ),
]
Reject = Annotated[
    float | None, typer.Option(metavar="P", help="Call pixels below this confidence 'unsure' in the map.")
]
Mask = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Map only what lies inside polygons, or where a raster is not 0."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Have it done by the dask cluster whose scheduler is there."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of an error.", callback=remember_debug, is_eager=True),
]


def listed(text: str | None) -> list[str] | None:
    """a,b -> [a, b]"""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def command_line() -> str:
    """What the user typed, for a page that says how to repeat it."""
    return shlex.join(["hypercaps", *sys.argv[1:]])


def memory_bytes(text: str) -> int:
    """500MB, 1.5 GB, 2g -> bytes"""
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if match is None or not (size := int(float(match[1]) * units[match[2]])) >= 10**6:
        raise OutputError(f"memory is {text!r}: a size such as 500MB or 2GB is expected")
    return size


def refuse_together(ctx: typer.Context, option: str, others: tuple[str, ...]) -> None:
    """An option that another one makes meaningless is not dropped in silence."""
    for other in others:
        if _given(ctx, option) and _given(ctx, other):
            one, two = (f"--{name.replace('_', '-')}" for name in (option, other))
            raise SplitError(f"{one} and {two} were both given, and {one} leaves nothing to {two}: give one of them")


def refuse_without(ctx: typer.Context, option: str, other: str) -> None:
    """Nor is one that means nothing without another, which was not given."""
    if _given(ctx, option):
        raise SplitError(f"--{option.replace('_', '-')} means nothing without {other}: give both, or neither")


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def open_both(
    scene: str,
    labels: list[str] | None,
    class_field: str | None = None,
    *,
    legend: Legend | None = None,
    wavelengths: Path | None = None,
    allow_remote: bool = False,
) -> tuple[Scene, Labels]:
    """A scene and its labels; a public scene brings its own. A model's legend says which names it knows."""
    from hypercaps.cli import progress
    from hypercaps.io import catalog
    from hypercaps.io.open import open_labels, open_scene

    download = progress.download_bar(console_out())
    cube = open_scene(scene, wavelengths=wavelengths, allow_remote=allow_remote, progress=download)
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
        progress=download,
    )
    truth.check_fits(cube)
    return cube, truth


def with_bands_of(model: TrainedModel, scene: Scene, resample: bool) -> Scene:
    """The scene as the model can use it: resampled if that was asked for, otherwise as it is or refused."""
    from hypercaps.errors import warn_data

    if resample:
        return model.resampled(scene)
    model.check_fits(scene)
    if model.wavelengths is not None and scene.wavelengths is None:
        warn_data(f"scene {scene.name!r} has no wavelengths: its {scene.bands} bands are taken for those of the model")
    return scene


def cluster_of(
    address: str | None, workers: int = 1, threads: int | None = None
) -> AbstractContextManager[Cluster | None]:
    """Those who do the work: a cluster that is there, processes on this machine, or None: this process alone."""
    if address is None and workers == 1:
        return nullcontext()
    from hypercaps.compute.cluster.pool import Cluster

    return Cluster(address, workers=workers if address is None else None, threads=threads)


def set_threads(threads: int | None) -> None:
    if threads is not None:
        from hypercaps.compute.devices import use_threads

        use_threads(threads)
