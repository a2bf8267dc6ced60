"""Read and write weight files: the engine's own `.npz`, and `.safetensors` (read only)."""
