"""Ask for tensors of torch."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
embeddings = model.encode(["one lamp", "two lamps", "a window"], convert_to_tensor=True)
scores = model.similarity(embeddings[:1], embeddings[1:])
values, places = scores.topk(2)
print(embeddings.dtype, embeddings.shape, values, places.tolist(), scores[0][1].item())
