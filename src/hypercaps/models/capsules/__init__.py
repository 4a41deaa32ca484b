"""Layers, dynamic routing and margin loss of the paper (its equations are cited as "Eq. 4", ranges as "Eq. 6 to 8"; Eq. 1 and 3 are in ``models.volumes``)."""
