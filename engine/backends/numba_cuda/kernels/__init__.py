"""The kernels: factories that close over compile-time constants. Each module lists its variants in `catalogue()`."""
