"""Pictures of the workbench for the documentation, from the real page: python benchmarks/workbench_pictures.py [FOLDER]

Starts 'hypercaps serve' on Indian Pines, labels seven classes with the mouse, trains, and takes the pictures that
docs/workbench.md and the README show.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from hypercaps import open_labels
from workbench_browser import open_page, paint_classes

FOLDER = Path(__file__).parents[1] / "docs" / "images"
CLASSES = {2: "Corn", 11: "Soybean", 14: "Woods", 5: "Pasture", 6: "Trees", 8: "Hay", 15: "Buildings"}
WINDOW = {"width": 1360, "height": 850}


def take(folder: Path) -> None:
    truth = open_labels("indian-pines").array
    with tempfile.TemporaryDirectory() as own, open_page(Path(own) / "project", viewport=WINDOW) as tab:
        paint_classes(tab, CLASSES, truth)
        tab.press("2")
        tab.train(seconds=1800)
        tab.page.mouse.move(*tab.place(72, 60))
        tab.page.wait_for_timeout(1500)
        tab.page.screenshot(path=folder / "workbench-map.png")
        tab.press("e")
        tab.until("() => window.workbench.store.get().explained !== null")
        tab.press("n")
        tab.until("() => window.workbench.store.get().suggesting !== null")
        tab.until("() => !window.workbench.view.map.getView().getAnimating()")
        tab.page.emulate_media(color_scheme="dark")
        tab.page.wait_for_timeout(1000)
        tab.page.screenshot(path=folder / "workbench-suggest.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    take(parser.parse_args().folder)


if __name__ == "__main__":
    main()
