"""The classes for users: `Engine`, `Generator`, `Reranker` and `Transcriber`, and `load`, which chooses among them."""
