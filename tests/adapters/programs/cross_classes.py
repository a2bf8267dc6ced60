"""A cross-encoder with three labels."""

from sentence_transformers import CrossEncoder

model = CrossEncoder("cross-encoder-classes")
pairs = [("Anna lives in Berlin.", "Anna lives in Germany."), ("It was good.", "It was bad.")]
scores = model.predict(pairs)
print(model.num_labels, scores, scores.argmax(axis=1))
print(model.predict(pairs, apply_softmax=True), model.predict(pairs[1]))
