"""The command ``hypercaps explain``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_out, say_written
from hypercaps.cli.root import app
from hypercaps.cli.values import STDOUT, check_json_file, open_cube, set_threads, with_bands_of, write_or_print_json
from hypercaps.errors import SceneError

if TYPE_CHECKING:
    from hypercaps.inference.explain import Explanation


@app.command(epilog="Example:  hypercaps explain runs/first/model.safetensors cube.mat --at 70,70 --out why.png")
def explain(
    model: opt.ModelArg,
    scene: opt.SceneArg,
    *,
    out: opt.OutFigure = None,
    json_file: opt.JsonFile = None,
    at: opt.Pixel = None,
    class_name: opt.ClassName = None,
    wavelengths: opt.Wavelengths = None,
    allow_remote: opt.AllowRemote = False,
    resample: opt.Resample = False,
    threads: opt.Threads = None,
    debug: opt.Debug = False,
) -> None:
    """Show which bands a class capsule responded to.

    For the class of one pixel (--at), or as a mean over the pixels of a class
    (--class). Also checks whether these bands matter: how much shorter the
    capsule is without them. See docs/explain.md.
    """
    from hypercaps.inference.explain import explain_at, explain_class, find_class
    from hypercaps.io.inputs import input_files
    from hypercaps.loading import load_model

    _check_outputs(out, json_file, input_files(model, scene, wavelengths))
    if at is None and class_name is None:
        raise SceneError("there is nothing to explain: name a pixel (--at ROW,COL) or a class (--class NAME)")
    pixel = None if at is None else _pixel(at)
    trained = load_model(model).model_
    label = None if class_name is None else find_class(trained, class_name)
    cube = with_bands_of(trained, open_cube(scene, wavelengths, allow_remote), resample)
    set_threads(threads)
    if pixel is not None:
        explanation = explain_at(trained, cube, *pixel, label=label)
    else:
        assert label is not None  # because a pixel or a class was given
        explanation = explain_class(trained, cube, label)
    _show(explanation, out, json_file)


def _check_outputs(out: Path | None, json_file: Path | None, inputs: list[Path]) -> None:
    from hypercaps.io.writers.atomic import check_output

    if out is not None:
        check_output(out, {".png"}, inputs=inputs)
    check_json_file(json_file, inputs if out is None else [*inputs, out])


def _show(explanation: Explanation, out: Path | None, json_file: Path | None) -> None:
    """Write the figure and the JSON file, all or nothing, and print the table, or the JSON in its place."""
    from hypercaps.cli import tables
    from hypercaps.io.writers.atomic import write_files
    from hypercaps.io.writers.streams import is_stream

    content, files = explanation.describe(), {}
    if out is not None:
        from hypercaps.report.plots import attribution_picture

        files[out] = attribution_picture(explanation)
    stream = json_file if json_file == STDOUT or (json_file is not None and is_stream(json_file)) else None
    if json_file is not None and stream is None:
        files[json_file] = (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()
    write_files(files)
    if stream is not None:
        write_or_print_json(stream, content)
    if json_file == STDOUT:
        return
    tables.print_explanation(console_out(), explanation)
    for path in files:
        say_written(path)


def _pixel(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(-?\d+)\s*,\s*(-?\d+)\s*", text)
    if match is None:
        raise SceneError(f"--at is {text!r}: a row and a column, counted from 0, are expected, such as 70,12")
    return int(match[1]), int(match[2])
