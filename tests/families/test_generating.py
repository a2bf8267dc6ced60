"""Generating models of every family: the logits and the greedy tokens of transformers, and configs that are refused.

tests/golden/make/generating.py made the folders.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Generator, load_model
from engine.base.errors import EngineError, InputError, UnsupportedError, WeightsError
from engine.families import get_family
from engine.files.gguf import GgufFile
from engine.files.safetensors import read_safetensors
from engine.model.config import ModelConfig
from engine.weights.bfloat16 import widened

from ..tools.encoders import GENERATORS
from ..tools.gguf_files import gguf
from ..tools.golden_generating import GOLDEN, LONG_CONTEXT, NAMES, Exact, Expected
from ..tools.golden_gguf import WRITTEN, config_of, gguf_of
from ..tools.tiny_models import safetensors, write_json
from .cases import CASES


def copied(name: str, folder: Path, **changes: Any) -> Path:
    """Copy a golden folder, with changes of its config.json; None removes a key."""
    shutil.copytree(GOLDEN / name, folder, dirs_exist_ok=True)
    values = {key: value for key, value in (config_of(name) | changes).items() if value is not None}
    write_json(folder / "config.json", values)
    return folder


def within_limit(model: Any, name: str) -> list[Any]:
    """Return the golden sequences that a model takes: all of them, but for one with another table for long ones."""
    longest = model.decoder.config.longest_sequence or 1000
    found = [sequence for sequence in Expected(name).sequences if len(sequence[1]) <= longest]
    assert len(found) == (3 if name == "phi3_long" and longest == 32 else 4)
    return found


def compare(model: Any, name: str, *, greedy: bool = True) -> None:
    """Compare the logits of all sequences, and the tokens that greedy search gives."""
    exact, settings = Exact(model), model.generation
    for source, ids, expected, tokens in within_limit(model, name):
        found = exact.logits(source, ids)
        assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
        if greedy and (source is None or source.ndim == 1):
            tokens = tokens[1:] if settings.forced_bos_token_id is not None else tokens
            end = settings.eos_token_id[0]
            assert exact.greedy(source, ids, 12) == (tokens[:-1] if tokens[-1] == end else tokens)


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_tokens_of_transformers(name):
    """test_company.py has the tokens of language models."""
    model = load_model(GOLDEN / name, kind="generate")
    compare(model, name, greedy=model.encoder is not None)


@pytest.mark.parametrize("memory", ["map", "copy"])
def test_weights_stay_in_the_file(memory):
    model = load_model(GOLDEN / "bart", memory=memory, kind="generate")
    words = model.decoder.weights["embeddings.word"]
    assert not words.flags.owndata
    assert np.shares_memory(words, model.encoder.weights["embeddings.word"])


@pytest.mark.parametrize("dtype", [np.float16, "BF16"])
def test_files_in_half_precision(tmp_path, dtype):
    """Whisper has a stem; its arrays become float32 as vectors do."""
    from engine.weights.bfloat16 import to_bfloat16
    from engine.weights.input_layers import stem_arrays

    folder = copied("whisper", tmp_path)
    tensors = read_safetensors(GOLDEN / "whisper" / "model.safetensors")
    half = {name: to_bfloat16(a) if dtype == "BF16" else a.astype(dtype) for name, a in tensors.items()}
    (folder / "model.safetensors").write_bytes(
        safetensors(half, **(dict.fromkeys(half, "BF16") if dtype == "BF16" else {})))
    model = load_model(folder, kind="generate")
    stem = model.encoder.stem
    assert {array.dtype for array in stem_arrays(stem).values()} == {np.dtype(np.float32)}
    np.testing.assert_allclose(stem.weight, tensors["model.encoder.conv1.weight"], rtol=0.01)


def test_old_dialects_give_the_same_model(tmp_path):
    """Files of transformers 4: rope_theta beside the rest, causal masks, and copies of tables."""
    for name, changes, more in [
        ("llama", {"rope_parameters": None, "rope_theta": 10000.0}, {"lm_head.weight": "model.embed_tokens.weight"}),
        ("gpt2", {}, {"lm_head.weight": "transformer.wte.weight", "transformer.h.0.attn.bias": "transformer.ln_f.bias",
                      "transformer.h.1.attn.masked_bias": "transformer.ln_f.bias"}),
        ("marian", {"add_bias_logits": False, "static_position_embeddings": True, "normalize_before": False},
         {"model.encoder.version": "final_logits_bias", "model.decoder.version": "final_logits_bias",
          "lm_head.weight": "model.shared.weight", "model.decoder.embed_tokens.weight": "model.shared.weight"}),
        ("bloom", {"n_layer": None, "n_head": None, "num_hidden_layers": 2, "num_attention_heads": 3},
         {"lm_head.weight": "transformer.word_embeddings.weight"}),
        ("gpt_neox", {"rope_parameters": None, "rotary_pct": 0.5, "rotary_emb_base": 500},
         {"gpt_neox.layers.0.attention.bias": "gpt_neox.final_layer_norm.bias",
          "gpt_neox.layers.1.attention.masked_bias": "gpt_neox.final_layer_norm.bias"}),
        ("cohere2", {"rope_parameters": None, "rope_theta": 10000, "rope_scaling": None, "rotary_pct": 1.0,
                     "position_embedding_type": "rope_gptj", "use_qk_norm": False, "use_parallel_block": True,
                     "use_gated_activation": True, "use_embedding_sharing": True, "use_parallel_embedding": False,
                     "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first"}, {}),
        ("granitemoehybrid", {"layer_types": None, "layers_block_type": ["attention", "attention"]}, {}),
        ("olmo3", {"rope_parameters": None, "rope_theta": 800.0, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "original_max_position_embeddings": 16,
            "attention_factor": 1.2}}, {}),
        ("phi3_partial", {"rope_parameters": None, "rope_theta": 300.0, "partial_rotary_factor": 0.75, "rope_scaling": {
            "type": "su", "short_factor": [1.0, 1.25, 1.5], "long_factor": [2.0, 4.0, 8.5]}},
         {"lm_head.weight": "model.embed_tokens.weight"}),
        ("t5", {"scale_decoder_outputs": None}, {"encoder.embed_tokens.weight": "shared.weight",
                                                 "lm_head.weight": "shared.weight",
          "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "shared.weight"}),
    ]:
        folder = copied(name, tmp_path / name, **changes)
        tensors = read_safetensors(folder / "model.safetensors")
        tensors |= {new: tensors[old] for new, old in more.items()}
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        compare(load_model(folder, kind="generate"), name, greedy=False)


@pytest.mark.parametrize("name", ["cohere2", "exaone4"])
def test_which_layers_see_a_window_by_their_number(name):
    """transformers reads sliding_window_pattern where layer_types is absent; the other layers see all keys."""
    values = config_of(name) | {"num_hidden_layers": 6, "sliding_window_pattern": 2, "layer_types": None}
    config = get_family(values).read_generator(values).decoder.config
    assert config.layer_kinds == (1, 0, 1, 0, 1, 0)
    del values["sliding_window_pattern"]
    assert get_family(values).read_generator(values).decoder.config.layer_kinds == (1, 1, 1, 0, 1, 1)


def test_a_bias_of_logits_that_a_file_lacks_is_zero(tmp_path):
    folder = copied("bart", tmp_path)
    tensors = read_safetensors(folder / "model.safetensors")
    tensors.pop("final_logits_bias", None)
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    bias = load_model(folder, kind="generate").decoder.weights["logits.bias"]
    np.testing.assert_array_equal(bias, np.zeros(61, np.float32))


def test_settings_that_the_prompt_of_speech_replaces(tmp_path):
    folder = copied("whisper", tmp_path)
    settings = json.loads((folder / "generation_config.json").read_text())
    write_json(folder / "generation_config.json", settings | {
        "forced_decoder_ids": [[1, 50362]], "no_timestamps_token_id": 50362, "lang_to_id": {"<|en|>": 5},
        "alignment_heads": [[0, 1]], "is_multilingual": False, "task_to_id": {"transcribe": 6}})
    assert load_model(folder, kind="generate").generation.begin_suppress_tokens == (5, 2)


def test_settings_of_generation_come_from_config_json_in_old_folders(tmp_path):
    folder = copied("marian", tmp_path, num_beams=4, max_length=512, bad_words_ids=[[60]])
    (folder / "generation_config.json").unlink()
    settings = load_model(folder, kind="generate").generation
    assert (settings.num_beams, settings.max_length, settings.bad_words_ids) == (4, 512, ((60,),))
    assert settings.decoder_start_token_id == 60


@pytest.mark.parametrize("name", ["mistral", "qwen2", "qwen3"])
def test_keys_that_only_llama_reads(tmp_path, name):
    """transformers reads mlp_bias for Llama alone, and attention_bias for Llama and Qwen3."""
    changes = {"mlp_bias": True} | ({} if name == "qwen3" else {"attention_bias": True})
    compare(load_model(copied(name, tmp_path, **changes), kind="generate"), name, greedy=False)


def test_the_encoder_and_the_decoder_of_qwen3_read_a_config_alike():
    values = config_of("qwen3") | {"mlp_bias": True}
    decoder = get_family(values).read_generator(values).decoder.config
    assert get_family(values).read_encoder(values).config == replace(decoder, logits=None)
    for read in (get_family(values).read_encoder, get_family(values).read_generator):
        with pytest.raises(WeightsError, match="head_dim must be an integer, not None"):
            read(values | {"head_dim": None})


REFUSED = {name: changes for case in CASES for name, changes in case.not_generating.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_configs_that_are_refused(name, refusals):
    refusals(lambda tmp_path, changes: load_model(copied(name, tmp_path, **changes), kind="generate"), REFUSED[name])


def test_a_model_type_that_is_none_of_a_family(tmp_path):
    with pytest.raises(UnsupportedError, match="model_type 'xglm' is not supported"):
        load_model(copied("bart", tmp_path, model_type="xglm"), kind="generate")
    with pytest.raises(WeightsError, match="model_type must name a model family"):
        load_model(copied("bart", tmp_path, model_type=7), kind="generate")


DEFAULTS = {model_type: numbers for case in CASES for model_type, numbers in case.generates.items()}


def test_every_family_has_a_row():
    assert DEFAULTS.keys() == GENERATORS.keys()
    assert sorted(name for case in CASES for name in case.generating) == NAMES
    for case in CASES:
        modules = {GENERATORS[name].read_generator.__module__ for name in case.generates}
        assert modules <= {f"engine.families.{case.module}"}
        assert {config_of(name)["model_type"] for name in case.generating} == case.generates.keys()


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_defaults_are_those_of_transformers(model_type):
    """Some numbers of the configs that transformers makes of nothing."""
    read = get_family({"model_type": model_type}).read_generator
    if model_type == "granitemoehybrid":    # the defaults are those of a mixture of experts
        with pytest.raises(UnsupportedError, match="num_local_experts"):
            read({"model_type": model_type})
        return
    parts = read({"model_type": model_type})
    config: ModelConfig = parts.decoder.config
    assert DEFAULTS[model_type] == (config.hidden_size, config.num_layers, config.num_heads, config.kv_heads,
                                    config.ffn_size, config.vocab_size, config.max_positions, config.logits)


def test_opt_has_biases_unless_a_file_says_no():
    read = get_family({"model_type": "opt"}).read_generator
    assert [bool(read({"model_type": "opt"} | stated).decoder.config.biases)
            for stated in ({}, {"enable_bias": True}, {"enable_bias": False})] == [True, True, False]


UNSTATED = {"gemma2": {"query_pre_attn_scalar": 6}, "gemma3_text": {"query_pre_attn_scalar": 6},
            "gpt2_inner": {"activation_function": "gelu_new"}, "gpt2_unscaled": {"scale_attn_weights": True},
            "gpt_neox_serial": {"hidden_act": "gelu"}, "starcoder2": {"sliding_window": None},
            "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4}}
"""Options of golden models that no GGUF file states, with the values that a file has then."""
NOT_WRITTEN = ("gpt_bigcode_heads", "llama_linear", "llama_scaled", "qwen2_windows", "smollm3")
"""Golden models with options that no GGUF file can have, and one with a tensor that a test of its own adds."""
IN_GGUF = [name for name in NAMES if config_of(name)["model_type"] in WRITTEN and name not in NOT_WRITTEN]


@pytest.mark.parametrize("name", IN_GGUF)
def test_gguf_files_give_the_same_logits(tmp_path, name):
    (tmp_path / "m.gguf").write_bytes(gguf_of(name))
    model = load_model(tmp_path / "m.gguf", kind="generate")
    exact = Exact(model)
    right = Exact(load_model(copied(name, tmp_path, **UNSTATED[name]), kind="generate")) if name in UNSTATED else None
    for _, ids, expected, _ in within_limit(model, name)[1:3]:
        expected = expected if right is None else right.logits(None, ids)
        np.testing.assert_allclose(exact.logits(None, ids), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert model.generation.eos_token_id == (2,)
    assert model.decoder.text is not None


def test_scaled_rotary_positions_of_gguf_files(tmp_path):
    """llama.cpp keeps Llama 3's scaling as a tensor of what the frequencies are divided by."""
    rope = config_of("llama_scaled")["rope_parameters"]
    # The rule of llama.cpp's converter, by wavelengths.
    waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, 6, 2) / 6)
    trained, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = trained / rope["low_freq_factor"], trained / rope["high_freq_factor"]
    share = (trained / waves - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    divisors = np.where(waves < high, 1, np.where(waves > low, factor, 1 / ((1 - share) / factor + share)))
    assert len(set(divisors) - {factor}) == 1, "one pair is scaled by less than the others"
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_of("llama_scaled", {"rope_freqs.weight": divisors.astype(np.float32)}))
    exact = Exact(load_model(path, kind="generate"))
    for _, ids, expected, _ in Expected("llama_scaled").sequences:
        np.testing.assert_allclose(exact.logits(None, ids), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    path.write_bytes(gguf_of("llama_scaled"))
    plain = Exact(load_model(path, kind="generate"))
    assert np.abs(plain.logits(None, ids) - expected).max() > 1e-3 * np.abs(expected).max()


SCALINGS = [
    ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ({"factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),      # as llama.cpp reads a factor without a type
    ({"type": "yarn", "factor": 4.0, "original_context_length": 16},
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
    ({"type": "yarn", "factor": 8.0, "yarn_beta_fast": 8.0, "yarn_beta_slow": 0.5, "yarn_attn_factor": 1.25,
      "yarn_ext_factor": 1.0, "yarn_log_multiplier": 0.0},
     {"rope_type": "yarn", "factor": 8.0, "beta_fast": 8.0, "beta_slow": 0.5, "attention_factor": 1.25}),
    ({"type": "yarn", "factor": 4.0, "attn_factor": 0.5},
     {"rope_type": "yarn", "factor": 4.0, "attention_factor": float(0.5 * (0.1 * np.log(4.0) + 1.0))}),
]
UNROTATED = ("bloom", "gpt2", "gpt_bigcode", "mpt")


@pytest.mark.parametrize(("stated", "scaling"), SCALINGS)
@pytest.mark.parametrize("name", sorted(WRITTEN.keys() - {*UNROTATED, "phi3"}))
def test_scaled_positions_of_a_gguf_file_are_those_of_the_folder(tmp_path, name, stated, scaling):
    """The settings are what llama.cpp's converter makes of the folder's."""
    values = config_of(name) | UNSTATED.get(name, {})
    rope = values.get("rope_parameters") or {}
    if name == "gemma3_text":
        scaled = {"rope_parameters": rope | {"full_attention": {"rope_theta": rope["full_attention"]["rope_theta"]}}}
        scaled["rope_parameters"]["full_attention"] |= scaling
    else:
        scaled = {"rope_parameters": rope | scaling}
    expected = get_family(values).read_generator(values | scaled).decoder.config
    (tmp_path / "m.gguf").write_bytes(gguf_of(name, **({"ARCH.rope.scaling.type": None} | {
        f"ARCH.rope.scaling.{key}": value for key, value in stated.items()})))
    found = load_model(tmp_path / "m.gguf", kind="generate").decoder.config
    assert found.max_positions == expected.max_positions
    for ours, theirs in zip(found.attention_kinds, expected.attention_kinds, strict=True):
        assert ours.rotary_factor == pytest.approx(theirs.rotary_factor, rel=1e-15)
        assert replace(ours, rotary_factor=1.0) == replace(theirs, rotary_factor=1.0)
    assert expected.attention_kinds != get_family(values).read_generator(
        values | {"rope_parameters": None}).decoder.config.attention_kinds


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_logits_of_yarn_in_a_gguf_file(tmp_path, name):
    """The rows of llama's queries and keys lie in another order there."""
    stated, scaling = SCALINGS[2]
    folder = copied(name, tmp_path / "model", rope_parameters=config_of(name)["rope_parameters"] | scaling)
    (tmp_path / "m.gguf").write_bytes(gguf_of(name, **{
        f"ARCH.rope.scaling.{key}": value for key, value in stated.items()}))
    found, right, plain = (Exact(load_model(path, kind="generate")) for path in (
        tmp_path / "m.gguf", folder, GOLDEN / name))
    ids = np.arange(3, 40) % 61
    expected = right.logits(None, ids)
    np.testing.assert_allclose(found.logits(None, ids), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert np.abs(plain.logits(None, ids) - expected).max() > 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize(("name", "stated", "words"), [
    ("llama", {"type": "dynamic"}, r"llama\.rope\.scaling\.type = 'dynamic' is not supported here; only 'none' or"),
    ("llama", {"type": "linear", "attn_factor": 1.5}, r"attn_factor = 1\.5 is not supported here; only 1\.0 is"),
    ("llama", {"type": "yarn", "factor": 4.0, "yarn_ext_factor": 0.5}, r"yarn_ext_factor = 0\.5"),
    ("llama", {"type": "yarn", "factor": 4.0, "yarn_log_multiplier": 0.1}, r"yarn_log_multiplier = 0\.1"),
    ("llama", {"type": np.ones(2, np.float32)}, r"rope\.scaling\.type = .* only one value is"),
    ("llama", {"type": "yarn"}, "needs a factor"), ("llama", {"type": "linear", "factor": 1e-9}, "needs a factor"),
    ("llama", {"type": "yarn", "factor": "x"}, "factor must be a number, not 'x'"),
    ("phi3_long", {"type": "yarn", "factor": 4.0}, r"type = 'yarn' is not supported here; only 'none' or 'longrope'"),
    *((name, {"type": "linear", "factor": 4.0}, "type = 'linear' is not supported here; only 'none' is. Load the folder"
       " that the file was made from") for name in UNROTATED),
])
def test_scaled_positions_that_a_gguf_file_cannot_have(tmp_path, name, stated, words):
    (tmp_path / "m.gguf").write_bytes(gguf_of(name, **{
        f"ARCH.rope.scaling.{key}": value for key, value in stated.items()}))
    with pytest.raises((UnsupportedError, WeightsError), match=words):
        load_model(tmp_path / "m.gguf", kind="generate")


@pytest.mark.parametrize("divisors", [np.ones(4), np.ones((1, 3)), np.zeros(3), np.array([1, np.nan, 1])])
def test_bad_scalings_of_gguf_files(tmp_path, divisors):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_of("llama", {"rope_freqs.weight": divisors.astype(np.float32)}))
    with pytest.raises(WeightsError, match=r"m\.gguf: rope_freqs\.weight must hold .* each of the 3 pairs"):
        load_model(path, kind="generate")


def test_gguf_models_in_several_files(tmp_path):
    whole, paths = gguf_of("qwen3"), [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    (tmp_path / "m.gguf").write_bytes(whole)
    file = GgufFile(tmp_path / "m.gguf")
    arrays = {name: np.array(array) for name, array in file.read().items()}
    names = sorted(arrays)
    for i, path in enumerate(paths):
        split = {"split.no": i, "split.count": 2, "split.tensors.count": len(names)}
        path.write_bytes(gguf((file.settings if i == 0 else {}) | split, {name: arrays[name] for name in names[i::2]}))
    found = load_model(paths[0], kind="generate").decoder
    expected = load_model(tmp_path / "m.gguf", kind="generate").decoder
    assert found.config == expected.config
    for name, array in expected.weights.items():
        np.testing.assert_array_equal(found.weights[name], array)


@pytest.mark.parametrize(("changes", "words"), [
    ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported"),
    ({"general.architecture": None}, "architecture None is not supported"),
    ({"ARCH.expert_count": 8}, "expert_count = 8"),
    ({"ARCH.attention.sliding_window": 64}, "sliding_window = 64"),
    ({"ARCH.rope.dimension_count": 4}, "rope.dimension_count = 4"), ({"split.count": np.ones(2)}, "split.count"),
    ({"ARCH.rope.dimension_count": np.ones(2)}, "rope.dimension_count"), ({"ARCH.expert_count": ["a"]}, "expert_count"),
    ({"ARCH.attention.head_count": np.array([4, 4], np.int32)}, "another num_attention_heads in each layer"),
    ({"ARCH.attention.key_length": np.array([4, 4], np.int32)}, "another head_dim in each layer"),
    ({"ARCH.block_count": None}, "lack llama.block_count"), ({"ARCH.embedding_length": "x"}, "hidden_size"),
    ({"tokenizer.ggml.model": "none"}, "tokenizer.ggml.model 'none'"),
    ({"tokenizer.ggml.tokens": ["a", "a"]}, "list of different texts"),
])  # fmt: skip
def test_bad_gguf_models(tmp_path, changes, words):
    (tmp_path / "m.gguf").write_bytes(gguf_of("llama", **changes))
    with pytest.raises(EngineError, match=words) as caught:
        load_model(tmp_path / "m.gguf", kind="generate")
    assert "m.gguf" in str(caught.value)


@pytest.mark.parametrize("name", ["llama", "phi"])
def test_values_of_a_gguf_file_are_as_wide_as_keys(tmp_path, name):
    """Also where some columns of a head rotate, and rope.dimension_count is smaller."""
    (tmp_path / "m.gguf").write_bytes(gguf_of(name, **{"ARCH.attention.value_length": 7}))
    with pytest.raises(UnsupportedError, match=r"attention\.value_length = 7"):
        load_model(tmp_path / "m.gguf", kind="generate")


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_the_text_of_a_folder_with_images(tmp_path, prefix):
    """transformers 5 writes the first prefix, and version 4 the second one."""
    arrays = read_safetensors(GOLDEN / "gemma3_text" / "model.safetensors")
    tensors = {name.replace("model.", prefix, 1): widened(array) for name, array in arrays.items()}
    start = "model." if prefix.startswith("model.") else ""
    tensors |= {f"{start}vision_tower.vision_model.post_layernorm.weight": np.ones(3, np.float32),
                f"{start}multi_modal_projector.mm_soft_emb_norm.weight": np.ones(3, np.float32)}
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    text = {key: value for key, value in config_of("gemma3_text").items() if key != "architectures"}
    write_json(tmp_path / "config.json", {"model_type": "gemma3", "text_config": text, "vision_config": {},
                                          "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [2]})
    found, right = (Generator.load(path, backend="reference") for path in (tmp_path, GOLDEN / "gemma3_text"))
    assert found.generate([[3, 4, 5]], max_new_tokens=8)[0].ids == right.generate([[3, 4, 5]], max_new_tokens=8)[0].ids
    scores = [model.score([[3, 4, 5]])[0].log_probabilities.tolist() for model in (found, right)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("of_file", [False, True], ids=["folder", "GGUF"])
def test_two_tables_of_positions(tmp_path, of_file):
    """A load takes one of the tables; transformers takes the long one for whole sequences beyond the first limit."""
    path = GOLDEN / "phi3_long"
    if of_file:
        path = tmp_path / "m.gguf"
        path.write_bytes(gguf_of("phi3_long"))
    short, long = (load_model(path, kind="generate", long_context=flag) for flag in (False, True))
    assert (short.decoder.config.longest_sequence, long.decoder.config.longest_sequence) == (32, 64)
    *_, (_, ids, expected, _) = Expected("phi3_long").sequences
    assert np.abs(Exact(long).logits(None, ids) - expected).max() <= 1e-6 * np.abs(expected).max()
    _, ids, expected, _ = Expected("phi3_long").sequences[2]
    assert np.abs(Exact(long).logits(None, ids) - expected).max() > 1e-3 * np.abs(expected).max()
    generator = Generator.load(path, backend="reference")
    for call, least in ((lambda: generator.generate([[3] * 33], max_new_tokens=1), "at most 32; shorten it"),
                        (lambda: generator.generate([[3] * 30], max_new_tokens=4), "give at most 3"),
                        (lambda: generator.score([[3] * 34]), "at most 33; shorten it"),
                        (lambda: generator.score([[3]], [[3] * 33]), "shorten it"),
                        (lambda: generator.stream([3] * 33), "at most 32; shorten it")):
        with pytest.raises(InputError, match=rf"{least}, or load the model with long_context=True \(--long-context\), "
                                             "with which it reads 64 tokens"):
            call()
    with pytest.raises(InputError, match=r"at most 64; shorten it$"):
        Generator.load(path, backend="reference", long_context=True).generate([[3] * 65], max_new_tokens=1)


@pytest.mark.parametrize("name", ["phi3", "bart"])
def test_other_models_refuse_a_long_context(name):
    with pytest.raises(UnsupportedError, match="long_context=True is for language models"):
        Generator.load(GOLDEN / name, backend="reference", long_context=True)


def _with_answers():
    with np.load(GOLDEN / "gguf_architectures.npz") as file:
        return [name for name in file.files if name in NAMES]


@pytest.mark.parametrize("name", _with_answers())
def test_log_probabilities_of_llama_cpp(tmp_path, name):
    """The golden ones are those of llama-server, which computes GELU with a table of float16."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_of(name))
    # Its context of 64 tokens is beyond the length of the training of models with two tables of positions.
    model = load_model(path, kind="generate", long_context=name in LONG_CONTEXT)
    _, ids, _, _ = Expected(name).sequences[2]
    last = Exact(model).logits(None, ids)[-1]
    found = last - last.max() - np.log(np.exp(last - last.max()).sum())
    with np.load(GOLDEN / "gguf_architectures.npz") as file:
        expected = file[name]
    assert np.abs(found - expected).max() <= (5e-3 if model.decoder.config.activation.startswith("gelu") else 5e-6)
