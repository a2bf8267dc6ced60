"""Turn token ids into vectors, and sentences into one vector each."""
