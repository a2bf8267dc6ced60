"""The answers to requests in OpenAI's file format."""

import json

import numpy as np

from engine.jobs.batch_api import BatchRequest, answer, read_request
from engine.weights.modules import normalize


def vectors_of(request, vectors):
    """Return the vectors of the answer, float32 [n, D']."""
    data = answer(request, vectors, tokens=1)["response"]["body"]["data"]
    return np.array([row["embedding"] for row in data], np.float32)


def test_dimensions_give_vectors_of_length_1():
    drawn = np.random.default_rng(0).standard_normal((100, 24), np.float32)
    assert np.array_equal(vectors_of(BatchRequest("a", dimensions=24), drawn), normalize(drawn))
    unit = normalize(drawn)
    assert not np.array_equal(normalize(unit), unit)
    assert np.array_equal(vectors_of(BatchRequest("a", dimensions=24), unit), unit)     # bits of encode
    assert np.array_equal(vectors_of(BatchRequest("a", dimensions=8), unit), normalize(unit[:, :8]))
    assert np.array_equal(vectors_of(BatchRequest("a"), drawn), drawn)


def test_a_model_is_a_string():
    def line(body):
        return json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body}).encode()

    assert read_request(line({"input": "x", "model": "m"})).model == "m"
    assert "model must be a string, not None" in read_request(line({"input": "x", "model": None})).reason
