"""Contain the kernels' factories, which take compile-time constants. Each module lists variants in `catalogue()`."""
