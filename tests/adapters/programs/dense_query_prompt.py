"""Queries and documents have prompts of their own."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2", prompts={"query": "query: ", "document": "passage: "})
queries = model.encode_query(["who paints fences"])
documents = model.encode_document(["A painter paints fences.", "A fence keeps the sheep in."])
print(queries, documents, model.similarity(queries, documents))
