"""Truncate long texts to fewer tokens."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
text = "The path follows the wall past the mill, over the bridge and through the orchard. " * 30
whole = model.encode(text)
model.max_seq_length = 24
short = model.encode(text)
print(model.max_seq_length, whole, short, model.get_max_seq_length())
