"""See which words stand for a text, and which two texts share."""

from sentence_transformers import SparseEncoder

model = SparseEncoder("splade")
query = model.encode_query("What grows in the garden?")
documents = model.encode_document(["Beans and peas grow in the garden.", "The train is late."])
print(query.shape, model.decode(query, top_k=5), model.decode(documents, top_k=3))
shared = model.intersection(query, documents[0])
print(shared.shape, model.decode(shared, top_k=4), model.decode(model.intersection(query, documents), top_k=2))
