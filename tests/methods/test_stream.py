"""Test `Engine.encode_stream`: the bits of one call, in arrays, from an iterable that is read as far as needed."""

from itertools import count

import numpy as np
import pytest

from engine import Engine
from engine.base.errors import InputError, UnsupportedError

from ..tools.encoders import engine_of
from ..tools.head_models import folder_of, names_of
from ..tools.tiny_models import random_model
from ..tools.tiny_text import WORDS, tiny_text


@pytest.fixture(scope="module")
def engine():
    return engine_of(random_model(tiny_text(prompts={"q": "query : "})))


def sentences(number):
    """Return sentences of different lengths, from the words of the tiny tokenizer."""
    return [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(i % 7)) for i in range(number)]


RANGES = np.stack([np.full(12, -2, np.float32), np.full(12, 2, np.float32)])


@pytest.mark.parametrize("rows", [1, 3, 4096])
@pytest.mark.parametrize("options", [
    {}, {"prompt_name": "q", "normalize_embeddings": True, "truncate_dim": 5}, {"precision": "binary"},
    {"precision": "int8", "ranges": RANGES}], ids=["plain", "prompt", "binary", "int8"])
def test_the_bits_of_one_call(engine, rows, options):
    texts = sentences(17)
    parts = list(engine.encode_stream(iter(texts), rows=rows, **options))
    assert [len(part) for part in parts] == [len(texts[i : i + rows]) for i in range(0, 17, rows)]
    expected = engine.encode(texts, **options)
    assert (np.concatenate(parts).tobytes(), parts[0].dtype) == (expected.tobytes(), expected.dtype)


def test_other_results():
    classifier = Engine.load(folder_of(names_of("classify")[0]))
    texts = ["a cat", "the dog runs", ""]
    parts = list(classifier.encode_stream(texts, rows=2, result="classes", top_k=None))
    assert [len(part) for part in parts] == [2, 1]
    assert [*parts[0], *parts[1]] == classifier.classify(texts, top_k=None)
    with pytest.raises(UnsupportedError, match="encode_tokens"):
        classifier.encode_stream(texts, result="tokens")


def test_tokens_of_sentences(engine):
    parts = list(engine.encode_stream(["the cat", "a", "dog"], rows=2, output_value="token_embeddings"))
    assert [[len(row) for row in part] for part in parts] == [[4, 3], [3]]


def test_nothing_is_read_before_its_turn(engine):
    read = count()
    stream = engine.encode_stream(("the cat" for _ in read), rows=3)
    assert next(read) == 0
    next(stream)
    assert next(read) == 4
    stream.close()
    with pytest.raises(StopIteration):
        next(stream)
    assert next(read) == 5
    assert list(engine.encode_stream([])) == []


def test_an_error_of_the_iterable_comes_after_the_arrays_before_it(engine):
    def broken():
        yield from ["the cat", "a dog", "a mat"]
        raise OSError("the disk is gone")

    stream = engine.encode_stream(broken(), rows=2)
    assert len(next(stream)) == 2
    with pytest.raises(OSError, match="the disk is gone"):
        next(stream)
    stream = engine.encode_stream(["the cat", "a dog", "a mat", None], rows=2)
    next(stream)
    with pytest.raises(InputError, match="sentence 3 must be"):
        next(stream)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"sentences": "the cat"}, "a string is a single one"), ({"sentences": {"a": 1}}, "not dict"),
    ({"rows": 0}, "rows must be"), ({"result": "logits"}, "vectors, sparse, tokens, classes"),
    ({"precision": "int8"}, "ranges"), ({"prompt_name": "no"}, "no prompt called"),
    ({"ranges": RANGES[:, :3], "precision": "uint8"}, r"\[2, 12\]"), ({"normalise": True}, "normalise")])
def test_wrong_arguments_are_refused_at_the_call(engine, arguments, message):
    with pytest.raises((InputError, UnsupportedError), match=message):
        engine.encode_stream(**{"sentences": ["the cat"]} | arguments)
