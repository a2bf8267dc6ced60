"""The interface for users: `load`, `Engine`, `Generator`, `Reranker`, `Transcriber`."""
