"""Embeddings of eight bits a dimension, with the ranges of the call."""

import warnings

from sentence_transformers import SentenceTransformer

warnings.simplefilter("ignore")
model = SentenceTransformer("all-MiniLM-L6-v2")
texts = [f"The house has number {number} and {number % 7} windows." for number in range(40)]
codes = model.encode(texts, precision="int8", truncate_dim=48)
print(codes.dtype.name, codes.shape, codes.astype(float) / 1e5)
