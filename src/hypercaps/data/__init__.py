"""Scenes, labels and splits: what every other package works on. No file formats, no torch."""
