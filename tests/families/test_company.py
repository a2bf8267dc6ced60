"""Language models of every family on the compiled kernels: near float64, the same bits alone and in company."""

import numpy as np
import pytest

from engine import Generator, load_model, save
from engine.weights.quantize import convert_model

from ..tools.encoders import GENERATORS
from ..tools.golden_generating import GOLDEN, NAMES, PROMPT, Expected
from ..tools.golden_gguf import config_of

pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")


def _is_language_model(name):
    values = config_of(name)
    return GENERATORS[values["model_type"]].read_generator(values).encoder is None


MODELS = [name for name in NAMES if _is_language_model(name)]
PROMPTS = [[3, 9, 4], [11, 30, 31, 5, 6, 8, 40, 2, 19]]
PRECISIONS = ("float32", "bfloat16", "int8", "int4")


def _one_of_each_program():
    """Return one model of each kind of program."""
    found = {}
    for name in MODELS:
        values = config_of(name)
        config = GENERATORS[values["model_type"]].read_generator(values).decoder.config
        kinds = {(kind.window is None, kind.rotary_theta is None, kind.rotary_interleaved, kind.rotary_width is None)
                 for kind in config.attention_kinds}
        found.setdefault((config.norm_place, config.norm, config.head_norm, config.joint_norm, config.gated,
                          config.attention_bias, config.attention_softcap > 0, frozenset(kinds)), name)
    return list(found.values())


EACH = _one_of_each_program()


@pytest.mark.parametrize("name", EACH)
def test_alone_and_in_company(tmp_path, name):
    """Each model runs in one of the precisions, in turns; it is the same from an .npz."""
    precision, model = PRECISIONS[EACH.index(name) % 4], load_model(GOLDEN / name, kind="generate")
    model = model if precision == "float32" else convert_model(model, precision)
    together, alone = (Generator(model, backend="cython", threads=threads, precision=precision) for threads in (3, 1))
    found = together.generate(PROMPTS, max_new_tokens=5, num_beams=3)
    own = [alone.generate([prompt], max_new_tokens=5, num_beams=3)[0] for prompt in PROMPTS]
    assert [(one.ids, one.score) for one in own] == [(one.ids, one.score) for one in found]
    save(model, tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz", kind="generate").decoder
    assert again.config == model.decoder.config
    assert again.weights.keys() == model.decoder.weights.keys()
    for name, array in model.decoder.weights.items():
        np.testing.assert_array_equal(again.weights[name], array)


@pytest.mark.parametrize("name", MODELS)
def test_near_float64(name):
    model = load_model(GOLDEN / name, kind="generate")
    generator = Generator(model, backend="cython", threads=2)
    longest = model.decoder.config.longest_sequence or 1000
    for _, ids, logits, tokens in Expected(name).sequences:
        if len(ids) > longest:
            continue
        wide = logits.astype(np.float64)
        shifted = wide - wide.max(axis=1, keepdims=True)
        right = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))[np.arange(len(ids) - 1), ids[1:]]
        if len(ids) > 1:
            found = generator.score([ids.tolist()])[0].log_probabilities
            assert np.abs(found - right).max() <= 2e-5 * max(1.0, np.abs(wide).max())
        found = generator.generate([ids[:PROMPT].tolist()], max_new_tokens=12, num_beams=1)[0].ids
        assert list(found) == (tokens[:-1] if tokens[-1] == 2 else tokens)
    beams = [one.generate(PROMPTS[:1], max_new_tokens=4, num_beams=2)[0].ids
             for one in (generator, Generator(model, backend="reference"))]
    assert beams[0] == beams[1]
