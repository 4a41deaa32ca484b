"""The paper's own contribution, readable beside the paper: layers, routing and loss."""
