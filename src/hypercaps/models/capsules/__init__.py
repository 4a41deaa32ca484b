"""Layers, dynamic routing and margin loss of the paper (its equations are cited as Eq. 4 to Eq. 10)."""
