"""Search with a vector for each token."""

from sentence_transformers import MultiVectorEncoder

model = MultiVectorEncoder("colbert")
queries = model.encode_query(["Who lives in Berlin?", "a"])
documents = model.encode_document(["Anna lives in Berlin, doesn't she?", "The cat sat on a mat.", "it was good."])
print([tuple(one.shape) for one in queries + documents], queries[0], documents[1])
scores = model.similarity(queries, documents)
print(scores, model.similarity_fn_name, model.similarity_pairwise(queries, documents[:2]))
