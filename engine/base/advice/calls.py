"""What becomes of the arguments that functions of other libraries have.

A row is `same(ours, (their value, ours) ...)`, or `instead(what to do, values that change nothing ...)`; `nothing` says
in front of the advice that the engine has nothing like it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..other_names import OtherName, each, instead, nothing, same

LACKS = "there is nothing like it; leave it out"
CHAT = "chat(messages) of a Generator answers them, and apply_chat_template(messages) returns the prompt"
"""What to do with the messages of a chat."""
_BATCHES = "the engine makes the batches; max_rows and max_batch_tokens of load bound them"
AS_ARGUMENTS = "give the settings as arguments of the call"
_PADDING = "nothing is padded, so pass the ids of each sequence alone, in a list"
_FOLDER = "the settings are in the model's folder; change them there"
_LIMIT = ("with_text(max_seq_length=...) returns an engine with another limit on tokens, and truncation=False makes it "
          "an error that a text is too long")
CPU = 'the engine runs on CPUs without it; for an NVIDIA GPU, give load backend="cuda" in its place'
THREADS = "threads= of load says how many CPUs work"
_OBJECTS = "any number of Python threads may call one object"
AT_CALL = "give it to the call, and not to load"

LOAD: Mapping[str, OtherName] = each({
    "max_tokens": OtherName("max_batch_tokens", earlier=True),
    # The path.
    "model model_path model_name model_name_or_path model_size_or_path pretrained_model_name_or_path repo_id":
        same("path"),
    "filename": instead("put it at the end of the name, as in org/name/model.gguf"),
    "cache_dir cache_folder download_root": instead(
        "the environment variable HF_HUB_CACHE says where models of the hub are kept"),
    "token use_auth_token": instead("log in with hf auth login, or set the environment variable HF_TOKEN", False),
    "local_files_only": instead("the environment variable HF_HUB_OFFLINE=1 forbids to ask the hub", False),
    "force_download": instead("hf cache rm removes a model from the cache", False),
    "trust_remote_code": instead("the engine never runs the code of a model folder; leave it out", False),
    "subfolder": instead("put it at the end of the path", ""),
    "files": instead("pass the path of a folder"),
    # Threads.
    "intra_threads cpu_threads": same("threads", (0, None)),
    "n_threads num_threads": same("threads"),
    "n_threads_batch": instead("threads says how many threads compute, prompts too"),
    "inter_threads": instead(_OBJECTS, 1),
    "num_workers": instead(_OBJECTS, 0, 1),
    # Precisions.
    "compute_type": same("precision", ("default", None), ("int8_float32", "int8"), ("int8_bfloat16", "int8")),
    "dtype torch_dtype": same("precision", ("auto", None)),
    "use_bf16": same("precision", (True, "bfloat16"), (False, None)),
    "use_fp16": instead('precision="bfloat16" computes in 16 bits, where the CPU does', False),
    "load_in_8bit": same("precision", (True, "int8"), (False, None)),
    "load_in_4bit": same("precision", (True, "int4"), (False, None)),
    "quantization_config": instead('precision="int8" or "int4" quantizes the weights'),
    # The device.
    "device device_map": instead(CPU, "cpu", "auto", -1),
    "device_index n_gpu_layers": instead(CPU, 0),
    "device_ids": instead(CPU),
    "devices": instead(CPU, "cpu", ["cpu"]),
    "cuda": instead(CPU, False),
    "providers": instead(CPU, ["CPUExecutionProvider"]),
    "attn_implementation": instead("a backend has one implementation of attention; leave it out", "eager", "sdpa"),
    # Memory.
    "use_mmap": same("memory", (True, "map"), (False, "copy")),
    "use_mlock lazy_load": instead(LACKS, False),
    "low_cpu_mem_usage": instead('memory="map" maps the file, and is the default', True, False),
    "n_ctx": instead("the limit is that of the model; long_context=True (--long-context) is for models with two tables "
                     "of positions, such as Phi-3.5", 0),
    "n_batch": instead("max_batch_tokens bounds the tokens that are computed together"),
    "max_queued_batches": instead(_BATCHES, 0),
    "cache_tokens": instead("a Generator alone has it; max_rows and max_batch_tokens bound a call of a Transcriber or "
                            "of a Reranker, and an Engine keeps nothing"),
    # What a call or the folder says.
    "seed truncate_dim normalize_embeddings batch_size": instead(AT_CALL),
    "verbose": instead('logging.getLogger("engine") says how much is logged', False),
    "max_seq_length query_max_length passage_max_length": instead(_LIMIT),
    "query_instruction_for_retrieval": instead("prompt=... of encode stands in front of each text"),
    "pooling_method prompts default_prompt_name similarity_fn_name": instead(_FOLDER),
    "num_labels": instead(_FOLDER, 1),
    "model_kwargs tokenizer_kwargs processor_kwargs config_kwargs automodel_args config": instead(_FOLDER, {}),
    "tokenizer tokenizer_path": instead("the tokenizer is in the model's folder; leave it out"),
    "chat_format chat_handler": instead("the template is in the model's files; template=... of chat takes another one"),
    "embedding": instead('kind="encode" loads an encoder', False),
})

LACKED: Mapping[str, Any] = each({
    "assistant_early_exit constraints dola_layers exponential_decay_length_penalty force_words_ids forced_decoder_ids "
    "max_time penalty_alpha sequence_bias top_h watermarking_config": None,
    "diversity_penalty epsilon_cutoff eta_cutoff": 0.0,
    "encoder_repetition_penalty guidance_scale typical_p": 1.0,
    "remove_invalid_values token_healing": False,
    "num_beam_groups": 1,
})
"""Settings of transformers' `generate` that change the results, which the engine does not implement, and the value with
which they change nothing. None changes nothing for each of them. Files of settings have them, too."""
WITHOUT_EFFECT = tuple(each({
    "assistant_confidence_threshold assistant_ensemble_weight assistant_lookbehind cache_config cache_implementation "
    "compile_config continuous_batching_config disable_compile is_assistant low_memory max_cache_len "
    "max_matching_ngram_size num_assistant_tokens num_assistant_tokens_schedule output_attentions output_hidden_states "
    "output_logits output_scores prefill_chunk_size prompt_lookup_num_tokens return_dict_in_generate speculation_type "
    "target_lookbehind transformers_version use_cache use_mtp": None}))
"""Settings of transformers' `generate` that say how it computes or what else it returns, but change no token."""
_STOP = "stop=[...] ends a result at a text; for other conditions, read stream(...) and leave its loop"
_PROBABILITIES = "logprobs=n gives the log probability of each new token, and the n likeliest in its place"
_STREAM = "stream(source) yields each token as soon as it is decided"
_OF_A_SERVICE = "nothing is sent to a service; leave it out"
_TENSORS = "a request is a text or token ids; leave it out"
_FORBID = "logit_bias makes tokens more or less likely; bad_words_ids and suppress_tokens forbid them"

