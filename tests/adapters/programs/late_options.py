"""Single strings, arrays of NumPy, normalised vectors, and the mean of MaxSim."""

from sentence_transformers import MultiVectorEncoder

model = MultiVectorEncoder("colbert", similarity_fn_name="meanmaxsim")
one = model.encode_document("Farah works in Cairo.", convert_to_numpy=True, normalize_embeddings=True)
print(one.shape, one, model.encode("Farah", task="query", prompt="Who? ", convert_to_numpy=True))
query = model.encode_query("Who works in Cairo?", convert_to_numpy=True)
print(model.similarity([query], [one]), model.get_embedding_dimension(), model.max_seq_length)
