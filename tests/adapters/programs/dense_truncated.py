"""Keep the first dimensions alone, for the model, for a call, and for a block."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2", truncate_dim=64)
texts = ["a red boat", "a blue boat"]
print(model.get_embedding_dimension(), model.encode(texts))
print(model.encode(texts, truncate_dim=16, normalize_embeddings=True))
with model.truncate_embeddings(truncate_dim=8):
    print(model.encode(texts).shape, model.get_embedding_dimension())
print(model.encode(texts).shape)
