"""Contain the kernels' factories, which take compile-time constants."""
