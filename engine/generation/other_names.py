"""What other libraries call the arguments of a search, and of scores.

`same` names our argument, with pairs (theirs, ours). `instead` has advice, then the values that are accepted because
they change nothing; `nothing` says in front of the advice that the engine has nothing like it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.other_names import (
    AS_ARGUMENTS,
    BATCHES,
    CHAT,
    CPU,
    LACKS,
    PADDING,
    POSITIONAL,
    OtherName,
    instead,
    nothing,
    register,
    same,
)

_STOP = ("eos_token_id=[...] ends a result at a token; for a text, read stream(...) and leave its loop when the text "
         "has come")
_PROBABILITIES = "a result has its score, and score(inputs, targets) gives the log probability of each token"
_STREAM = "stream(source) yields each token as soon as it is decided"

LACKED: dict[str, Any] = {
    "assistant_early_exit": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_decoder_ids": None,
    "guidance_scale": 1.0,
    "max_time": None,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "remove_invalid_values": False,
    "sequence_bias": None,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "typical_p": 1.0,
    "watermarking_config": None,
}
"""Settings of transformers' `generate` that change the results, which the engine does not implement, and the value with
which they change nothing. None changes nothing for each of them. Files of settings have them, too."""

GENERATE: Mapping[str, OtherName] = {
    **{name: instead(LACKS, value) for name, value in LACKED.items()},
    # The length.
    "max_tokens": same("max_new_tokens"),
    "max_completion_tokens": same("max_new_tokens"),
    "max_decoding_length": same("max_new_tokens"),
    "n_predict": same("max_new_tokens"),
    "min_tokens": same("min_new_tokens"),
    "min_decoding_length": same("min_new_tokens"),
    "stop": nothing(_STOP, []),
    "stop_strings": nothing(_STOP),
    "stop_words": nothing(_STOP, []),
    "stopping_criteria": nothing(_STOP),
    "end_token": instead("eos_token_id=[...] takes the ids of the tokens that end a result"),
    "max_time": instead("timeout=SECONDS stops the call with TimedOut"),
    "max_input_length": instead("cut the inputs before the call", 0),
    # The search.
    "beam_size": same("num_beams"),
    "num_hypotheses": same("num_return_sequences"),
    "n": same("num_return_sequences"),
    "repeat_penalty": same("repetition_penalty"),
    "best_of": instead("give num_return_sequences, and choose by the score", 1),
    "patience": nothing("early_stopping says when a beam search ends", 1.0),
    "coverage_penalty": instead(LACKS, 0.0),
    "frequency_penalty": nothing("repetition_penalty makes tokens that came before less likely", 0.0),
    "presence_penalty": nothing("repetition_penalty makes tokens that came before less likely", 0.0),
    "logit_bias": nothing("bad_words_ids and suppress_tokens forbid tokens", {}),
    "suppress_sequences": instead("bad_words_ids takes the ids of sequences that must not come", []),
    "disable_unk": instead("suppress_tokens=[id of the unknown token] forbids it", False),
    "logits_processor": nothing("bad_words_ids and suppress_tokens forbid tokens"),
    "prefix_allowed_tokens_fn": instead(LACKS),
    "grammar": instead(LACKS),
    "response_format": instead(LACKS),
    "tools": instead("chat(messages, tools=[...]) gives them to the template of the model", []),
    "assistant_model": instead(LACKS),
    # Sampling.
    "sampling_topk": instead("give do_sample=True and top_k", 1),
    "sampling_topp": instead("give do_sample=True and top_p", 1.0),
    "sampling_temperature": instead("give do_sample=True and temperature", 1.0),
    "tfs_z": instead(LACKS, 1.0),
    "mirostat_mode": instead(LACKS, 0),
    # The inputs.
    "input_ids": same("inputs"),
    "attention_mask": instead(PADDING),
    "decoder_input_ids": instead("prompts=[...] takes the first tokens of each result"),
    "target_prefix": instead("prompts=[...] of generate takes the first tokens of each result"),
    "prompt": same("inputs"),
    "messages": instead(CHAT),
    "src_lang": instead("call translate, which takes source_language"),
    "tgt_lang": instead("call translate, which takes target_language"),
    # The results.
    "logprobs": nothing(_PROBABILITIES, False),
    "top_logprobs": nothing(_PROBABILITIES, 0),
    "output_scores": nothing(_PROBABILITIES, False),
    "output_logits": nothing(_PROBABILITIES, False),
    "return_logits_vocab": nothing(_PROBABILITIES, False),
    "return_scores": instead("each result has its score", False, True),
    "return_dict_in_generate": instead("each result is an object with ids, score and text", True),
    "return_attention": instead("output_attentions=True gives the weights of cross-attention", False),
    "output_hidden_states": nothing("Engine.forward gives the hidden states of an encoder", False),
    "echo": nothing("a result has the new tokens alone, so put the prompt in front of its text", False),
    "include_prompt_in_result": nothing("a result has the new tokens alone", False),
    "return_full_text": nothing("a result has the new tokens alone", False),
    "suffix": instead(LACKS),
    "streamer": instead(_STREAM),
    "stream": instead(_STREAM, False),
    "callback": instead(_STREAM),
    # How it computes.
    "generation_config": instead(AS_ARGUMENTS),
    "use_cache": nothing("keys and values are always cached", True),
    "cache_implementation": instead(LACKS),
    "synced_gpus": instead(CPU, False),
    "batch_size": instead(BATCHES),
    "max_batch_size": instead(BATCHES, 0),
    "batch_type": instead(BATCHES, "examples", "tokens"),
}
"""The settings and the other arguments of `generate`, `stream`, `translate` and, in part, `transcribe`."""

SCORE: Mapping[str, OtherName] = {
    "input_ids": same("inputs"),
    "source": same("inputs"),
    "tokens": same("inputs"),
    "labels": same("targets"),
    "target": same("targets"),
    "attention_mask": instead(PADDING),
    "logprobs": instead("score always gives the log probabilities", True),
    "return_log_probs": instead("score always gives the log probabilities", True),
    "max_batch_size": instead(BATCHES, 0),
    "max_input_length": instead("cut the inputs before the call", 0),
}

POSITIONAL |= {
    "generate": "prompts go into one list, the first argument, where prompts=... would begin the results of a model "
                "with an encoder; settings have names, such as max_new_tokens=50",
    "score": "score(inputs, targets)",
}

_ONE = {**{name: row for name, row in GENERATE.items() if name != "prompt"}, "inputs": same("source"),
        "input_ids": same("source")}
"""The arguments of the methods that take one input."""

register({
    "generate": GENERATE,
    "stream": {**_ONE, "stream": instead(_STREAM, True)},
    "submit": {**_ONE, "stream": instead("the object that submit returns yields the pieces", True, False),
               "timeout": instead("deadline=time.monotonic() + seconds ends a request, and result(timeout) a wait"),
               "user": same("owner")},
    "results": GENERATE,
    "translate": {
        **GENERATE, "inputs": same("texts"), "source": same("texts"), "src_lang": same("source_language"),
        "prompt": instead("pass the texts first"),
        "tgt_lang": same("target_language"), "input_ids": instead("call generate for token ids")},
    "score": SCORE,
})
