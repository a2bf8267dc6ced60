"""Make the golden files of generating models: folders of small random models of transformers, and what they give.

    python -m tests.golden.make.generating [NAME ...]

The script writes the folders generating/NAME that `MODELS` lists, or only the ones named, each with the files that
transformers saves (config.json, generation_config.json, model.safetensors) and with expected.npz. The latter holds, for
sequence i of `LENGTHS`, ids_{i} [T] of the decoder, logits_{i} [T,V] in float64 arithmetic, and for a model with an
encoder source_{i} [S], or the features [mel bins, frames] of a model that reads sound; and for greedy search the new
tokens greedy_{i}, after the first `PROMPT` ids of a model without an encoder. For the sequences `WEIGHED` of a model
with an encoder, cross_{i} [L,H,T,S] holds the weights of the decoder's cross-attention.
"""

import json
import shutil
import sys
from typing import Any

import numpy as np
import torch
import transformers as hf

from tests.tools.paths import DECODERS

from .scaffold import float64_throughout

LENGTHS = ((1, 1), (2, 5), (17, 3), (40, 23))
"""The tokens of a sequence, and those of its source."""
VOCAB = 61
PROMPT = 3
NEW_TOKENS = 12
EOS = 2
WEIGHED = (0, 1, 2)
"""The sequences of which the weights of cross-attention are kept: the short ones, so that the files stay small."""

BART = {"vocab_size": VOCAB, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 10, "decoder_ffn_dim": 14, "max_position_embeddings": 64,
        "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": EOS, "decoder_start_token_id": EOS}  # fmt: skip
