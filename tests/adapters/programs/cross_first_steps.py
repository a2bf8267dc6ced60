"""Score pairs of texts."""

from sentence_transformers import CrossEncoder

model = CrossEncoder("cross-encoder")
pairs = [("Who lives in Berlin?", "Anna lives in Berlin."), ("Who lives in Berlin?", "The cat sat on a mat.")]
print(model.num_labels, model.predict(pairs), model.predict(pairs[0]), model.predict([["a", "b"]]))