_GENERATE: Mapping[str, OtherName] = {
    **{name: instead(LACKS, value) for name, value in LACKED.items()},
    **{name: instead("it changes no token; leave it out") for name in WITHOUT_EFFECT
       if name != "output_attentions"},
    **each({
        # The length.
        "max_tokens max_completion_tokens max_decoding_length n_predict": same("max_new_tokens"),
        "min_tokens min_decoding_length": same("min_new_tokens"),
        "stop stop_words stop_sequences": same("stop_strings"),
        "include_stop_str_in_output": same("include_stop"),
        "stopping_criteria": instead(_STOP),
        "stop_token_ids": instead("eos_token_id=[...] takes the ids of all tokens that end a result, with those of the "
                                  "model", []),
        "end_token": instead("eos_token_id=[...] takes the ids of the tokens that end a result"),
        "max_time": instead("timeout=SECONDS stops the call with TimedOut"),
        "max_input_length": instead("cut the inputs before the call", 0),
        # The search.
        "beam_size": same("num_beams"),
        "num_hypotheses n": same("num_return_sequences"),
        "repeat_penalty": same("repetition_penalty"),
        "best_of": instead("give num_return_sequences, and choose by the score", 1),
        "patience": nothing("early_stopping says when a beam search ends", 1.0),
        "coverage_penalty": instead(LACKS, 0.0),
        "suppress_sequences": instead("bad_words_ids takes the ids of sequences that must not come", []),
        "disable_unk": instead("suppress_tokens=[id of the unknown token] forbids it", False),
        "bad_words": instead("bad_words_ids takes the ids of sequences that must not come, each of them as "
                             "tokenizer.encode(word, add_special_tokens=False) gives it", []),
        "allowed_token_ids": instead("suppress_tokens takes the ids of all other tokens"),
        "logits_processor logits_processors": nothing(_FORBID, []),
        "prefix_allowed_tokens_fn grammar response_format assistant_model suffix guided_decoding guided_json "
        "guided_regex guided_choice guided_grammar structured_outputs custom_generate negative_prompt_ids "
        "negative_prompt_attention_mask assistant_tokenizer lora_request thinking_token_budget repetition_detection":
            instead(LACKS),
        "use_beam_search": instead("num_beams above 1 is a beam search", False),
        "tools": instead("chat(messages, tools=[...]) gives them to the template of the model", []),
        # Sampling.
        "sampling_topk": instead("give do_sample=True and top_k", 1),
        "sampling_topp": instead("give do_sample=True and top_p", 1.0),
        "sampling_temperature": instead("give do_sample=True and temperature", 1.0),
        "tfs_z": instead(LACKS, 1.0),
        "mirostat_mode": instead(LACKS, 0),
        "mirostat_tau": instead(LACKS, 5.0),
        "mirostat_eta": instead(LACKS, 0.1),
        # The inputs.
        "input_ids prompt": same("inputs"),
        "attention_mask decoder_attention_mask": instead(_PADDING),
        "inputs_embeds position_ids token_type_ids encoder_outputs": instead(_TENSORS),
        "past_key_values": instead("what prompts begin with is read once; leave it out"),
        "truncate_prompt_tokens": instead("cut the inputs before the call"),
        "decoder_input_ids": instead("prompts=[...] takes the first tokens of each result"),
        "target_prefix": instead("prompts=[...] of generate takes the first tokens of each result"),
        "messages": instead(CHAT),
        "src_lang": instead("call translate, which takes source_language"),
        "tgt_lang": instead("call translate, which takes target_language"),
        # The results.
        "output_scores output_logits return_logits_vocab": instead(_PROBABILITIES, False),
        "top_logprobs num_logprobs": same("logprobs", beside=(True,)),
        "prompt_logprobs": instead("echo=True with logprobs=n gives those of the prompt, too"),
        "logprob_token_ids": instead("score(inputs, targets) gives the log probabilities of given tokens"),
        "flat_logprobs": instead(LACKS, False),
        "detokenize": instead("each result has its ids and its text", True),
        "skip_special_tokens spaces_between_special_tokens": instead(
            "tokenizer.decode(result.ids, skip_special_tokens=False) shows special tokens", True),
        "return_scores": instead("each result has its score", False, True),
        "return_dict_in_generate": instead("each result is an object with ids, score and text", True),
        "return_attention": instead("output_attentions=True gives the weights of cross-attention", False),
        "output_hidden_states": nothing("Engine.forward gives the hidden states of an encoder", False),
        "include_prompt_in_result return_full_text": same("echo"),
        "streamer callback": instead(_STREAM),
        "stream": instead(_STREAM, False),
        "stream_options": instead(_STREAM),
        # A service.
        "model": instead("the object is the model; leave it out"),
        "user": instead("submit of a session takes owner, and cache_key says whose prompts share what is read"),
        "extra_headers extra_query extra_body extra_args": instead(_OF_A_SERVICE),
        # How it computes.
        "generation_config sampling_params": instead(AS_ARGUMENTS),
        "tokenizer": instead("the model has its tokenizer; leave it out"),
        "use_tqdm": instead("results(inputs) yields each result as soon as it is there", True, False),
        "use_cache": nothing("keys and values are always cached", True),
        "synced_gpus": instead(CPU, False),
        "batch_size": instead(_BATCHES),
        "max_batch_size": instead(_BATCHES, 0),
        "batch_type": instead(_BATCHES, "examples", "tokens"),
    }),
}
"""The settings and the other arguments of `generate`, `stream`, `translate` and, in part, `transcribe`."""
_ONE = {**{name: row for name, row in _GENERATE.items() if name != "prompt"},
        **each({"inputs input_ids": same("source")})}
