"""A model with modules before and after pooling."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("modules")
print(model.get_embedding_dimension(), model.encode(["Anna lives in Berlin.", "a", "the cat sat on a mat"]))
