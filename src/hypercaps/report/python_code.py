"""The training of a run as Python code that runs as it is printed."""

from __future__ import annotations

from collections.abc import Mapping

from hypercaps.inference.run_metrics import RunMetrics


def python_code(metrics: RunMetrics) -> str:
    """Code that trains the same model, in the folder of the command; without a command, the classifier alone."""
    classifier = f"classifier = ConvCapsClassifier({_arguments(metrics.params or {})})"
    inputs = metrics.inputs
    if inputs is None:  # trained from Python: scene and labels are that program's
        split = ", split" if metrics.split in ("file", "given") else ""
        return f"from hypercaps import ConvCapsClassifier\n{classifier}\n# then classifier.fit(scene, labels{split})"
    remote = {"allow_remote": True} if inputs.get("allow_remote") else {}
    of_scene = _some(inputs, "wavelengths") | remote
    of_labels = _some(inputs, "class_field") | remote
    lines = [
        f"scene = open_scene({inputs['scene']!r}{_following(of_scene)})",
        f"labels = open_labels({inputs.get('labels') or inputs['scene']!r}, scene=scene{_following(of_labels)})",
    ]
    fitted, names = "scene, labels", ["ConvCapsClassifier", "open_labels", "open_scene"]
    if "split_file" in inputs:
        lines.append(f"split = open_split({inputs['split_file']!r}, labels)")
        fitted, names = f"{fitted}, split", [*names, "open_split"]
    return "\n".join([f"from hypercaps import {', '.join(names)}", *lines, f"{classifier}.fit({fitted})"])


def _some(values: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: values[name] for name in names if name in values}


def _arguments(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _following(values: Mapping[str, object]) -> str:
    return f", {_arguments(values)}" if values else ""