MARIAN = BART | {"pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "forced_eos_token_id": EOS}
PEGASUS = BART | {"pad_token_id": 0, "decoder_start_token_id": 0, "bos_token_id": None}
T5 = {"vocab_size": VOCAB, "d_model": 12, "d_kv": 5, "d_ff": 14, "num_layers": 1, "num_decoder_layers": 2,
      "num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
      "decoder_start_token_id": 0, "eos_token_id": EOS, "pad_token_id": 0}  # fmt: skip
LLAMA = {"vocab_size": VOCAB, "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64,
         "bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0}  # fmt: skip
GPT2 = {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 1,
        "eos_token_id": EOS}  # fmt: skip
WHISPER = {"vocab_size": VOCAB, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
           "decoder_attention_heads": 3, "encoder_ffn_dim": 10, "decoder_ffn_dim": 14, "num_mel_bins": 7,
           "max_source_positions": 18, "max_target_positions": 64, "decoder_start_token_id": 4, "eos_token_id": EOS,
           "pad_token_id": EOS, "bos_token_id": EOS, "begin_suppress_tokens": [5, EOS]}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
          "original_max_position_embeddings": 16}  # fmt: skip

GEMMA3 = LLAMA | {
    "num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 6, "query_pre_attn_scalar": 5, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 700.0}}}  # fmt: skip

SQUARE = {key: value for key, value in LLAMA.items() if key != "head_dim"} | {
    "num_attention_heads": 2, "num_key_value_heads": 1}
"""LLAMA for models whose heads share the hidden size."""
GPT = {"vocab_size": VOCAB, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4, "bos_token_id": 1,
       "eos_token_id": EOS}  # fmt: skip
WINDOWS = {"num_hidden_layers": 3, "sliding_window": 7,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
MULTIPLIERS = {"embedding_multiplier": 12.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22,
               "logits_scaling": 8.0, "tie_word_embeddings": True}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "rope_theta": 300.0, "short_factor": [1.0, 1.25, 1.5],
            "long_factor": [2.0, 4.0, 8.5]}  # fmt: skip

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", "BartConfig", BART),
    "bart_forced": ("BartForConditionalGeneration", "BartConfig", BART | {
        "forced_bos_token_id": 0, "activation_function": "gelu_new", "scale_embedding": True}),
    "blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", BART | {
        "scale_embedding": True, "forced_eos_token_id": EOS}),
    "blenderbot_relu": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", BART | {
        "activation_function": "relu", "encoder_layers": 2, "decoder_layers": 1}),
    "bart_relu": ("BartForConditionalGeneration", "BartConfig", BART | {
        "activation_function": "relu", "encoder_layers": 2, "decoder_layers": 1}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {
        "vocab_size": VOCAB, "hidden_size": 12, "n_layer": 2, "n_head": 3, "bos_token_id": 1, "eos_token_id": EOS}),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", GPT | {"rotary_dim": 2}),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", LLAMA | WINDOWS | {"logit_scale": 0.25}),
    "ernie4_5": ("Ernie4_5ForCausalLM", "Ernie4_5Config", LLAMA | {"use_bias": True}),
    "exaone4": ("Exaone4ForCausalLM", "Exaone4Config", LLAMA | WINDOWS | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 900.0}}),
    "exaone4_whole": ("Exaone4ForCausalLM", "Exaone4Config", LLAMA | {
        "sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True}),
    "falcon": ("FalconForCausalLM", "FalconConfig", {
        "vocab_size": VOCAB, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": EOS}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", LLAMA | {"hidden_act": "gelu_pytorch_tanh"}),
    "gemma3": ("Gemma3ForConditionalGeneration", "Gemma3Config", {
        "text_config": GEMMA3 | {"attention_bias": True}, "mm_tokens_per_image": 1, "eos_token_id": EOS,
        "image_token_index": VOCAB - 1, "vision_config": {
            "hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 4,
            "patch_size": 2}}),
    "gemma3_text": ("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA3),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", LLAMA | WINDOWS | {
        "query_pre_attn_scalar": 5, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}),
    "glm": ("GlmForCausalLM", "GlmConfig", LLAMA | {
        "head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "gpt2_inner": ("GPT2LMHeadModel", "GPT2Config", GPT2 | {"n_inner": 17, "activation_function": "gelu"}),
    "gpt2_unscaled": ("GPT2LMHeadModel", "GPT2Config", GPT2 | {"scale_attn_weights": False, "n_head": 2}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT),
    "gpt_bigcode_heads": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT | {"multi_query": False, "n_inner": 20}),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {
        "vocab_size": VOCAB, "hidden_size": 12, "num_layers": 3, "num_heads": 3, "window_size": 5,
        "attention_types": [[["global", "local"], 1], [["local"], 1]], "max_position_embeddings": 64,
        "bos_token_id": 1, "eos_token_id": EOS}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SQUARE | {
        "hidden_size": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                               "partial_rotary_factor": 0.5}}),
    "gpt_neox_serial": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SQUARE | {
        "hidden_size": 16, "use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new"}),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", GPT | {"n_head": 2, "rotary_dim": 4}),
    "granite": ("GraniteForCausalLM", "GraniteConfig", SQUARE | MULTIPLIERS),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", SQUARE | MULTIPLIERS | {
        "shared_intermediate_size": 14, "num_local_experts": 0, "layer_types": ["full_attention"] * 2,
        "position_embedding_type": "rope", "mamba_n_heads": 2}),
    "granitemoehybrid_bare": ("GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig", SQUARE | {
        "shared_intermediate_size": 14, "num_local_experts": 0, "layer_types": ["full_attention"] * 2,
        "mamba_n_heads": 2}),
    "helium": ("HeliumForCausalLM", "HeliumConfig", SQUARE | {"head_dim": 6}),
    "internlm3": ("LlamaForCausalLM", "InternLM3Config", LLAMA),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"tie_word_embeddings": True}),
    "llama_linear": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}}),
    "llama_biased": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {
        "attention_bias": True, "mlp_bias": True, "head_dim": None, "num_attention_heads": 3,
        "num_key_value_heads": 1}),
    "llama_scaled": ("LlamaForCausalLM", "LlamaConfig", LLAMA | {"rope_parameters": LLAMA3}),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", BART),
    "m2m_100_forced": ("M2M100ForConditionalGeneration", "M2M100Config", BART | {
        "forced_bos_token_id": 9, "scale_embedding": False, "activation_function": "gelu"}),
    "m2m_100_odd": ("M2M100ForConditionalGeneration", "M2M100Config", BART | {
        "d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5}),
    "marian": ("MarianMTModel", "MarianConfig", MARIAN | {"activation_function": "swish", "scale_embedding": True}),
    "marian_odd": ("MarianMTModel", "MarianConfig", MARIAN | {
        "d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5, "activation_function": "relu"}),
    "marian_own": ("MarianMTModel", "MarianConfig", MARIAN | {
        "share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCAB, "vocab_size": VOCAB + 9}),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig", BART),
    "mbart_relu": ("MBartForConditionalGeneration", "MBartConfig", BART | {
        "activation_function": "relu", "scale_embedding": True}),
    "mbart_forced": ("MBartForConditionalGeneration", "MBartConfig", BART | {
        "forced_bos_token_id": 9, "encoder_layers": 2, "decoder_layers": 1}),
    "mistral": ("MistralForCausalLM", "MistralConfig", LLAMA | {"sliding_window": 7}),
    "ministral": ("MinistralForCausalLM", "MinistralConfig", LLAMA | WINDOWS),
    "mpt": ("MptForCausalLM", "MptConfig", {
        "vocab_size": VOCAB, "d_model": 12, "n_layers": 2, "n_heads": 3, "max_seq_len": 64, "bos_token_id": 1,
        "eos_token_id": EOS}),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5),
    "olmo": ("OlmoForCausalLM", "OlmoConfig", SQUARE),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", SQUARE),
    "olmo3": ("Olmo3ForCausalLM", "Olmo3Config", SQUARE | WINDOWS | {"rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 800.0, "factor": 4.0, "beta_fast": 8.0,
                           "original_max_position_embeddings": 16, "attention_factor": 1.2},
        "sliding_attention": {"rope_type": "default", "rope_theta": 800.0}}}),
    "opt": ("OPTForCausalLM", "OPTConfig", {
        "vocab_size": VOCAB, "hidden_size": 12, "num_hidden_layers": 2, "ffn_dim": 14, "num_attention_heads": 3,
        "max_position_embeddings": 64, "bos_token_id": EOS, "eos_token_id": EOS}),
    "phi": ("PhiForCausalLM", "PhiConfig", SQUARE | {
        "hidden_size": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 600.0,
                                               "partial_rotary_factor": 0.5}}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", SQUARE | {"sliding_window": 7}),
    "phi3_long": ("Phi3ForCausalLM", "Phi3Config", SQUARE | {
        "original_max_position_embeddings": 32, "rope_parameters": LONGROPE}),
    "phi3_partial": ("Phi3ForCausalLM", "Phi3Config", SQUARE | {
        "hidden_size": 16, "tie_word_embeddings": True, "original_max_position_embeddings": 48,
        "rope_parameters": LONGROPE | {"partial_rotary_factor": 0.75}}),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", PEGASUS | {
        "scale_embedding": True, "activation_function": "relu"}),
    "pegasus_odd": ("PegasusForConditionalGeneration", "PegasusConfig", PEGASUS | {
        "d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 5}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {k: v for k, v in LLAMA.items() if k != "head_dim"} | {
        "num_attention_heads": 6, "tie_word_embeddings": True}),
    "qwen2_windows": ("Qwen2ForCausalLM", "Qwen2Config", SQUARE | {
        "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", LLAMA | {"tie_word_embeddings": True}),
    "seed_oss": ("SeedOssForCausalLM", "SeedOssConfig", LLAMA | {"attention_out_bias": True}),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", LLAMA | {
        "num_hidden_layers": 3, "no_rope_layer_interval": 2, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 2000.0}}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", SQUARE | {
        "hidden_size": 16, "use_qkv_bias": True, "rope_parameters": {
            "rope_type": "default", "rope_theta": 400.0, "partial_rotary_factor": 0.25}}),
    "stablelm_parallel": ("StableLmForCausalLM", "StableLmConfig", SQUARE | {
        "hidden_size": 16, "use_parallel_residual": True}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", SQUARE | {"sliding_window": 7}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5 | {"feed_forward_proj": "relu"}),
    "t5_own": ("T5ForConditionalGeneration", "T5Config", T5 | {
        "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "umt5": ("UMT5ForConditionalGeneration", "UMT5Config", T5),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
    "whisper_relu": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER | {
        "activation_function": "relu", "encoder_layers": 2, "decoder_layers": 1}),
    "whisper_wide": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER | {
        "num_mel_bins": 10, "d_model": 18, "scale_embedding": True}),
}
"""By folder: the class of the model, the class of its config and the arguments of the latter."""


