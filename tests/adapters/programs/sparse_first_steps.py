"""Encode sentences sparsely and compare them."""

from sentence_transformers import SparseEncoder

model = SparseEncoder("splade")
sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
embeddings = model.encode(sentences)
print(embeddings.shape, embeddings.is_sparse, embeddings.to_dense())
print(model.similarity(embeddings, embeddings), model.similarity_fn_name, model.get_embedding_dimension())
print(model.sparsity(embeddings))
