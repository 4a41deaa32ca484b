"""Studies: methods x scenes x label shares x seeds, beside the paper's tables."""
