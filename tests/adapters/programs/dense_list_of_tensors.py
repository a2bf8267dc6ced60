"""Ask for a list of tensors."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
vectors = model.encode(["a kettle", "a kettle whistles"], convert_to_numpy=False)
print(type(vectors).__name__, len(vectors), vectors[0].norm().item(), vectors[1])
print(model.encode("a kettle", convert_to_numpy=False).shape)
