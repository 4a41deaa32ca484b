"""Devices, threads, memory, compiled kernels and clusters."""
