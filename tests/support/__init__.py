"""Helpers of the tests: made scenes and files, damaged files, a browser."""
