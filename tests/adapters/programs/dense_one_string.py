"""Encode one string, which gives one vector."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
vector = model.encode("A heron stands in the river.")
print(vector.shape, vector)
print(model.get_embedding_dimension(), model.max_seq_length)
