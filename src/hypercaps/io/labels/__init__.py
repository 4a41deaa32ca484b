"""Label rasters and vector files, brought to the grid of a scene."""
