"""Measure how sure a result is: calibrated probabilities, prediction sets, shift of the inputs, attention weights.

Nothing here knows a model: the functions take logits, labels and attention weights, and compute in float64, each row
alone, so that a row has the same bits in every batch. docs/uncertainty.md has the formulas and their sources.
"""
