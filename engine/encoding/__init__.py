"""Turn token ids, sentences and images into vectors: check and pack them, compute them, pool them, compare them."""
