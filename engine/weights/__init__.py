"""The numbers of a model in memory: their names, shapes, dtypes and quantization."""
