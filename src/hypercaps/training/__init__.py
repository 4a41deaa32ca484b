"""From a scene and its labels to a trained network."""
