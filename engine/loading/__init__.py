"""Read a model from a path, and write it to a file."""
