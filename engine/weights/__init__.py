"""Weights on disk: the engine's own `.npz`, and `.safetensors` read as it is."""