"""The arguments of the methods that take one input."""
_SCORE = each({
    "input_ids source tokens": same("inputs"),
    "labels target": same("targets"),
    "attention_mask": instead(_PADDING),
    "logprobs return_log_probs": instead("score always gives the log probabilities", True),
    "max_batch_size": instead(_BATCHES, 0),
    "max_input_length": instead("cut the inputs before the call", 0),
})

_KEYS = each({"prompt_cache_key cache_salt": same("cache_key")})
"""Those that say whose prompts share what is read."""
_TEMPLATE = 'template_options={"%s": ...} gives it to the template, if that asks for it'
_MESSAGES = each({
    "conversation conversations": same("messages"),
    "chat_template": same("template"),
    "sanitize_control_tokens": same("control_tokens", (True, "text"), (False, "parse")),
    "functions": instead('tools=[{"type": "function", "function": {...}}] takes them'),
})
"""Arguments of the messages and of their template."""
_CHAT: Mapping[str, OtherName] = {
    **{name: row for name, row in _GENERATE.items()
       if row.ours not in ("inputs", "prompts") and name not in ("messages", "tools")},
    **_MESSAGES,
    **each({
        "chat_template_kwargs": same("template_options"),
        "tool_choice function_call": instead("tools are given to the template, and the model decides", "auto", "none"),
        "parallel_tool_calls": instead("tools are given to the template, and the model decides", True),
        "modalities": instead("an answer is a text", ["text"]),
        "audio moderation prediction verbosity web_search_options": instead(LACKS),
        "metadata prompt_cache_options prompt_cache_retention safety_identifier service_tier store":
            instead(_OF_A_SERVICE),
        "format": instead(LACKS, ""),
        "system": instead('give a first message {"role": "system", "content": ...}'),
        "options": instead("give the settings as arguments, such as temperature=0.5", {}),
        "keep_alive": instead(LACKS),
        "stream": instead("stream_chat(messages) yields the answer piece by piece", False),
        "enable_thinking think": instead(_TEMPLATE % "enable_thinking"),
        "reasoning_effort": instead(_TEMPLATE % "reasoning_effort"),
    }),
}
"""Arguments of the messages, and of the generation of an answer."""

