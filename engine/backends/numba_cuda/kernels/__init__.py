"""Make kernels for compile-time constants; the `variants` of a module are those that `make cubins` stores."""
