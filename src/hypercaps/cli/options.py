"""Arguments and options that several commands share, each defined once; the options of training are in train.py.

Every command uses the same object for the same option, so that name, help and group agree everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hypercaps.cli.messages import remember_debug
from hypercaps.cli.values import checked_adaptation, checked_progress, stdout_as_dash
from hypercaps.errors import ModelError

# The groups of --help, in this order. typer orders groups by their first option, so that the parameters of every
# command are in this order as well.
DATA, SPLIT, TRAINING, MAP, COMPUTING = PANELS = ("Data", "Labels and split", "Training", "Map", "Computing")


def argument(metavar: str, text: str, default: str | bool = True, **callback: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=default, **callback)


def option(panel: str, name: str, metavar: str, text: str, default: str | bool = True, **checks: Any) -> Any:
    """``default`` describes a default that is None."""
    return typer.Option(name, metavar=metavar, help=text, show_default=default, rich_help_panel=panel, **checks)


def flag(panel: str, name: str, text: str, **callback: Any) -> Any:
    return option(panel, name, "", text, "off", **callback)


def _refuse_devices(value: str | None) -> None:
    if value is not None:
        raise ModelError(
            "--devices was removed: train on one GPU with --device cuda; for several machines, use hypercaps map or "
            "hypercaps study --cluster"
        )


def model_of_run_folder(value: Path | str) -> Path | str:
    """The model of a run where its folder is named; other values as they are."""
    model = Path(value) / "model.safetensors"
    return type(value)(model) if model.is_file() else value


SCENE_TEXT = (
    "Name of a public scene, a file, FILE:KEY for one array of several, or tiles of one grid: 'tiles/*.tif' in quotes, "
    "a.tif,b.tif, or @LIST for a text file with one tile per line."
)
SceneArg = Annotated[
    str,
    argument(
        "SCENE",
        SCENE_TEXT,
    ),
]
ComparedSceneArg = Annotated[
    str | None, argument("SCENE", "With a model: a scene to compare with its training scene.", "(none)")
]
NewSceneArg = Annotated[
    str | None,
    argument("SCENE", f"{SCENE_TEXT} Not needed with --resume.", False),
]
LabelsArg = Annotated[
    list[str] | None,
    argument(
        "LABELS",
        "Files of class numbers (0 = unlabelled), polygons, lines or points (FILE:LAYER for one layer of "
        "several); several files are combined.",
        "those of the public scene",
    ),
]
ModelArg = Annotated[Path, argument("MODEL", "A run's folder, or its model.safetensors.", callback=model_of_run_folder)]
SceneNameArg = Annotated[str, argument("NAME", "Name of a public scene; 'hypercaps scenes' lists them.")]
AnyFileArg = Annotated[
    str,
    argument(
        "FILE_OR_NAME",
        "A scene, a label file, a model, a run's folder, tiles, or the name of a public scene.",
        callback=model_of_run_folder,
    ),
]
StudyArg = Annotated[
    str,
    argument(
        "FILE_OR_NAME",
        "A TOML file, or paper-methods, paper-small, paper-cost, paper-convergence, few-labels or quick.",
    ),
]

# Data
OutFolder = Annotated[Path, option(DATA, "--out", "DIR", "Folder for the results; created if it does not exist.")]
NewOutFolder = Annotated[
    Path | None,
    option(
        DATA, "--out", "DIR", "Folder for the results; created if it does not exist.", "needed, except with --resume"
    ),
]
ResumeTraining = Annotated[
    Path | None,
    option(
        DATA,
        "--resume",
        "DIR",
        "Continue the training that was stopped in this folder, with the options it was started with.",
        "a new training",
    ),
]
OutMap = Annotated[Path, option(DATA, "--out", "FILE", "The map: .tif with class names and colours, or .png.")]
OutPoints = Annotated[
    Path, option(DATA, "--out", "FILE", "Points as .gpkg or .geojson (georeferenced scenes only), or as .csv.")
]
OnnxFile = Annotated[Path, option(DATA, "--onnx", "FILE", "The ONNX file to write, .onnx.")]
OutFigure = Annotated[Path | None, option(DATA, "--out", "FILE", "Write a figure, as .png.", "no figure")]
Force = Annotated[bool, flag(DATA, "--force", "Replace the run that is already in DIR.")]
Pixel = Annotated[str | None, option(DATA, "--at", "ROW,COL", "The pixel to explain, counted from 0.", "none")]
ClassName = Annotated[
    str | None,
    option(
        DATA,
        "--class",
        "NAME",
        "The class to explain, by name or number: at the pixel --at, or without --at the mean over its pixels.",
        "the predicted class",
    ),
]
Bands = Annotated[
    int | None,
    option(DATA, "--bands", "C", "Count the parameters for C bands; needs --classes.", "not counted", min=1),
]
Classes = Annotated[
    int | None,
    option(DATA, "--classes", "N", "Count the parameters for N classes; needs --bands.", "not counted", min=2),
]
Scenes = Annotated[str | None, option(DATA, "--scenes", "x,y", "Only these scenes.", "all of the study")]
Wavelengths = Annotated[
    Path | None,
    option(
        DATA,
        "--wavelengths",
        "FILE",
        "For a scene without wavelengths: text file with that of each band (nm or micrometres), one per line, and"
        " optionally the width (FWHM).",
        "none",
    ),
]
AllowRemote = Annotated[
    bool, flag(DATA, "--allow-remote", "Read GeoTIFFs at http and https addresses, window by window.")
]
Resample = Annotated[bool, flag(DATA, "--resample", "Resample the scene to the model's bands if they differ.")]
Adapt = Annotated[
    str,
    option(
        DATA,
        "--adapt",
        "HOW",
        "Adapt a scene that differs from the training scene: auto (units, light, calibration), mean, standardise or "
        "none.",
        callback=checked_adaptation,
    ),
]
Json = Annotated[bool, flag(DATA, "--json", "Print JSON instead of a table.")]
Verbose = Annotated[
    bool,
    flag(
        DATA,
        "--verbose",
        "Also list all that is in the file, how it is read and with which versions, for a report of a file that is not "
        "read as it should be. No pixel is printed.",
    ),
]
JsonFile = Annotated[
    Path | None,
    option(
        DATA,
        "--json",
        "FILE",
        "Also write all numbers to FILE as JSON; '-' prints JSON instead of a table.",
        "no file",
        callback=stdout_as_dash,
    ),
]

# Labels and split
ClassField = Annotated[
    str | None,
    option(
        SPLIT,
        "--class-field",
        "NAME",
        "Field of the polygons, lines or points that contains the class.",
        "the only possible one",
    ),
]
TrainShare = Annotated[float, option(SPLIT, "--train", "SHARE", "Share of each class used for training.")]
ValShare = Annotated[
    float,
    option(
        SPLIT,
        "--val",
        "SHARE",
        "Share of each class used to calibrate the confidence and, in most methods, to choose the best epoch.",
    ),
]
PerClass = Annotated[
    int | None,
    option(SPLIT, "--per-class", "N", "Train on N pixels of each class instead of a share.", "the share --train"),
]
SplitKind = Annotated[
    str | None,
    option(
        SPLIT,
        "--split",
        "KIND",
        "How labels are tested: folds (whole polygons, areas or tiles are held out in turn, and the final model is "
        "trained on all labels), none (all labels train, no score), random (pixels, as in the paper), polygons or "
        "blocks (of ground; no leakage).",
        "folds; random for a public scene's labels, and with --train, --val or --per-class",
    ),
]
FoldsOption = Annotated[
    int | None, option(SPLIT, "--folds", "N", "Number of folds of --split folds.", "5, or fewer for few labels")
]
Block = Annotated[
    int,
    option(
        SPLIT, "--block", "N", "Side of the blocks of a block split, and of pieces of areas in folds, in pixels.", min=2
    ),
]
Both = Annotated[
    bool,
    flag(
        SPLIT,
        "--both",
        "Score with a random split and with blocks, side by side; trains a second model with the split that the "
        "first does not have.",
    ),
]
SplitOption = Annotated[
    Path | None, option(SPLIT, "--split-file", "FILE", "Use the pixels of a run's split.npz.", "not used")
]
Count = Annotated[int, option(SPLIT, "--n", "N", "Number of pixels to suggest.", min=1)]
LabelFiles = Annotated[
    list[str] | None,
    option(
        SPLIT, "--labels", "FILE", "Existing labels: none of them is suggested, and points keep away from them.", "none"
    ),
]

# Training
Methods = Annotated[str | None, option(TRAINING, "--methods", "a,b", "Only these methods.", "all of the study")]
Repeats = Annotated[
    int | None,
    option(TRAINING, "--repeats", "N", "Train every method with the seeds 0 to N - 1.", "the study's", min=1),
]

# Map
WithMap = Annotated[bool, option(MAP, "--map/--no-map", "", "Map the whole scene after the training.")]
ConfidenceFile = Annotated[
    Path | None,
    option(MAP, "--confidence", "FILE", "Also write the confidence of each pixel, as .tif.", "not written"),
]
ConfidenceDtype = Annotated[
    str,
    option(
        MAP, "--confidence-dtype", "TYPE", "Number type of the confidence raster: float32, or uint8 in steps of 0.004."
    ),
]
Probabilities = Annotated[
    bool, flag(MAP, "--probabilities", "Also write the probability of each class, as probabilities.tif.")
]
ProbabilitiesFile = Annotated[
    Path | None,
    option(
        MAP,
        "--probabilities",
        "FILE",
        "Also write the probability of each class, one band per class, as .tif.",
        "not written",
    ),
]
Coverage = Annotated[
    float | None,
    option(
        MAP,
        "--coverage",
        "C",
        "Also write the size of the conformal prediction set at this coverage, as a share from 0 to 1.",
        "not written",
    ),
]
Reject = Annotated[
    float | None, option(MAP, "--reject", "P", "Mark pixels below this confidence as 'unsure' in the map.", "no pixel")
]
FamiliarityFile = Annotated[
    Path | None,
    option(
        MAP,
        "--familiarity",
        "FILE",
        "Also write the similarity of each pixel to the labelled ground, 0 to 1, as .tif.",
        "not written",
    ),
]
Unknown = Annotated[
    float | None,
    option(
        MAP,
        "--unknown",
        "P",
        "Mark ground unlike any label as 'unknown' in the map; a share P of known ground is lost by it.",
        "no pixel",
    ),
]
Mask = Annotated[
    str | None,
    option(
        MAP,
        "--mask",
        "FILE",
        "Only pixels inside these polygons, or where this raster is not 0.",
        "the whole scene",
    ),
]
Resume = Annotated[bool, flag(MAP, "--resume", "Continue a map that was stopped or killed, if there is one.")]

# Computing
Memory = Annotated[
    str, option(COMPUTING, "--memory", "SIZE", "Memory limit of mapping, for each process, such as 500MB or 2GB.")
]
_MOST_THREADS = 1024  # more than any processor has; hundreds of thousands use up what the system allows a user
Threads = Annotated[
    int | None,
    option(COMPUTING, "--threads", "N", "Number of processor threads.", "all cores", min=1, max=_MOST_THREADS),
]
DeviceOption = Annotated[
    str, option(COMPUTING, "--device", "NAME", "Device to compute on, by torch's name, such as cpu or cuda.")
]
Devices = Annotated[str | None, typer.Option("--devices", hidden=True, callback=_refuse_devices)]
Precision = Annotated[
    str, option(COMPUTING, "--precision", "NAME", "Precision of matrix products: float32 or bfloat16.")
]
Workers = Annotated[
    int, option(COMPUTING, "--workers", "N", "Number of processes on this machine; they share its cores.", min=1)
]
ClusterOption = Annotated[
    str | None,
    option(
        COMPUTING,
        "--cluster",
        "ADDRESS",
        "Compute on the dask cluster whose scheduler has this address.",
        "this machine",
    ),
]
Budget = Annotated[
    float | None,
    option(COMPUTING, "--budget", "MINUTES", "Stop after this time; the same command continues later.", "no limit"),
]
ProgressMode = Annotated[
    str,
    option(
        COMPUTING,
        "--progress",
        "HOW",
        "How progress and messages are shown: auto (bars on a terminal, else lines), or json: objects on stderr, one "
        "per line, for programs.",
        callback=checked_progress,
    ),
]
Quiet = Annotated[bool, flag(COMPUTING, "--quiet", "Show no progress, and one line of result; warnings stay.")]
Debug = Annotated[
    bool, flag(COMPUTING, "--debug", "Show the traceback of an error.", callback=remember_debug, is_eager=True)
]
