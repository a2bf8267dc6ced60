"""Check of the bits that a text has in any company, for every kind of result."""

import random

import numpy as np
import pytest


def bits(found):
    """Return a list of what was found for each text, in which == compares the bits of numbers in arrays."""
    if isinstance(found, list):
        return [one.tobytes() if isinstance(one, np.ndarray) else one for one in found]
    return [(row.indices.tobytes(), row.values.tobytes()) for row in found]


@pytest.fixture(scope="session")
def check_company():
    """Return a function that compares what texts give alone and in any order, on 1 to 4 threads, in small batches.

    load: takes options of Engine.load, and returns an engine. call: takes an engine and texts, and returns a result for
    each text.
    """

    def check(load, call, inputs):
        whole, rng = bits(call(load(threads=2), inputs)), random.Random(0)
        for threads, most in ((1, 8192), (2, 100), (3, 300), (4, 1000)):
            engine, order = load(threads=threads, max_batch_tokens=most), rng.sample(range(len(inputs)), len(inputs))
            assert bits(call(engine, [inputs[i] for i in order])) == [whole[i] for i in order]
        for i in (0, 3, len(inputs) - 1):
            assert bits(call(engine, [inputs[i]])) == [whole[i]]

    return check
