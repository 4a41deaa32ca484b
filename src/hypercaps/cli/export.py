"""The command ``hypercaps export``."""

from __future__ import annotations

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_out, plain
from hypercaps.cli.root import app


@app.command(epilog="Example:  hypercaps export runs/first --onnx model.onnx")
def export(model: opt.ModelArg, *, onnx: opt.OnnxFile, debug: opt.Debug = False) -> None:
    """Write a model as an ONNX file, which other programs can run without hypercaps.

    Whitening, network and calibration are one graph, from patches in the scene's
    units to probabilities. See docs/onnx.md.
    """
    from hypercaps.inference.onnx_file import to_onnx
    from hypercaps.io.inputs import input_files
    from hypercaps.io.writers.atomic import check_output, write_bytes
    from hypercaps.io.writers.folders import folders_for
    from hypercaps.loading import load_model

    check_output(onnx, (".onnx",), inputs=input_files(model), new_folder=True)
    trained = load_model(model).model_
    content = to_onnx(trained)
    with folders_for([onnx]):
        write_bytes(onnx, content)
    side = 2 * trained.halo + 1
    console_out().print(
        f"wrote {plain(onnx)}: patches (N, {side}, {side}, {trained.bands}) to probabilities "
        f"(N, {len(trained.legend)})",
        soft_wrap=True,
    )
