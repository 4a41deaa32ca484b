"""Layers, dynamic routing and margin loss of the paper, whose equations are cited by number, such as Eq. 6."""
