"""The compiled part of the weights: the search for the integers of 4-bit weights."""
