"""Measure a model with an evaluator of sentence-transformers."""

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

model = SentenceTransformer("all-MiniLM-L6-v2")
evaluator = EmbeddingSimilarityEvaluator(
    sentences1=["The tide comes in.", "He bakes bread.", "The lamp is lit.", "A goat eats grass."],
    sentences2=["The sea is rising.", "She drives a tram.", "The light is on.", "An animal feeds in a meadow."],
    scores=[0.8, 0.0, 1.0, 0.6])
print(model.evaluate(evaluator), evaluator(model))