def randomize(model) -> None:
    """Give every parameter numbers that matter, in steps of 1/64 to keep files small; those of norms lie around 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            weight_of_norm = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if weight_of_norm else 0.0, 0.25).mul_(64).round_().div_(64)
        for name, buffer in model.named_buffers():
            if name.endswith("final_logits_bias"):
                buffer.normal_(0.0, 0.5)


def inputs_of(model, rng: np.random.Generator, S: int) -> np.ndarray | None:
    """Return ids of a source, random features of a sound, or None for a model without an encoder."""
    config = model.config
    if not config.is_encoder_decoder:
        return None
    if config.model_type == "whisper":
        return rng.standard_normal((config.num_mel_bins, 2 * config.max_source_positions)).astype(np.float32)
    return np.append(rng.integers(3, VOCAB - 1, S), EOS)


def greedy(model, source: dict[str, torch.Tensor], prompt: list[int]) -> np.ndarray:
    """Return the new tokens of greedy search, one forward pass for each, without transformers' own search."""
    settings = model.generation_config
    tokens, first = list(prompt), len(prompt)
    while len(tokens) == first or (len(tokens) < first + NEW_TOKENS and tokens[-1] != EOS):
        name = "decoder_input_ids" if source else "input_ids"
        scores = model(**source, **{name: torch.tensor([tokens])}, use_cache=False).logits[0, -1]
        if len(tokens) == first and settings.begin_suppress_tokens:
            scores[settings.begin_suppress_tokens] = -torch.inf
        forced = settings.forced_bos_token_id if len(tokens) == 1 else None
        tokens.append(int(scores.argmax()) if forced is None else forced)
    return np.array(tokens[first:], np.uint8)


