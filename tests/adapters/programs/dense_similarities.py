"""Compare by other functions."""

from sentence_transformers import SentenceTransformer

texts = ["The soup is hot.", "The stew is warm.", "The bicycle is new."]
for name in ("cosine", "dot", "euclidean", "manhattan"):
    model = SentenceTransformer("all-MiniLM-L6-v2", similarity_fn_name=name)
    embeddings = model.encode(texts)
    print(name, model.similarity(embeddings, embeddings[1:]), model.similarity_pairwise(embeddings[:2], embeddings[1:]))
model.similarity_fn_name = "dot"
print(model.similarity(embeddings[0], embeddings[1]))
