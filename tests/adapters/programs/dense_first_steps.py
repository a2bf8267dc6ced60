"""Encode sentences and compare them."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
sentences = ["The bakery opens at six.", "You can buy bread early in the morning.", "The tram was late again."]
embeddings = model.encode(sentences)
print(embeddings.shape)
similarities = model.similarity(embeddings, embeddings)
print(similarities)
print(model.similarity_fn_name)
