"""What a run folder shows: the facts behind the report, the pictures, and the report itself.

Importing this imports matplotlib, which takes a quarter of a second; ``pipeline.train`` does it beside other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hypercaps.data.labels import Labels
from hypercaps.data.scene import Scene
from hypercaps.data.splits import Split
from hypercaps.inference.metrics import ConfidenceReport
from hypercaps.inference.model import TrainedModel
from hypercaps.io.writers.atomic import write_bytes, write_json
from hypercaps.models.history import EpochRecord
from hypercaps.pipeline.run_files import LAYER_FILES
from hypercaps.report.label_picture import label_picture
from hypercaps.report.map_pictures import colored, raster_picture
from hypercaps.report.plots import curves_picture, reliability_picture
from hypercaps.report.quicklook import LONGEST_SIDE, QuickLook, quicklook
from hypercaps.report.run_report import make_report
from hypercaps.report.signatures import ClassesRecord, make_classes_record


@dataclass(frozen=True, eq=False)
class Facts:
    """What the report says of the scene and its classes, in addition to the scores."""

    look: QuickLook
    classes: ClassesRecord

    @classmethod
    def find(cls, model: TrainedModel, scene: Scene, labels: Labels, split: Split) -> Facts:
        look = quicklook(scene)
        return cls(look, make_classes_record(model, scene, labels, split, look.caption))


def draw_training(
    folder: Path, records: Sequence[EpochRecord], best_epoch: int, confidence: ConfidenceReport | None
) -> None:
    """Draw the learning curves and the reliability of the confidence, as far as there are any."""
    if len(records) > 1:
        write_bytes(folder / "curves.png", curves_picture(records, best_epoch))
    if confidence is not None:
        write_bytes(folder / "reliability.png", reliability_picture(confidence))


def write_report(folder: Path, facts: Facts, labels: Labels) -> None:
    """report.html and the files that it reads."""
    write_json(folder / "classes.json", asdict(facts.classes))
    write_bytes(folder / "scene.png", raster_picture(facts.look.picture))
    picture = label_picture(labels.array, LONGEST_SIDE)
    write_bytes(folder / "labels.png", raster_picture(colored(picture, labels.legend)))
    write_bytes(folder / "report.html", make_report(folder, LAYER_FILES).encode(errors="replace"))
