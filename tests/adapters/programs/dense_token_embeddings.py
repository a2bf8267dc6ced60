"""Look at the vectors of tokens."""

from sentence_transformers import SentenceTransformer

model = SentenceTransformer("all-MiniLM-L6-v2")
tokens = model.encode(["Rain.", "It rained all week long."], output_value="token_embeddings")
print([tuple(one.shape) for one in tokens])
print(tokens[0], tokens[1].mean(0))
