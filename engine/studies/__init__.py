"""Measure models: speed and quality of precisions, calibration on labelled texts, and the importance of weights."""
