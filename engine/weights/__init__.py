"""Read and write weight files: the engine's own `.npz`; `.safetensors` and files of `torch.save`, read only."""
