"""The command ``hypercaps serve``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_out, plain, say
from hypercaps.cli.root import app
from hypercaps.cli.values import memory_bytes, open_cube, open_truth
from hypercaps.errors import OutputError

_BUNDLED = "indian-pines"
_LOCAL = "127.0.0.1"

SceneToServe = Annotated[str | None, opt.argument("SCENE", opt.SCENE_TEXT, f"the bundled {_BUNDLED}, unlabelled")]
LabelsToServe = Annotated[
    list[str] | None,
    opt.argument("LABELS", "Files of labels to begin with; taken over when the project is new.", "none"),
]
ProjectFolder = Annotated[
    Path | None,
    opt.option(
        opt.DATA, "--project", "DIR", "Folder in which all work is kept and found again.", "NAME.hypercaps by the scene"
    ),
]
Port = Annotated[
    int, opt.option(opt.COMPUTING, "--port", "N", "Port to serve on; 0: any that is free.", min=0, max=65535)
]
Host = Annotated[
    str, opt.option(opt.COMPUTING, "--host", "NAME", "Address to serve on; another one opens it to the network.")
]
NoBrowser = Annotated[bool, opt.flag(opt.COMPUTING, "--no-browser", "Print the address and open no browser.")]


@app.command(epilog="Example:  hypercaps serve scene.tif polygons.gpkg --class-field name")
def serve(
    scene: SceneToServe = None,
    labels: LabelsToServe = None,
    *,
    project: ProjectFolder = None,
    wavelengths: opt.Wavelengths = None,
    class_field: opt.ClassField = None,
    memory: opt.Memory = "1GB",
    threads: opt.Threads = None,
    port: Port = 0,
    host: Host = _LOCAL,
    no_browser: NoBrowser = False,
    debug: opt.Debug = False,
) -> None:
    """Label a scene, train and look at the map, in a browser.

    Prints an address that works once. Everything is saved at once, in the
    folder of the project. Needs the extra 'serve'. See docs/workbench.md.
    """
    most_memory = memory_bytes(memory)
    named = scene or _BUNDLED
    try:
        from hypercaps.io.open import Opening
        from hypercaps.io.options import OpenOptions
        from hypercaps.workbench.project import default_folder
        from hypercaps.workbench.serving import ServeRequest, check_page
        from hypercaps.workbench.serving import serve as start
        from hypercaps.workbench.training_desk import Computing
    except ModuleNotFoundError as missing:
        raise OutputError(
            f"the workbench needs {missing.name}, which is not installed: pip install 'hypercaps[serve]'"
        ) from missing
    check_page()
    cube = open_cube(named, wavelengths, allow_remote=False)
    truth = open_truth(named, labels, cube, class_field, allow_remote=False) if labels else None
    if host != _LOCAL:
        say(
            f"[bold yellow]Warning:[/] {plain(host)} can be reached by other computers; whoever sees the address that "
            "is printed here can use the workbench, and nothing is encrypted."
        )
    folder = project or default_folder(named)
    opening = Opening.of(named, OpenOptions(wavelengths=wavelengths))
    computing = Computing(opening, named, wavelengths, most_memory, threads)
    request = ServeRequest(folder, computing, host, port, open_browser=not no_browser)
    with suppress(KeyboardInterrupt):
        start(cube, truth, request, lambda text: console_out().print(plain(text), soft_wrap=True))
    say(f"Stopped. Everything is saved in {plain(folder)}.")
