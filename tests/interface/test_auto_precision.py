"""`precision="auto"` takes the fastest precision that keeps the bound, and never a precision that does not."""

import pickle

import numpy as np
import pytest

from engine import Engine
from engine.base.errors import InputError
from engine.interface.auto_precision import SENTENCES

from ..tools.encoders import convert_encoder, save_encoder
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text


@pytest.fixture(params=["text", "ids", "embeddings"])
def path(request, tmp_path):
    changes = {"vocab_size": 0} if request.param == "embeddings" else {}
    model = random_model(tiny_text() if request.param == "text" else None, **changes)
    save_encoder(model, tmp_path / "model.npz")
    return tmp_path / "model.npz"


def least(path, precision):
    """Return the least cosine of token vectors to float32, over the tokens that `precision="auto"` samples."""
    from engine.interface.auto_precision import _least_cosine, _sample_vectors

    return _least_cosine(*(_sample_vectors(Engine.load(path, precision=name)) for name in (precision, "float32")))


def test_the_bound_decides(path):
    int8, bfloat16 = least(path, "int8"), least(path, "bfloat16")
    assert max(int8, bfloat16) < 1
    for bound in (-1.0, int8, np.nextafter(int8, 2), bfloat16, np.nextafter(bfloat16, 2), 1, 0.999):
        fastest = "int8" if int8 >= bound else "bfloat16" if bfloat16 >= bound else "float32"
        assert Engine.load(path, precision="auto", least_cosine=float(bound)).precision == fastest
    default = Engine.load(path, precision="auto")
    assert default.precision == Engine.load(path, precision="auto", least_cosine=0.999).precision
    assert pickle.loads(pickle.dumps(default)).precision == default.precision


def test_the_worst_vector_decides():
    from engine.interface.auto_precision import _least_cosine

    assert _least_cosine(np.eye(2), np.array([[1.0, 0.0], [1.0, 1.0]])) == pytest.approx(0.5**0.5)


def test_backends_without_the_precision(path):
    assert Engine.load(path, backend="reference", precision="auto", least_cosine=-1).precision == "float32"


def test_weights_in_int8_stay(tmp_path):
    save_encoder(convert_encoder(random_model(), "int8"), tmp_path / "int8.npz")
    assert Engine.load(tmp_path / "int8.npz", precision="auto", least_cosine=1).precision == "int8"


@pytest.mark.parametrize("bound", [1.5, "0.9", True, float("nan")])
def test_bounds_that_are_no_cosine(path, bound):
    with pytest.raises(InputError, match="least_cosine must be a number from -1 to 1"):
        Engine.load(path, precision="auto", least_cosine=bound)


def test_a_bound_without_auto(path):
    with pytest.raises(InputError, match='least_cosine is for precision="auto"'):
        Engine.load(path, least_cosine=0.9)


def test_sentences_of_all_lengths():
    lengths = [len(sentence.split()) for sentence in SENTENCES]
    assert min(lengths) == 1
    assert max(lengths) > 60
