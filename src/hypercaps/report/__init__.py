"""Figures, wording and HTML pages."""
