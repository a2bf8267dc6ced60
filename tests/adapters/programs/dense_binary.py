"""Embeddings of one bit a dimension."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
texts = ["a stone wall", "a wooden gate", "a field of barley"]
print(model.encode(texts, precision="ubinary"), model.encode(texts, precision="binary").dtype.name)
