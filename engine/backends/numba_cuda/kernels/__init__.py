"""Make kernels for compile-time constants; `make cubins` stores the `variants` of each module."""
