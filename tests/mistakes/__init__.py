"""Seeded mistakes: they prove that the tests see what they are there to see.

`python -m tests.mistakes` makes one mistake after the other in a copy of the tree, runs the tests that should see it,
and prints which test did. A mistake is a row of a table, and not a patch, so that it survives changes around it.
"""
