"""The paragraphs of a study's page: protocol, comparability with the paper, leakage of the splits."""

from __future__ import annotations

from collections.abc import Sequence

from hypercaps.models.descriptions import DESCRIPTIONS
from hypercaps.study.groups import Column, Groups
from hypercaps.study.label_budget import LabelBudget
from hypercaps.study.paper import paper_scene, paper_source

_OPTIMISTIC = "accuracies are higher than in areas without training pixels"


def protocol_text(groups: Groups, *, planned: int, recorded: int) -> str:
    """How the figures were made; ``planned`` and ``recorded`` are numbers of runs."""
    source = paper_source()
    columns = [column for group in groups.values() for column in group]
    finished = sum(len(column.records) for column in columns)
    of_planned = f" of {planned} planned" if planned >= finished else ""
    text = (
        f"The paper ({source.authors[0]} et al., “{source.title}”) gives the median accuracy of "
        f"{source.repeats} runs and the shortest training time ({source.hardware}). This page does the same over its "
        f"runs: {finished} finished{of_planned}, {recorded - finished} without a result. The seed of a run determines "
        "its split, so methods with the same seed share the split. "
    )
    if any(column.is_shortened for column in columns):
        return text + (
            "A note such as “100 of 500 epochs”, or “cut short by the budget”, marks a method that was trained for "
            "fewer epochs than its recipe has: its accuracy may be lower than the method can reach, and its time is "
            "that of the shorter training, so neither can be compared with the paper's."
        )
    return text + "Every method was trained for the number of epochs of its recipe."


def comparability_text(scene: str, groups: Groups) -> str:
    """Whether the paper's figures are of the same scene; ``groups`` are those of the scene."""
    paper = paper_scene(scene)
    if paper is None:
        return "The paper has no results for this scene, so there is no comparison."
    if not any(budget.is_in_paper for _, budget in groups):
        return "The paper has no results for these label budgets and splits, so there is no comparison."
    runs = [run for columns in groups.values() for column in columns for run in column.records]
    bands = sorted({run.bands for run in runs if run.bands})
    classes = sorted({len(run.per_class) for run in runs if run.per_class})
    differences = [
        f"ours has {' or '.join(map(str, ours))} {what}, the paper's has {theirs}"
        for what, ours, theirs in (("bands", bands, paper.bands), ("classes", classes, len(paper.classes)))
        if ours and ours != [theirs]
    ]
    if differences:
        return f"The scene differs from the paper's {paper.title}: {'; '.join(differences)}. Keep this in mind."
    if not bands:
        return f"The paper's scene is {paper.title}, with {paper.bands} bands."
    return f"This is the paper's scene {paper.title}, with {paper.bands} bands and {len(paper.classes)} classes."


def leakage_text(budget: LabelBudget, columns: Sequence[Column]) -> str:
    """How far test pixels are separated from training pixels."""
    shares = {column.title: stat.median for column in columns if (stat := column.stat("leakage")) is not None}
    listed = ", ".join(f"{title} {100 * share:.1f} %" for title, share in shares.items())
    if budget.split == "blocks":
        return _blocks_text(budget, columns, listed)
    text = "Splits are random, as in the paper, so training pixels can lie within the patches of test pixels"
    if budget.per_class is not None:
        text = f"At most half of the pixels of a class are used for training. {text}"
    if not shares:
        return f"{text}: {_OPTIMISTIC}."
    return f"{text}. Share of the test pixels affected (leakage): {listed}. Where it is high, {_OPTIMISTIC}."


def _blocks_text(budget: LabelBudget, columns: Sequence[Column], leakage: str) -> str:
    text = (
        f"Blocks of {budget.block} x {budget.block} pixels belong entirely to training, validation or test, with a "
        "guard band between them; classes in too few blocks have no test pixels and do not count in AA."
    )
    if leakage:
        text += f" Leakage, the share of test pixels with a training pixel in their patch: {leakage}."
    self_trained = [column.label for column in columns if _learns_from_scene(column)]
    if self_trained:
        text += (
            f" {', '.join(self_trained)} also learned from unlabelled pixels of the scene, including those of the test "
            "blocks, with classes propagated from the training labels, never from test labels: the accuracy holds for "
            "the rest of a partly labelled scene, not for another scene."
        )
    return text


def _learns_from_scene(column: Column) -> bool:
    method = DESCRIPTIONS.get(column.method)
    recipe = None if method is None else method.recipes.get(column.recipe)
    return recipe is not None and recipe.uses_pseudo_labels
