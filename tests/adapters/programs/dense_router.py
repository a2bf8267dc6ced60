"""A model that reads queries and documents by different modules."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("router")
queries = model.encode_query(["Who lives in Berlin?", "a"])
documents = model.encode_document(["Anna lives in Berlin.", "It was very good."])
print(queries, documents, model.similarity(queries, documents), model.encode(["Anna"], task="query"))
