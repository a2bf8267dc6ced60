from dataclasses import fields
from inspect import signature

import numpy as np
import pytest

from engine import Engine, Generator, Reranker, Transcriber
from engine.base.arguments import count_or_none, flag, is_one_of, positive_int, positive_int_or_none
from engine.base.errors import InputError
from engine.model.run_config import RunOptions

from ..tools.encoders import engine_of
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.array(3)])
def test_python_and_numpy_integers(value):
    assert type(positive_int("n", value)) is int
    assert positive_int_or_none("n", value) == 3


@pytest.mark.parametrize("value", [0, -1, np.int64(0), 2.0, np.float32(2), True, np.True_, "3", [3], np.array([3])])
def test_other_values_are_refused(value):
    with pytest.raises(InputError, match="n must be an int of at least 1, not"):
        positive_int("n", value)
    with pytest.raises(InputError, match="n must be None or an int of at least 1, not"):
        positive_int_or_none("n", value)


def test_none():
    assert positive_int_or_none("n", None) is None
    with pytest.raises(InputError):
        positive_int("n", None)


@pytest.mark.parametrize("value", [0, 3, np.int64(0), np.uint8(3)])
def test_counts_begin_at_zero(value):
    assert type(count_or_none("n", value)) is int
    assert count_or_none("n", value) == value


@pytest.mark.parametrize("value", [-1, False, np.False_, 0.0, "0", [0]])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(InputError, match="n must be None or an int of at least 0, not"):
        count_or_none("n", value)


HUGE = 10**5000
"""An integer that Python refuses to print."""
FLAGS = np.array([True, False])


@pytest.mark.parametrize("value", [True, False, 1, 0, np.True_, np.int64(0)])
def test_flags(value):
    assert flag("x", value) is bool(value)


@pytest.mark.parametrize("value", [None, 2, "no", "", 1.0, [], FLAGS, np.array(1.0), HUGE],
                         ids=lambda value: type(value).__name__)  # fmt: skip
def test_what_is_no_flag(value):
    with pytest.raises(InputError, match="x must be True or False, not"):
        flag("x", value)


def test_names():
    assert is_one_of("a", ("a", None))
    assert is_one_of(None, ("a", None))
    for value in ("b", FLAGS, ["a"], HUGE, {}, None):
        assert not is_one_of(value, ("a",))


WRONG = {
    "threads must be": lambda: engine_of(random_model(), threads=-HUGE),
    "max_batch_tokens must be": lambda: engine_of(random_model(), max_batch_tokens=-HUGE),
    "precision must be": lambda: engine_of(random_model(), precision=HUGE),
    "backend must be the name of a backend or 'auto', not <int": lambda: engine_of(random_model(), backend=HUGE),
    "backend must be the name of a backend or 'auto', not [": lambda: engine_of(random_model(), backend=["a"]),
    "timeout must be": lambda: encode(timeout=-HUGE),
    "batch_size must be": lambda: encode(batch_size=-HUGE),
    "truncate_dim must be": lambda: encode(truncate_dim=-HUGE),
    "normalize_embeddings must be": lambda: encode(normalize_embeddings=FLAGS),
    "convert_to_numpy must be": lambda: encode(convert_to_numpy=FLAGS),
    "convert_to_tensor must be": lambda: encode(convert_to_tensor=FLAGS),
    "show_progress_bar must be": lambda: encode(show_progress_bar=FLAGS),
    "output_value must be one of": lambda: encode(output_value=FLAGS),
    "the model has no prompt called array": lambda: encode(prompt_name=FLAGS),
    "the model has no prompt called [": lambda: encode(prompt_name=["query"]),
    "prompt must be a string, not int": lambda: encode(prompt=HUGE),
    "sentences must be a string or a list of strings, not ndarray": lambda: encode(np.array("a")),
}


def encode(sentences="a", **options):
    engine_of(random_model(tiny_text()), threads=1, backend="reference").encode(sentences, **options)


@pytest.mark.parametrize("message", WRONG)
def test_wrong_arguments_of_an_engine(message):
    with pytest.raises(InputError) as error:
        WRONG[message]()
    assert message in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("cls", [Engine, Generator, Reranker, Transcriber])
def test_signatures_have_the_defaults_of_the_options_of_a_run(cls):
    """Explicit signatures are for the reader; `RunOptions` is where a default is stated."""
    lacks = {Engine: {"max_rows", "cache_tokens", "keep_tokens", "cache"}, Generator: set(),
             Reranker: {"cache_tokens", "cache"}, Transcriber: {"cache_tokens", "keep_tokens"}}
    defaults = {one.name: one.default for one in fields(RunOptions) if one.name not in lacks[cls]}
    for function in (cls.__init__, cls.load):
        found = signature(function).parameters
        assert {name: found[name].default for name in defaults} == defaults
