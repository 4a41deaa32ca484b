"""Arguments and options of the command line, each defined once, and functions that convert their values.

Every command uses the same object for the same option, so that name, help and group agree everywhere.
"""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypercaps.cli.messages import console_out, remember_debug
from hypercaps.errors import LabelsError, ModelError, OutputError, SplitError

if TYPE_CHECKING:
    from hypercaps.compute.cluster.pool import Cluster
    from hypercaps.data.labels import Labels, Legend
    from hypercaps.data.scene import Scene
    from hypercaps.inference.model import TrainedModel

# The groups of --help, in this order. typer orders groups by their first option, so that the parameters of every
# command are in this order as well.
DATA, SPLIT, TRAINING, MAP, COMPUTING = PANELS = ("Data", "Labels and split", "Training", "Map", "Computing")


def _option(panel: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **options)


def _flag(panel: str, name: str, text: str, **options: Any) -> Any:
    return _option(panel, name, help=text, metavar="", show_default="off", **options)


def _refuse_devices(value: str | None) -> None:
    if value is not None:
        raise ModelError(
            "--devices was removed: train on one GPU with --device cuda; for several machines, use hypercaps map or "
            "hypercaps study --cluster"
        )


SceneArg = Annotated[
    str,
    typer.Argument(
        metavar="SCENE",
        help="Name of a public scene, a file, FILE:KEY for one array of several, or tiles of one grid: 'tiles/*.tif' "
        "in quotes, a.tif,b.tif, or @LIST for a text file with one tile per line.",
    ),
]
LabelsArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LABELS",
        help="Files of class numbers (0 = unlabelled), polygons, lines or points (FILE:LAYER for one layer of "
        "several); several files are combined.",
        show_default="those of the public scene",
    ),
]
ModelArg = Annotated[Path, typer.Argument(metavar="MODEL", help="The model.safetensors of a run.")]
SceneNameArg = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a public scene; 'hypercaps scenes' lists them.")
]
AnyFileArg = Annotated[
    str,
    typer.Argument(
        metavar="FILE_OR_NAME", help="A scene, a label file, a model, tiles, or the name of a public scene."
    ),
]
StudyArg = Annotated[
    str,
    typer.Argument(
        metavar="FILE_OR_NAME",
        help="A TOML file, or paper-methods, paper-small, paper-cost, paper-convergence, few-labels or quick.",
    ),
]

# Data
OutFolder = Annotated[
    Path, _option(DATA, "--out", metavar="DIR", help="Folder for the results; created if it does not exist.")
]
OutMap = Annotated[
    Path, _option(DATA, "--out", metavar="FILE", help="The map: .tif with class names and colours, or .png.")
]
OutPoints = Annotated[
    Path,
    _option(DATA, "--out", metavar="FILE", help="Points as .gpkg or .geojson (georeferenced scenes only), or as .csv."),
]
OutFigure = Annotated[
    Path | None, _option(DATA, "--out", metavar="FILE", help="Write a figure, as .png.", show_default="no figure")
]
Force = Annotated[bool, _flag(DATA, "--force", "Replace the run that is already in DIR.")]
Pixel = Annotated[
    str | None,
    _option(DATA, "--at", metavar="ROW,COL", help="The pixel to explain, counted from 0.", show_default="none"),
]
ClassName = Annotated[
    str | None,
    _option(
        DATA,
        "--class",
        metavar="NAME",
        help="The class to explain, by name or number: at the pixel --at, or without --at the mean over its pixels.",
        show_default="the predicted class",
    ),
]
Bands = Annotated[
    int | None,
    _option(
        DATA,
        "--bands",
        min=1,
        metavar="C",
        help="Count the parameters for C bands; needs --classes.",
        show_default="not counted",
    ),
]
Classes = Annotated[
    int | None,
    _option(
        DATA,
        "--classes",
        min=2,
        metavar="N",
        help="Count the parameters for N classes; needs --bands.",
        show_default="not counted",
    ),
]
Scenes = Annotated[
    str | None, _option(DATA, "--scenes", metavar="x,y", help="Only these scenes.", show_default="all of the study")
]
Wavelengths = Annotated[
    Path | None,
    _option(
        DATA,
        "--wavelengths",
        metavar="FILE",
        help="For a scene without wavelengths: text file with that of each band (nm or micrometres), one per line, and "
        "optionally the width (FWHM).",
        show_default="none",
    ),
]
AllowRemote = Annotated[
    bool, _flag(DATA, "--allow-remote", "Read GeoTIFFs at http and https addresses, window by window.")
]
Resample = Annotated[bool, _flag(DATA, "--resample", "Resample the scene to the model's bands if they differ.")]
Json = Annotated[bool, _flag(DATA, "--json", "Print JSON instead of a table.")]
JsonFile = Annotated[
    Path | None,
    _option(
        DATA,
        "--json",
        metavar="FILE",
        help="Also write all numbers to FILE as JSON; '-' prints JSON instead of a table.",
        show_default="no file",
    ),
]

