"""The interface for users: `load`, `Engine`, `Generator`, `Reranker`, `Transcriber`, and the command `engine`."""
