"""Whole jobs, from files to files: train, evaluate, map, describe."""