# Labels and split
ClassField = Annotated[
    str | None,
    _option(
        SPLIT,
        "--class-field",
        metavar="NAME",
        help="Field of the polygons, lines or points that contains the class.",
        show_default="the only possible one",
    ),
]
TrainShare = Annotated[float, _option(SPLIT, "--train", metavar="SHARE", help="Share of each class used for training.")]
ValShare = Annotated[
    float,
    _option(
        SPLIT,
        "--val",
        metavar="SHARE",
        help="Share of each class used to calibrate the confidence and, in most methods, to choose the best epoch.",
    ),
]
PerClass = Annotated[
    int | None,
    _option(
        SPLIT,
        "--per-class",
        metavar="N",
        help="Train on N pixels of each class instead of a share.",
        show_default="the share --train",
    ),
]
SplitKind = Annotated[
    str,
    _option(
        SPLIT,
        "--split",
        metavar="KIND",
        help="Kind of split: random (pixels, as in the paper), polygons or blocks (of ground), each as a whole in one "
        "set; blocks have no leakage.",
    ),
]
Block = Annotated[
    int, _option(SPLIT, "--block", min=2, metavar="N", help="Side of the blocks of --split blocks, in pixels.")
]
Both = Annotated[
    bool,
    _flag(
        SPLIT,
        "--both",
        "Score with a random split and with blocks, side by side; trains a second model with the split that the first "
        "does not have.",
    ),
]
SplitOption = Annotated[
    Path | None,
    _option(
        SPLIT, "--split-file", metavar="FILE", help="Use the pixels of a run's split.npz.", show_default="not used"
    ),
]
Count = Annotated[int, _option(SPLIT, "--n", min=1, metavar="N", help="Number of pixels to suggest.")]
LabelFiles = Annotated[
    list[str] | None,
    _option(
        SPLIT,
        "--labels",
        metavar="FILE",
        help="Existing labels: no pixel is suggested on them or close to them.",
        show_default="none",
    ),
]

# Training
Method = Annotated[
    str, _option(TRAINING, "--method", metavar="NAME", help="Classification method; 'hypercaps methods' lists them.")
]
Methods = Annotated[
    str | None,
    _option(TRAINING, "--methods", metavar="a,b", help="Only these methods.", show_default="all of the study"),
]
RecipeOption = Annotated[
    str | None,
    _option(
        TRAINING,
        "--recipe",
        metavar="NAME",
        help="Training recipe; 'hypercaps methods' lists them.",
        show_default="the method's",
    ),
]
Epochs = Annotated[
    int | None,
    _option(
        TRAINING,
        "--epochs",
        metavar="N",
        help="Number of epochs; for recipe best, of the first of its two stages.",
        show_default="the recipe's",
    ),
]
BatchSize = Annotated[
    int | None,
    _option(
        TRAINING, "--batch-size", metavar="N", help="Number of pixels in a training step.", show_default="the recipe's"
    ),
]
Patch = Annotated[
    int | None,
    _option(
        TRAINING,
        "--patch",
        metavar="N",
        help="Side of the square patch around each pixel, in pixels.",
        show_default="the method's",
    ),
]
Seed = Annotated[
    int,
    _option(
        TRAINING, "--seed", min=0, max=2**32 - 1, metavar="N", help="Random seed; the same seed gives the same run."
    ),
]
Repeats = Annotated[
    int | None,
    _option(
        TRAINING,
        "--repeats",
        min=1,
        metavar="N",
        help="Train every method with the seeds 0 to N - 1.",
        show_default="the study's",
    ),
]