_WINDOWS = "each window is transcribed by itself, once"
_NO_TEXT = "the model gets no text before the recording"
_TRANSCRIBE: Mapping[str, OtherName] = {
    **{name: row for name, row in _GENERATE.items() if name not in ("input_ids", "src_lang", "tgt_lang")},
    **each({
        "sounds": OtherName("audio", earlier=True),
        "inputs file": same("audio"),
        "return_timestamps": same("timestamps"),
        "word_timestamps": same("timestamps", (True, "word")),
        "without_timestamps": same("timestamps", (True, False), (False, True)),
        "timestamp_granularities": instead('timestamps=True gives the times of segments, timestamps="word" those of '
                                           "words"),
        "response_format": instead("timestamps=True gives segments with times", "text"),
        "log_progress": same("show_progress_bar"),
        "generate_kwargs": instead(AS_ARGUMENTS, {}),
        "initial_prompt prompt_ids hotwords": nothing(_NO_TEXT),
        "prompt": nothing(_NO_TEXT, ""),
        "vad_filter": nothing("cut silence off before the call; silent windows give no text anyway", False),
        "vad_parameters": nothing("cut silence off before the call"),
        "clip_timestamps": nothing("pass the samples of each part as a recording", "0"),
        "condition_on_previous_text condition_on_prev_tokens": nothing(_WINDOWS, False),
        "prompt_reset_on_temperature temperature_increment_on_fallback compression_ratio_threshold "
        "hallucination_silence_threshold": nothing(_WINDOWS),
        "log_prob_threshold logprob_threshold": instead("a silent window is always one with a log probability below "
                                                        "-1.0 for a token in the mean", -1.0),
        "no_speech_threshold": instead('a silent window is always one whose probability of "no speech" is above 0.6',
                                       0.6),
        "max_initial_timestamp": instead("max_initial_timestamp_index counts steps of 0.02 s"),
        "suppress_blank": instead("begin_suppress_tokens names the tokens that must not come first", True),
        "language_detection_threshold": instead("detect_language gives the probability of the language"),
        "language_detection_segments": instead("the language is that of the first 30 s", 1),
        "multilingual": nothing("each recording has one language", False),
        "chunk_length": nothing("windows have 30 s", 30),
        "chunk_length_s": nothing("windows have 30 s", 0, 30),
        "stride_length_s": nothing("each window of Whisper begins where the last segment of the window before it ends, "
                                   "and those of other models overlap by 5 s at each end", 5),
        "verbose": instead("show_progress_bar=True shows a bar", False),
        "fp16": instead('precision="bfloat16" of load computes in 16 bits, where the CPU does', False),
    }),
}

