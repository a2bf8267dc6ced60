"""File formats: .npz, safetensors, torch checkpoints, GGUF and CTranslate2. They know nothing of models."""