def cross_weights(model, given: dict[str, torch.Tensor], ids: np.ndarray) -> np.ndarray:
    """Return the weights of cross-attention [L,H,T,S] of a model."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    found = model(**given, decoder_input_ids=torch.from_numpy(ids)[None], use_cache=False, output_attentions=True)
    model.set_attn_implementation(implementation)
    return torch.cat(found.cross_attentions).numpy()


def main(names: list[str]) -> None:
    """Write the folders named, or all."""
    for name in names or MODELS:
        kind, config, options = MODELS[name]
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        model = getattr(hf, kind)(getattr(hf, config)(**options))
        for key in ("forced_bos_token_id", "begin_suppress_tokens"):
            setattr(model.generation_config, key, options.get(key))
        with torch.no_grad():
            randomize(model)
            for module in model.modules():
                if hasattr(module, "create_weight"):  # Marian's sinusoids, which are no parameters in spirit
                    module.weight.copy_(module.create_weight())
            if kind.startswith("T5") and not options.get("tie_word_embeddings", True):
                # transformers 5 ties the logits in any case; files of version 4 have a matrix of its own for them.
                own = torch.randn(VOCAB, 12).mul(16).round().div(64)
                model.lm_head.weight = torch.nn.Parameter(own)
        folder = DECODERS / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        model, arrays = model.double().eval(), {}
        for i, (T, S) in enumerate(LENGTHS):
            ids, source = rng.integers(3, VOCAB - 1, T), inputs_of(model, rng, S)  # no padding, which moves positions
            given, start = {}, [int(number) for number in ids[:PROMPT]]
            if source is not None:
                arrays[f"source_{i}"] = source if source.dtype == np.float32 else source.astype(np.uint8)
                start = [model.config.decoder_start_token_id]
                given = {"input_features" if source.ndim == 2 else "input_ids":
                         torch.from_numpy(source.astype(float) if source.ndim == 2 else source)[None]}  # fmt: skip
            with torch.inference_mode(), float64_throughout(type(model), angles=False):
                key = "input_ids" if source is None else "decoder_input_ids"
                logits = model(**given, **{key: torch.from_numpy(ids)[None]}, use_cache=False).logits[0].numpy()
                arrays[f"greedy_{i}"] = greedy(model, given, start)
                if source is not None and i in WEIGHED:
                    arrays[f"cross_{i}"] = cross_weights(model, given, ids).astype(np.float32)
            arrays |= {f"ids_{i}": ids.astype(np.uint8), f"logits_{i}": logits.astype(np.float32)}
        np.savez_compressed(folder / "expected.npz", **arrays)
        print(name, json.dumps([arrays[f"greedy_{i}"].tolist() for i in range(len(LENGTHS))]))


if __name__ == "__main__":
    main(sys.argv[1:])
