"""Scores from spatial folds, and the choice of the method that fits the user's own labels."""
