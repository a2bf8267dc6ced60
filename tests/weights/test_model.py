"""A model in memory is checked as a loaded one is; wrong weights once reached native code, and read stray memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import Engine, Model, Transformer
from engine.base.errors import EngineError, InputError, WeightsError
from engine.weights import model as model_module

from ..tools.decoders import DECODERS, make_weights
from ..tools.encoders import convert_encoder, engine_of, load_encoder, save_encoder
from ..tools.limited import outcome
from ..tools.tiny_models import D, random_model


def with_weights(**changes: Any) -> Transformer:
    model = random_model()
    return replace(model, weights=dict(model.weights) | {name.replace("__", "."): w for name, w in changes.items()})


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def large_vocabulary() -> Transformer:
    model = random_model()
    return replace(model, config=replace(model.config, vocab_size=2**24))


WRONG = {
    "a large vocabulary": large_vocabulary,
    "a table of one row": lambda: with_weights(embeddings__word=ones(1, D)),
    "a norm of one number": lambda: with_weights(embeddings__norm__weight=ones(1)),
    "a norm of many numbers": lambda: with_weights(embeddings__norm__weight=np.broadcast_to(ones(1), 10**8)),
    "a matrix that is transposed": lambda: with_weights(layers__0__ffn__up__weight=ones(D, 20)),
    "float64": lambda: with_weights(embeddings__word=ones(30, D, dtype=np.float64)),
    "the other byte order": lambda: with_weights(embeddings__word=ones(30, D, dtype=">f4")),
    "NaN": lambda: with_weights(embeddings__word=np.full((30, D), np.nan, np.float32)),
    "an int8 table without its scale": lambda: with_weights(embeddings__word=ones(30, D, dtype=np.int8)),
    "a list": lambda: with_weights(embeddings__word=[[1.0] * D] * 30),
    "an array too many": lambda: with_weights(other=ones(3)),
    "no weights": lambda: replace(random_model(), weights={}),
    "another config": lambda: replace(random_model(), config={"hidden_size": D}),
    "another text": lambda: replace(random_model(), text="text"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_wrong_weights_are_refused(case, backend):
    with pytest.raises(WeightsError, match="the model: "):
        engine_of(WRONG[case](), backend=backend, threads=1)


def test_an_id_beyond_the_table():
    """In a child, because without the check this is a segmentation fault."""
    assert "expected [16777216, 12]" in outcome(lambda: engine_of(large_vocabulary()).forward([[2**24 - 1]]))


def test_what_is_no_model_is_refused():
    for model in (None, "path.npz", {}, random_model()):
        with pytest.raises(InputError, match=r"Engine takes a Model.*Engine\.load takes"):
            Engine(model)
    with pytest.raises(WeightsError, match="each a Transformer"):
        engine_of("a transformer")
    with pytest.raises(WeightsError, match="neither of the two"):
        Engine(Model())


def test_a_decoder_stands_alone_or_reads_the_vectors_of_its_encoder():
    alone, reading = (Transformer(config, make_weights(config)) for config in (
        DECODERS["Llama"], replace(DECODERS["2017"], memory_size=D + 1)))
    Model(decoder=alone).checked("a model")
    for encoder, width in ((None, 0), (random_model(), D)):
        with pytest.raises(WeightsError, match=f"width {D + 1} by cross-attention, .* vectors of width {width};"):
            Model(encoder=encoder, decoder=reading).checked("a model")


def test_weights_that_kernels_cannot_read_are_copied():
    plain = random_model()
    strange = dict(plain.weights)
    unaligned = np.empty(30 * D * 4 + 1, np.uint8)[1:].view(np.float32).reshape(30, D)
    unaligned[:] = strange["embeddings.word"]
    strange["embeddings.word"] = unaligned
    up = strange["layers.0.ffn.up.weight"]
    strange["layers.0.ffn.up.weight"] = np.asfortranarray(up)
    strange["layers.1.ffn.up.weight"] = strange["layers.1.ffn.up.weight"].view(np.memmap)
    strange["embeddings.norm.weight"] = np.repeat(strange["embeddings.norm.weight"], 2)[::2]
    expected = engine_of(plain, threads=1).forward([[1, 2, 29]])[0]
    found = engine_of(replace(plain, weights=strange), threads=1).forward([[1, 2, 29]])[0]
    np.testing.assert_array_equal(found, expected)


def test_numbers_are_checked_once_and_shapes_always(tmp_path, monkeypatch):
    save_encoder(random_model(), tmp_path / "m.npz")
    calls = []
    check = model_module.check
    monkeypatch.setattr(model_module, "check", lambda *a, numbers=True, layout=None: (calls.append(numbers), check(*a)))
    model = load_encoder(tmp_path / "m.npz")
    engine_of(model, backend="reference")
    engine_of(convert_encoder(model, "bfloat16"), backend="reference")
    engine_of(replace(model), backend="reference")
    assert calls == [True, False, True, True]


def test_weights_that_change_after_the_check():
    model = random_model()
    engine_of(model, threads=1)
    model.weights["embeddings.word"] = ones(1, D)
    with pytest.raises(EngineError, match=r"embeddings\.word has shape \[1, 12\]"):
        engine_of(model, threads=1)