_SPARSE = "the result is SparseVectors, whose parts are NumPy arrays"
_DENSE = "encode(sentences) returns one vector for each text"
_ENCODE = each({
    "inputs input documents texts text": same("sentences"),
    "task_type": instead("call encode_query or encode_document for a prompt"),
    "processing_kwargs": instead(_FOLDER, {}),
    "parallel num_workers": instead(THREADS, 0),
    "encoding_format": instead("the vectors are a NumPy array", "float"),
    "max_length max_seq_length": instead(_LIMIT),
    "padding": instead(_PADDING, True, False),
    "return_tensors": instead("the results are NumPy arrays", "np"),
    "return_dense": instead("encode returns one vector for each text", True),
    "return_sparse": instead("encode_sparse(sentences) returns the sparse vectors", False),
    "return_colbert_vecs": instead("encode_tokens(sentences) returns the vectors of tokens", False),
})
"""What methods share that return vectors of texts."""
_PIPELINE = each({
    "inputs sentences text args": same("texts"),
    "padding": instead(_PADDING, True, False),
    "max_length max_seq_length": instead(_LIMIT),
    "tokenizer_kwargs": instead(_LIMIT, {}, {"truncation": True}),
    "num_workers": instead(THREADS, 0),
    "return_tensors": instead("the results are dictionaries", False),
})
"""What the pipelines of transformers have."""
_RANK = each({
    "prompt prompt_name": instead("instruction=... says what counts as an answer"),
    "batch_size": instead(_BATCHES),
    "num_workers parallel": instead(THREADS, 0),
    "activation_fn activation_fct": instead("logits=True leaves the logistic function out"),
    "apply_softmax": instead("a pair has one score here, and a softmax needs several", False),
    "convert_to_numpy": instead("predict gives a NumPy array, and rank a list", True),
    "convert_to_tensor": instead("predict gives a NumPy array, and rank a list", False),
})

