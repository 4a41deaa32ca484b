"""A trained model and what it is used for: maps, scores, calibration, explanations, suggestions."""