# Map
WithMap = Annotated[bool, _option(MAP, "--map/--no-map", metavar="", help="Map the whole scene after the training.")]
ConfidenceFile = Annotated[
    Path | None,
    _option(
        MAP,
        "--confidence",
        metavar="FILE",
        help="Also write the confidence of each pixel, as .tif.",
        show_default="not written",
    ),
]
ConfidenceDtype = Annotated[
    str,
    _option(
        MAP,
        "--confidence-dtype",
        metavar="TYPE",
        help="Number type of the confidence raster: float32, or uint8 in steps of 0.004.",
    ),
]
Probabilities = Annotated[
    bool, _flag(MAP, "--probabilities", "Also write the probability of each class, as probabilities.tif.")
]
ProbabilitiesFile = Annotated[
    Path | None,
    _option(
        MAP,
        "--probabilities",
        metavar="FILE",
        help="Also write the probability of each class, one band per class, as .tif.",
        show_default="not written",
    ),
]
Coverage = Annotated[
    float | None,
    _option(
        MAP,
        "--coverage",
        metavar="C",
        help="Also write how many classes are needed to include the true one in this share of the pixels.",
        show_default="not written",
    ),
]
Reject = Annotated[
    float | None,
    _option(
        MAP,
        "--reject",
        metavar="P",
        help="Mark pixels below this confidence as 'unsure' in the map.",
        show_default="no pixel",
    ),
]
Mask = Annotated[
    str | None,
    _option(
        MAP,
        "--mask",
        metavar="FILE",
        help="Use only pixels inside these polygons, or where this raster is not 0.",
        show_default="the whole scene",
    ),
]
Resume = Annotated[bool, _flag(MAP, "--resume", "Continue a map that was stopped or killed, if there is one.")]

# Computing
Memory = Annotated[
    str,
    _option(
        COMPUTING, "--memory", metavar="SIZE", help="Memory limit of mapping, for each process, such as 500MB or 2GB."
    ),
]
Threads = Annotated[
    int | None,
    _option(COMPUTING, "--threads", min=1, metavar="N", help="Number of processor threads.", show_default="all cores"),
]
DeviceOption = Annotated[
    str,
    _option(COMPUTING, "--device", metavar="NAME", help="Device to compute on, by torch's name, such as cpu or cuda."),
]
Devices = Annotated[str | None, typer.Option("--devices", hidden=True, callback=_refuse_devices)]
Precision = Annotated[
    str, _option(COMPUTING, "--precision", metavar="NAME", help="Precision of matrix products: float32 or bfloat16.")
]
Workers = Annotated[
    int,
    _option(
        COMPUTING, "--workers", min=1, metavar="N", help="Number of processes on this machine; they share its cores."
    ),
]
ClusterOption = Annotated[
    str | None,
    _option(
        COMPUTING,
        "--cluster",
        metavar="ADDRESS",
        help="Compute on the dask cluster whose scheduler has this address.",
        show_default="this machine",
    ),
]
Budget = Annotated[
    float | None,
    _option(
        COMPUTING,
        "--budget",
        metavar="MINUTES",
        help="Stop after this time; the same command continues later.",
        show_default="no limit",
    ),
]
Debug = Annotated[
    bool,
    _flag(COMPUTING, "--debug", "Show the traceback of an error.", callback=remember_debug, is_eager=True),
]


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
        if _given(ctx, option) and _given(ctx, other):
            one, two = (f"--{name.replace('_', '-')}" for name in (option, other))
            raise SplitError(f"{one} and {two} were both given, and {one} makes {two} meaningless: give one of them")


def refuse_without(ctx: typer.Context, option: str, other: str) -> None:
    """Refuse an option that has no meaning without another one."""
    if _given(ctx, option):
        raise SplitError(f"--{option.replace('_', '-')} has no meaning without {other}: give both, or neither")


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
    """Open a scene and its labels, or those of a public scene; ``legend`` gives the numbers of a model's classes."""
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
    """The scene with the model's bands: resampled if requested, otherwise checked."""
    from hypercaps.errors import warn_data

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
