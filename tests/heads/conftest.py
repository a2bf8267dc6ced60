"""Check of the bits that a text has in any company, for every kind of result."""

import random

import pytest

from ..tools.bits import same


@pytest.fixture(scope="session")
def check_company():
    """Return a function that compares what texts give alone and in any order, on 1 to 4 threads, in small batches.

    load: takes options of Engine.load, and returns an engine. call: takes an engine and texts, and returns a result for
    each text.
    """

    def check(load, call, inputs):
        whole, rng = [*call(load(threads=2), inputs)], random.Random(0)
        for threads, most in ((1, 8192), (2, 100), (3, 300), (4, 1000)):
            engine, order = load(threads=threads, max_batch_tokens=most), rng.sample(range(len(inputs)), len(inputs))
            assert same([*call(engine, [inputs[i] for i in order])], [whole[i] for i in order])
        for i in (0, 3, len(inputs) - 1):
            assert same([*call(engine, [inputs[i]])], [whole[i]])

    return check
