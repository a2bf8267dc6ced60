"""How sure a result is: calibrated probabilities, sets that keep their promise, shift, and what attention says.

Nothing here knows a model: the functions take logits, labels and attention weights, and compute in float64, each row
alone, so that a row has the same bits in every batch. docs/uncertainty.md has the formulas and their sources.
"""