CALLS: dict[str, Mapping[str, OtherName]] = {
    "__init__": {name: row for name, row in LOAD.items() if row.ours not in ("path", "memory")},
    "load": LOAD,
    "generate": {**_GENERATE, **_KEYS},
    "results": {**_GENERATE, **_KEYS},
    "stream": {**_ONE, **_KEYS, "stream": instead(_STREAM, True)},
    "submit": {**_ONE, **_KEYS, "stream": instead("the object that submit returns yields the pieces", True, False),
               "timeout": instead("deadline=time.monotonic() + seconds ends a request, and result(timeout) a wait"),
               "user": same("owner")},
    "translate": {**_GENERATE, **each({
        "inputs source": same("texts"), "src_lang": same("source_language"), "tgt_lang": same("target_language"),
        "prompt": instead("pass the texts first"), "input_ids": instead("call generate for token ids")})},
    "score": _SCORE,
    "chat": {**_CHAT, **_KEYS},
    "stream_chat": {**_CHAT, **_KEYS, "stream": instead("stream_chat always yields the answer piece by piece", True)},
    "apply_chat_template": {**_MESSAGES, **each({
        "padding truncation": instead(_PADDING, False),
        "max_length": instead("a prompt is never cut"),
        "return_tensors": instead("tokenize=True returns a list of ids"),
        "return_dict": instead("tokenize=True returns a list of ids", False),
        "return_assistant_tokens_mask": instead(LACKS, False),
        "tokenizer_kwargs": instead(LACKS, {})})},
    "transcribe": _TRANSCRIBE,
    "transcriptions": _TRANSCRIBE,
    "detect_language": {"sounds": _TRANSCRIBE["sounds"]},
    "encode": {**_ENCODE, **each({
        "images image": same("sentences"),
        "normalize": same("normalize_embeddings"), "dimensions output_dimension": same("truncate_dim")})},
    "encode_sparse": {**_ENCODE, **each({
        "convert_to_tensor": instead(_SPARSE, True, False),
        "convert_to_sparse_tensor": instead(_SPARSE, True),
        "return_dense": instead(_DENSE, False),
        "return_sparse": instead("encode_sparse returns the sparse vectors", True),
        "save_to_cpu": instead("everything is on the CPU", True, False)})},
    "encode_tokens": {**_ENCODE, **each({
        "convert_to_numpy": instead("the result is a list of NumPy arrays", True, False),
        "return_dense": instead(_DENSE, False),
        "return_colbert_vecs": instead("encode_tokens returns the vectors of tokens", True),
        "convert_to_tensor": instead("the result is a list of NumPy arrays; pass each to torch.from_numpy", False),
        "output_value": instead(LACKS, "token_embeddings"),
        "device": instead(CPU, "cpu"),
        "pool chunk_size": instead("one engine uses all CPUs that the process may use"),
        "token_pooling": instead(LACKS)})},
    "classify": {**_PIPELINE, **each({
        "return_all_scores": same("top_k", (True, None), (False, 1)), "sequences": same("texts"),
        "images image": same("texts"), "labels classes class_names": same("candidate_labels"),
        "multi_class": same("multi_label")})},
    "tag": {**_PIPELINE, "grouped_entities": same("aggregation_strategy", (True, "simple"), (False, "none")),
            "offset_mapping": instead("the tokenizer gives the offsets"),
            "delimiter": instead("words are joined by spaces", " ")},
    "fill_mask": _PIPELINE,
    "answer": {**{name: row for name, row in _PIPELINE.items() if row.ours is None},
               "topk": same("top_k"),
               "max_question_len": instead("a question may be as long as the window lets it")},
    "predict": {**_RANK, **each({"sentences inputs": same("pairs")})},
    "rank": {**_RANK, **each({"docs passages texts": same("documents"), "top_n": same("top_k")})},
    "attention": each({
        "is_causal": same("causal"),
        "attn_mask": instead("it is called mask if it is bool, and bias if it is added to the scores"),
        "dropout_p": instead("there is no dropout", 0.0),
        "device": instead('backend="cuda" computes on an NVIDIA GPU', "cpu"),
        "enable_gqa": instead("k and v may have fewer heads than q in any case", True, False)}),
    "softmax": {"dim": same("axis")},
}
"""The rows of each function, by the name of the function."""

_MESSAGE = ('{0}("Hello") or {0}([{{"role": "user", "content": "Hello"}}]), and settings have names, such as '
            "max_new_tokens=50")
POSITIONAL: dict[str, str] = {
    "generate": "prompts go into one list, the first argument, where prompts=... would begin the results of a model "
                "with an encoder; settings have names, such as max_new_tokens=50",
    "score": "score(inputs, targets)",
    "chat": _MESSAGE.format("chat"),
    "stream_chat": _MESSAGE.format("stream_chat"),
    "predict": 'a pair is one argument: predict(("a query", "a document")), or predict([pair, ...])',
    "rank": 'rank("a query", ["a document", ...])',
    "answer": 'answer("a question", "the text to read")',
    "classify": 'classify(texts), or with labels of your own classify(texts, candidate_labels=["sports", "politics"])',
}
"""What to do about too few or too many arguments of a function, by its name. A method may add to its own."""
