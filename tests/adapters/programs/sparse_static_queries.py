"""Queries from a table of numbers, documents from a transformer."""

from sentence_transformers import SparseEncoder

model = SparseEncoder("sparse-router")
queries = model.encode_query(["Who lives in Berlin?", "very good"])
documents = model.encode_document(["Anna lives in Berlin.", "It was very good!", "a"])
print(queries.to_dense(), documents.to_dense(), model.similarity(queries, documents))
print(model.decode(documents, top_k=3), model.max_active_dims)
