"""Test the importance of columns: what is measured, what it does to 4-bit weights, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from engine import (
    Engine,
    Generator,
    InputError,
    Model,
    UnsupportedError,
    convert_model,
    load_model,
    measure_importance,
    save,
)
from engine.cli.main import main
from engine.weights.int4 import quantize_int4, widen_int4
from engine.weights.parameters import kept_finer, parameters_of

from ..tools.generators import language_model, translator
from ..tools.tiny_models import random_model
from ..tools.tiny_text import WORDS, tiny_text

TEXT = " ".join(np.random.default_rng(0).choice(WORDS, 900))


@pytest.fixture(scope="module")
def model():
    """Return a language model, some inputs of which are much larger than others."""
    made = language_model(tiny_text())
    weights = dict(made.decoder.weights)
    sizes = np.geomspace(0.02, 5, 40).astype(np.float32)
    weights["layers.0.attention.norm.weight"] = np.random.default_rng(1).permutation(sizes)
    return replace(made, decoder=replace(made.decoder, weights=weights))


def test_the_inputs_are_those_of_the_formula(model):
    """The first map reads RMSNorm of the embeddings, whose mean squares are known."""
    importance = measure_importance(model, TEXT, max_tokens=600, sequence_length=80)
    weights, text = model.decoder.weights, model.decoder.text
    generator = Generator(model, threads=1)
    ids = []
    for first in range(0, len(TEXT), 320):
        ids += generator.tokenizer.encode(TEXT[first : first + 320])[:80]
    x = weights["embeddings.word"][ids[:600]].astype(np.float64)
    x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + model.decoder.config.norm_eps)
    squares = np.square(x * weights["layers.0.attention.norm.weight"]).mean(axis=0)
    expected = np.maximum(squares / squares.mean(), 1e-4)
    for part in ("query", "key", "value"):
        np.testing.assert_allclose(importance[f"layers.0.attention.{part}.weight"], expected, rtol=1e-4)
    linear = {name for name, parameter in parameters_of(model.decoder.config).items() if parameter.kind == "linear"}
    assert linear <= importance.keys()
    assert text is not None


def test_errors_that_count_are_smaller(model):
    config = model.decoder.config
    importance = measure_importance(model, TEXT)
    plain, spared = convert_model(model, "int4"), convert_model(model, "int4", importance=importance)
    name = "layers.0.attention.query.weight"
    heads, right = parameters_of(config)[name].heads, model.decoder.weights[name]

    def error(converted):
        weights = converted.decoder.weights
        wide = widen_int4(weights[name], weights[f"{name}_scale"], right.shape[1], heads)
        return float((np.square(wide - right) * importance[name]).sum())

    assert error(spared) < 0.6 * error(plain)
    assert all(np.array_equal(spared.decoder.weights[each], plain.decoder.weights[each]) for each in kept_finer(config)
               if spared.decoder.weights[each].dtype == np.int8)


def test_importance_of_an_encoder():
    model = Model(encoder=random_model(tiny_text()))
    importance = measure_importance(model, [TEXT, TEXT])
    converted = convert_model(model, "int4", importance=importance)
    assert converted.encoder.precision == "int4"
    assert Engine(converted, threads=1).encode("the cat").shape == Engine(model, threads=1).encode("the cat").shape


def test_columns_without_importance_may_be_wrong():
    w = np.random.default_rng(1).standard_normal((4, 64), dtype=np.float32)
    importance = np.where(np.arange(64) % 2, np.float32(1), np.float32(1e-4))
    error = np.square(widen_int4(*quantize_int4(w, importance=importance), 64) - w).mean(axis=0)
    plain = np.square(widen_int4(*quantize_int4(w), 64) - w).mean(axis=0)
    assert error[1::2].mean() < 0.8 * plain[1::2].mean()
    for wrong in (importance[:3], -importance, importance.astype(np.float64), importance * np.float32(np.nan)):
        with pytest.raises(InputError, match="importance must be 64 positive float32 numbers"):
            quantize_int4(w, importance=wrong)


def test_refusals(model):
    importance = {"layers.0.attention.query.weight": np.ones(40, np.float32)}
    with pytest.raises(InputError, match="the calibration texts have 4 tokens; give 512 at least"):
        measure_importance(model, "the cat")
    with pytest.raises(InputError, match="texts must be a text or several"):
        measure_importance(model, [TEXT, 5])
    with pytest.raises(UnsupportedError, match="has the parts encoder, decoder"):
        measure_importance(translator(tiny_text()), TEXT)
    with pytest.raises(UnsupportedError, match="no tokenizer"):
        measure_importance(language_model(), TEXT)
    with pytest.raises(InputError, match="takes a Model"):
        measure_importance("model", TEXT)
    with pytest.raises(InputError, match="importance is for int4 weights; precision 'int8'"):
        convert_model(model, "int8", importance=importance)
    with pytest.raises(InputError, match="importance names 'x', which this model does not have"):
        convert_model(model, "int4", importance={"x": np.ones(3, np.float32)})


def test_the_command(model, tmp_path, capsys):
    save(model, tmp_path / "model.npz")
    (tmp_path / "text.txt").write_text(TEXT.replace(" the ", "\n"))
    out = tmp_path / "out.npz"
    command = ["convert", str(tmp_path / "model.npz"), str(out), "--calibration", str(tmp_path / "text.txt")]
    assert main([*command, "--precision", "int4", "--packed"]) == 0
    read = load_model(out)
    assert read.decoder.precision == "int4"
    assert read.decoder.layout is not None
    plain = tmp_path / "plain.npz"
    save(convert_model(model, "int4", importance=measure_importance(model, TEXT.replace(" the ", "\n"))), plain)
    prompts = [[1, 2, 3], [4]]
    found = [Generator.load(path, backend="cython").generate(prompts, max_new_tokens=8) for path in (out, plain)]
    assert [result.ids for result in found[0]] == [result.ids for result in found[1]]
    assert main([*command, "--precision", "int8"]) == 1
    assert "--calibration is about int4 weights" in capsys.readouterr().err
    assert main([*command[:4], "no.txt", "--precision", "int4"]) == 1
    assert "no such file" in capsys.readouterr().err
