"""Models that CTranslate2 converted: the log probabilities of its own engine, and what is refused.

tests/golden/make/ctranslate2.py made the folders, and ctranslate2_whisper.py that of a model of speech.
"""

import json
from typing import Any

import numpy as np
import pytest

from engine import load_model, save
from engine.backends.steps import Row
from engine.base.errors import EngineError, WeightsError
from engine.encoding.packing import pack
from engine.files.ctranslate2 import CTranslate2File
from engine.loading.ctranslate2 import read_parts

from ..tools.changed_folders import copied
from ..tools.ctranslate2_files import ctranslate2
from ..tools.golden_generating import Exact, Expected
from ..tools.paths import CTRANSLATE2

GOLDEN = CTRANSLATE2
NAMES = ["plain", "post", "pre"]


@pytest.mark.parametrize("name", NAMES)
def test_the_log_probabilities_of_ctranslate2(name):
    model = load_model(GOLDEN / name, kind="generate")
    exact, words = Exact(model), json.loads((GOLDEN / name / "shared_vocabulary.json").read_text())
    assert model.decoder.config.logits == "tied"
    settings = model.generation
    assert (settings.eos_token_id, settings.bos_token_id, settings.decoder_start_token_id) == ((2,), 1, 2)
    for source, target, expected in json.loads((GOLDEN / name / "expected.json").read_text()):
        ids = [words.index(word) for word in target]
        batch, _ = pack(model.encoder.config, [[words.index(word) for word in source]])
        request = exact.decoder.open()
        exact.decoder.cache_sources([request], exact.forward(batch), batch.cu_seqlens)
        _, logits = exact.decoder.step_unrounded([Row(request, None, np.array([2, *ids]), 1 + len(ids))])
        logits -= np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) + logits.max(
            1, keepdims=True)  # fmt: skip
        # CTranslate2 computes in float32; without a last norm, logits are in the hundreds.
        np.testing.assert_allclose(logits[np.arange(len(ids) + 1), [*ids, 2]], expected, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("name", ["whisper"])
def test_the_logits_of_the_folder_that_was_converted(name):
    exact = Exact(load_model(GOLDEN / name, kind="generate"))
    for source, ids, expected, _ in Expected(name).sequences:
        assert np.abs(exact.logits(source, ids) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_saved_and_read_again(tmp_path):
    model = load_model(GOLDEN / "pre", kind="generate")
    save(model, tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz", kind="generate")
    assert again.decoder.config == model.decoder.config
    np.testing.assert_array_equal(again.decoder.weights["logits.bias"], model.decoder.weights["logits.bias"])


def test_an_epsilon(tmp_path):
    copied(tmp_path, GOLDEN / "pre", config={"layer_norm_epsilon": 0.25})
    assert load_model(tmp_path, kind="generate").encoder.config.norm_eps == 0.25
    (tmp_path / "config.json").unlink()
    assert load_model(tmp_path, kind="generate").encoder.config.norm_eps == 1e-5


def test_logits_of_their_own(tmp_path):
    file = CTranslate2File(GOLDEN / "float32.bin")
    arrays = {name: array for name, array in file.read().items() if name != "decoder/projection/weight"}
    arrays["decoder/projection/weight"] = np.ones((11, 8), np.float32)
    settings = {name: np.array(value, np.int8) for name, value in file.settings.items()}
    (tmp_path / "model.bin").write_bytes(ctranslate2(arrays | settings, spec="TransformerSpec"))
    decoder = load_model(tmp_path, kind="generate").decoder
    assert decoder.config.logits == "own"
    assert (decoder.weights["logits.weight"] == 1).all()


def changed(**changes: Any) -> tuple[str, dict[str, float], dict[str, tuple[int, ...]], dict[str, Any]]:
    """Return the arguments of `read_parts` for a golden file, with changes; None removes an entry."""
    file = CTranslate2File(GOLDEN / "float32.bin")
    tables: dict[str, dict[str, Any]] = {"settings": dict(file.settings), "shapes": file.shapes, "values": {}}
    for table, values in changes.items():
        if table in tables:
            tables[table] = {name: value for name, value in (tables[table] | values).items() if value is not None}
    return changes.get("specification", "TransformerSpec"), tables["settings"], tables["shapes"], tables["values"]


def test_models_that_are_refused(refusals):
    refusals(lambda changes: read_parts(*changed(**changes)), [
        {"specification": "TransformerDecoderSpec"}, {"settings": {"encoder/alibi": 1}},
        {"settings": {"decoder/start_from_zero_embedding": 1}}, {"settings": {"encoder/multi_query_attention": 1}},
        {"settings": {"decoder/activation": 6}}, {"settings": {"encoder/scale_embeddings": 0.5}},
        {"values": {"multi_query_attention": True}}, {"values": {"quantization_type": 1}},
    ])


def test_models_that_are_wrong(refusals):
    refusals(lambda changes: read_parts(*changed(**changes)), [
        {"shapes": {"encoder/layer_0/ffn/linear_0/weight": None}},
        {"shapes": {"decoder/position_encodings/encodings": (3,)}}, {"shapes": {"decoder/embeddings/weight": None}},
        {"settings": {"encoder/num_heads": 3}}, {"values": {"layer_norm_epsilon": "x"}},
    ])


@pytest.mark.parametrize(("file", "data"), [
    ("shared_vocabulary.json", b"{}"), ("shared_vocabulary.json", b"[3]"), ("config.json", b"[]"),
    ("model.bin", b"\6\0\0\0"),
])  # fmt: skip
def test_bad_files(tmp_path, file, data):
    (copied(tmp_path, GOLDEN / "pre") / file).write_bytes(data)
    with pytest.raises(EngineError, match=file):
        load_model(tmp_path, kind="generate")


def test_a_vocabulary_of_lines(tmp_path):
    words = json.loads((copied(tmp_path, GOLDEN / "pre") / "shared_vocabulary.json").read_text())
    (tmp_path / "shared_vocabulary.json").unlink()
    (tmp_path / "shared_vocabulary.txt").write_text("\n".join(words) + "\n")
    assert load_model(tmp_path, kind="generate").generation.eos_token_id == (2,)
    (tmp_path / "shared_vocabulary.txt").write_bytes(b"\xff")
    with pytest.raises(WeightsError, match="not UTF-8"):
        load_model(tmp_path, kind="generate")
