"""Keep few words, ask for dense numbers, and compare pairs."""

from sentence_transformers import SparseEncoder

model = SparseEncoder("splade", max_active_dims=16)
texts = ["The cat sat on a mat.", "It was very good!", "We saw the river today."]
dense = model.encode(texts, convert_to_sparse_tensor=False)
print(dense, (dense != 0).sum(1).tolist(), model.encode(texts, max_active_dims=4).to_dense())
print(model.similarity_pairwise(dense[:2], dense[1:]), model.sparsity(dense[0]))
model.similarity_fn_name = "cosine"
print(model.similarity(dense, dense))
