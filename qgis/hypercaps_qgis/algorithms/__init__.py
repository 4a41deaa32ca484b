"""One module per algorithm, and what they share in ``base``."""
