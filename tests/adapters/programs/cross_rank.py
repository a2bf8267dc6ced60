"""Rank documents for a query."""

from sentence_transformers import CrossEncoder

model = CrossEncoder("cross-encoder", max_length=32)
documents = ["Anna lives in Berlin and works for Bilal.", "It was awful, awful rain.", "Eva lives in Oslo. " * 20]
print(model.rank("Who lives in Berlin?", documents), model.max_seq_length)
print(model.rank("Who lives in Berlin?", documents, top_k=2, return_documents=True, batch_size=1))
