"""Names that other libraries have for arguments and methods of the engine, and its own names of earlier versions.

The libraries are transformers, llama-cpp-python, CTranslate2, faster-whisper, openai-whisper, fastembed,
sentence-transformers, FlagEmbedding, torch, and the API of OpenAI. An argument whose meaning is the same is accepted
under the other name. For every other argument one line says which of ours does it, or that there is nothing like it.
`arguments.py` reads the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OtherName:
    """What becomes of an argument under a name that the function does not have."""

    ours: str | None = None
    """The name of the same argument here, which gets the value; None if there is none."""
    values: tuple[tuple[Any, Any], ...] = ()
    """Pairs of a value and the value that means the same for `ours`; every other value stays as it is."""
    earlier: bool = False
    """Whether it is a name of an earlier version of the engine, which gives a `FutureWarning`."""
    advice: str = ""
    """For a name without `ours`: what to do instead."""
    neutral: tuple[Any, ...] = (None,)
    """For a name without `ours`: the values that ask for nothing that the engine does not do; they are accepted."""


def _same(ours: str, *values: tuple[Any, Any]) -> OtherName:
    """Return the row of an argument that has another name here, with the values that have other names."""
    return OtherName(ours, values)


def _else(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that the engine lacks. neutral: values besides None that change nothing."""
    return OtherName(advice=advice, neutral=(None, *neutral))


def _nothing(advice: str, *neutral: Any) -> OtherName:
    return _else(f"there is nothing like it; {advice}", *neutral)


_LACKS = "there is nothing like it; leave it out"
CHAT = ("the engine reads no chat templates; write the prompt as one text with the special tokens of the model, such "
        r"as '<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n', which are read as special tokens")
"""What to do with the messages of a chat."""
_STOP = ("eos_token_id=[...] ends a result at a token; for a text, read stream(...) and leave its loop when the text "
         "has come")
_PROBABILITIES = "a result has its score, and score(inputs, targets) gives the log probability of each token"
_STREAM = "stream(source) yields each token as soon as it is decided"
_BATCHES = "the engine makes the batches; max_rows and max_batch_tokens of load bound them"
_ONE_SCORE = "a pair has one score here, and a softmax needs several"
_AS_ARGUMENTS = "give the settings as arguments of the call"
_PADDING = "nothing is padded, so pass the ids of each sequence alone, in a list"
_FOLDER = "the settings are in the model's folder; change them there"
_CACHE = "the environment variable HF_HUB_CACHE says where models of the hub are kept"
_TOKEN = "log in with hf auth login, or set the environment variable HF_TOKEN"
_CPU = "the engine runs on CPUs; leave it out"
_AT_CALL = "give it to the call, and not to load"

LACKED: dict[str, Any] = {
    "assistant_early_exit": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
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
    **{name: _else(_LACKS, value) for name, value in LACKED.items()},
    # The length.
    "max_tokens": _same("max_new_tokens"),
    "max_completion_tokens": _same("max_new_tokens"),
    "max_decoding_length": _same("max_new_tokens"),
    "n_predict": _same("max_new_tokens"),
    "min_tokens": _same("min_new_tokens"),
    "min_decoding_length": _same("min_new_tokens"),
    "stop": _nothing(_STOP, []),
    "stop_strings": _nothing(_STOP),
    "stop_words": _nothing(_STOP, []),
    "stopping_criteria": _nothing(_STOP),
    "end_token": _else("eos_token_id=[...] takes the ids of the tokens that end a result"),
    "max_time": _else("timeout=SECONDS stops the call with TimedOut"),
    "max_input_length": _else("cut the inputs before the call", 0),
    # The search.
    "beam_size": _same("num_beams"),
    "num_hypotheses": _same("num_return_sequences"),
    "n": _same("num_return_sequences"),
    "repeat_penalty": _same("repetition_penalty"),
    "best_of": _else("give num_return_sequences, and choose by the score", 1),
    "patience": _nothing("early_stopping says when a beam search ends", 1.0),
    "coverage_penalty": _else(_LACKS, 0.0),
    "frequency_penalty": _nothing("repetition_penalty makes tokens that came before less likely", 0.0),
    "presence_penalty": _nothing("repetition_penalty makes tokens that came before less likely", 0.0),
    "logit_bias": _nothing("bad_words_ids and suppress_tokens forbid tokens", {}),
    "suppress_sequences": _else("bad_words_ids takes the ids of sequences that must not come", []),
    "disable_unk": _else("suppress_tokens=[id of the unknown token] forbids it", False),
    "logits_processor": _nothing("bad_words_ids and suppress_tokens forbid tokens"),
    "prefix_allowed_tokens_fn": _else(_LACKS),
    "grammar": _else(_LACKS),
    "response_format": _else(_LACKS),
    "tools": _else(_LACKS),
    "assistant_model": _else(_LACKS),
    # Sampling.
    "sampling_topk": _else("give do_sample=True and top_k", 1),
    "sampling_topp": _else("give do_sample=True and top_p", 1.0),
    "sampling_temperature": _else("give do_sample=True and temperature", 1.0),
    "tfs_z": _else(_LACKS, 1.0),
    "mirostat_mode": _else(_LACKS, 0),
    # The inputs.
    "input_ids": _same("inputs"),
    "attention_mask": _else(_PADDING),
    "decoder_input_ids": _else("prompts=[...] takes the first tokens of each result"),
    "target_prefix": _else("prompts=[...] of generate takes the first tokens of each result"),
    "prompt": _else("pass the prompts first, as a list of texts"),
    "messages": _nothing(CHAT),
    "src_lang": _else("call translate, which takes source_language"),
    "tgt_lang": _else("call translate, which takes target_language"),
    # The results.
    "logprobs": _nothing(_PROBABILITIES, False),
    "top_logprobs": _nothing(_PROBABILITIES, 0),
    "output_scores": _nothing(_PROBABILITIES, False),
    "output_logits": _nothing(_PROBABILITIES, False),
    "return_logits_vocab": _nothing(_PROBABILITIES, False),
    "return_scores": _else("each result has its score", False, True),
    "return_dict_in_generate": _else("each result is an object with ids, score and text", True),
    "return_attention": _else("output_attentions=True gives the weights of cross-attention", False),
    "output_hidden_states": _nothing("Engine.forward gives the hidden states of an encoder", False),
    "echo": _nothing("a result has the new tokens alone, so put the prompt in front of its text", False),
    "include_prompt_in_result": _nothing("a result has the new tokens alone", False),
    "return_full_text": _nothing("a result has the new tokens alone", False),
    "suffix": _else(_LACKS),
    "streamer": _else(_STREAM),
    "stream": _else(_STREAM, False),
    "callback": _else(_STREAM),
    # How it computes.
    "generation_config": _else(_AS_ARGUMENTS),
    "use_cache": _nothing("keys and values are always cached", True),
    "cache_implementation": _else(_LACKS),
    "synced_gpus": _else(_CPU, False),
    "batch_size": _else(_BATCHES),
    "max_batch_size": _else(_BATCHES, 0),
    "batch_type": _else(_BATCHES, "examples", "tokens"),
}
"""The settings and the other arguments of `generate`, `stream`, `translate` and, in part, `transcribe`."""

SCORE: Mapping[str, OtherName] = {
    "input_ids": _same("inputs"),
    "source": _same("inputs"),
    "tokens": _same("inputs"),
    "labels": _same("targets"),
    "target": _same("targets"),
    "attention_mask": _else(_PADDING),
    "logprobs": _else("score always gives the log probabilities", True),
    "return_log_probs": _else("score always gives the log probabilities", True),
    "max_batch_size": _else(_BATCHES, 0),
    "max_input_length": _else("cut the inputs before the call", 0),
}

_WINDOWS = "each window is transcribed by itself, once"
TRANSCRIBE: Mapping[str, OtherName] = {
    **{name: row for name, row in GENERATE.items() if name not in ("input_ids", "src_lang", "tgt_lang")},
    "sounds": OtherName("audio", earlier=True),
    "inputs": _same("audio"),
    "file": _else("audio=[...] takes a list of recordings"),
    "return_timestamps": _same("timestamps"),
    "word_timestamps": _same("timestamps", (True, "word")),
    "without_timestamps": _same("timestamps", (True, False), (False, True)),
    "timestamp_granularities": _else('timestamps=True gives the times of segments, timestamps="word" those of words'),
    "response_format": _else("timestamps=True gives segments with times", "text"),
    "log_progress": _same("show_progress_bar"),
    "generate_kwargs": _else(_AS_ARGUMENTS, {}),
    "initial_prompt": _nothing("the model gets no text before the recording"),
    "prompt": _nothing("the model gets no text before the recording", ""),
    "prompt_ids": _nothing("the model gets no text before the recording"),
    "hotwords": _nothing("the model gets no text before the recording"),
    "vad_filter": _nothing("cut silence off before the call; silent windows give no text anyway", False),
    "vad_parameters": _nothing("cut silence off before the call"),
    "clip_timestamps": _nothing("pass the samples of each part as a recording", "0"),
    "condition_on_previous_text": _nothing(_WINDOWS, False),
    "condition_on_prev_tokens": _nothing(_WINDOWS, False),
    "prompt_reset_on_temperature": _nothing(_WINDOWS),
    "temperature_increment_on_fallback": _nothing(_WINDOWS),
    "compression_ratio_threshold": _nothing(_WINDOWS),
    **{name: _else("a silent window is always one with a log probability below -1.0 for a token in the mean", -1.0)
       for name in ("log_prob_threshold", "logprob_threshold")},
    "no_speech_threshold": _else('a silent window is always one whose probability of "no speech" is above 0.6', 0.6),
    "hallucination_silence_threshold": _nothing(_WINDOWS),
    "max_initial_timestamp": _else("max_initial_timestamp_index counts steps of 0.02 s"),
    "suppress_blank": _else("begin_suppress_tokens names the tokens that must not come first", True),
    "language_detection_threshold": _else("detect_language gives the probability of the language"),
    "language_detection_segments": _else("the language is that of the first 30 s", 1),
    "multilingual": _nothing("each recording has one language", False),
    "chunk_length": _nothing("windows have 30 s", 30),
    "chunk_length_s": _nothing("windows have 30 s", 0, 30),
    "stride_length_s": _nothing("each window begins where the last segment of the window before it ends"),
    "verbose": _else("show_progress_bar=True shows a bar", False),
    "fp16": _else('precision="bfloat16" of load computes in 16 bits, where the CPU does', False),
}

ENCODE: Mapping[str, OtherName] = {
    "inputs": _same("sentences"),
    "input": _same("sentences"),
    "documents": _same("sentences"),
    "texts": _same("sentences"),
    "text": _same("sentences"),
    "normalize": _same("normalize_embeddings"),
    "dimensions": _same("truncate_dim"),
    "output_dimension": _same("truncate_dim"),
    "task_type": _else("call encode_query or encode_document for a prompt"),
    "processing_kwargs": _else(_FOLDER, {}),
    "parallel": _else("threads= of load says how many CPUs work", 0),
    "num_workers": _else("threads= of load says how many CPUs work", 0),
    "encoding_format": _else("the vectors are a NumPy array", "float"),
    "max_length": _nothing("the model's folder says where texts are truncated"),
    "padding": _else(_PADDING, True, False),
    "truncation": _nothing("texts are always truncated to max_seq_length", True),
    "return_tensors": _else("the results are NumPy arrays", "np"),
    "return_dense": _else("encode returns one vector for each text", True),
    "return_sparse": _else("encode_sparse(sentences) returns the sparse vectors", False),
    "return_colbert_vecs": _else("encode_tokens(sentences) returns the vectors of tokens", False),
}

RANK: Mapping[str, OtherName] = {
    "prompt": _else("instruction=... says what counts as an answer"),
    "prompt_name": _else("instruction=... says what counts as an answer"),
    "batch_size": _else(_BATCHES),
    "num_workers": _else("threads= of load says how many CPUs work", 0),
    "parallel": _else("threads= of load says how many CPUs work", 0),
    "activation_fn": _else("logits=True leaves the logistic function out"),
    "activation_fct": _else("logits=True leaves the logistic function out"),
    "apply_softmax": _else(_ONE_SCORE, False),
    "convert_to_numpy": _else("predict gives a NumPy array, and rank a list", True),
    "convert_to_tensor": _else("predict gives a NumPy array, and rank a list", False),
}

_TRUNCATED = "texts are always truncated to max_seq_length"
PIPELINE: Mapping[str, OtherName] = {
    **{name: _same("texts") for name in ("inputs", "sentences", "text", "args")},
    "padding": _else(_PADDING, True, False),
    "truncation": _nothing(_TRUNCATED, True, "longest_first"),
    "max_length": _nothing(_TRUNCATED),
    "tokenizer_kwargs": _nothing(_TRUNCATED, {}, {"truncation": True}),
    "num_workers": _else("threads= of load says how many CPUs work", 0),
    "return_tensors": _else("the results are dictionaries", False),
}
"""What the pipelines of transformers have."""

LOAD: Mapping[str, OtherName] = {
    "max_tokens": OtherName("max_batch_tokens", earlier=True),
    # The path.
    **{name: _same("path") for name in (
        "model_path", "model_name", "model_name_or_path", "model_size_or_path", "pretrained_model_name_or_path")},
    "repo_id": _same("path"),
    "filename": _else("put it at the end of the name, as in org/name/model.gguf"),
    **{name: _else(_CACHE) for name in ("cache_dir", "cache_folder", "download_root")},
    **{name: _else(_TOKEN, False) for name in ("token", "use_auth_token")},
    "local_files_only": _else("the environment variable HF_HUB_OFFLINE=1 forbids to ask the hub", False),
    "force_download": _else("hf cache rm removes a model from the cache", False),
    "trust_remote_code": _else("the engine never runs the code of a model folder; leave it out", False),
    "subfolder": _else("put it at the end of the path", ""),
    # Threads.
    **{name: _same("threads", (0, None)) for name in ("intra_threads", "cpu_threads")},
    **{name: _same("threads") for name in ("n_threads", "num_threads")},
    "n_threads_batch": _else("threads says how many threads compute, prompts too"),
    "inter_threads": _else("any number of Python threads may call one object", 1),
    "num_workers": _else("any number of Python threads may call one object", 0, 1),
    # Precisions.
    "compute_type": _same("precision", ("default", None), ("int8_float32", "int8"), ("int8_bfloat16", "int8")),
    **{name: _same("precision", ("auto", None)) for name in ("dtype", "torch_dtype")},
    "use_bf16": _same("precision", (True, "bfloat16"), (False, None)),
    "use_fp16": _else('precision="bfloat16" computes in 16 bits, where the CPU does', False),
    "load_in_8bit": _same("precision", (True, "int8"), (False, None)),
    "load_in_4bit": _same("precision", (True, "int4"), (False, None)),
    "quantization_config": _else('precision="int8" or "int4" quantizes the weights'),
    # The device.
    "device": _else(_CPU, "cpu", "auto"),
    "device_map": _else(_CPU, "cpu", "auto"),
    "device_index": _else(_CPU, 0),
    "device_ids": _else(_CPU),
    "devices": _else(_CPU, "cpu", ["cpu"]),
    "n_gpu_layers": _else(_CPU, 0),
    "cuda": _else(_CPU, False),
    "providers": _else(_CPU, ["CPUExecutionProvider"]),
    "attn_implementation": _else("a backend has one implementation of attention; leave it out", "eager", "sdpa"),
    # Memory.
    "use_mmap": _same("memory", (True, "map"), (False, "copy")),
    "use_mlock": _else(_LACKS, False),
    "low_cpu_mem_usage": _else('memory="map" maps the file, and is the default', True, False),
    "lazy_load": _else(_LACKS, False),
    "n_ctx": _else("the limit is that of the model; max_batch_tokens bounds the longest prompt", 0),
    "n_batch": _else("max_batch_tokens bounds the tokens that are computed together"),
    "max_queued_batches": _else(_BATCHES, 0),
    "cache_tokens": _else("a Generator alone has it; max_rows and max_batch_tokens bound a call of a Transcriber or of "
                          "a Reranker, and an Engine keeps nothing"),
    # What a call or the folder says.
    "seed": _else(_AT_CALL),
    "verbose": _else('logging.getLogger("engine") says how much is logged', False),
    **{name: _else(_AT_CALL) for name in ("truncate_dim", "normalize_embeddings", "batch_size")},
    **{name: _nothing("the model's folder says where texts are truncated")
       for name in ("query_max_length", "passage_max_length")},
    "query_instruction_for_retrieval": _else("prompt=... of encode stands in front of each text"),
    "pooling_method": _else(_FOLDER),
    "prompts": _else(_FOLDER),
    "default_prompt_name": _else(_FOLDER),
    "similarity_fn_name": _else(_FOLDER),
    "num_labels": _else(_FOLDER, 1),
    **{name: _else(_FOLDER, {}) for name in (
        "model_kwargs", "tokenizer_kwargs", "processor_kwargs", "config_kwargs", "automodel_args", "config")},
    "tokenizer": _else("the tokenizer is in the model's folder; leave it out"),
    "tokenizer_path": _else("the tokenizer is in the model's folder; leave it out"),
    "chat_format": _nothing(CHAT),
    "embedding": _else('kind="encode" loads an encoder', False),
    "files": _else("pass the path of a folder"),
}

CALLS: Mapping[str, Mapping[str, OtherName]] = {
    "__init__": {name: row for name, row in LOAD.items() if row.ours not in ("path", "memory")},
    "load": LOAD,
    "generate": GENERATE,
    "stream": {**GENERATE, "inputs": _same("source"), "input_ids": _same("source"), "stream": _else(_STREAM, True)},
    "results": GENERATE,
    "translate": {
        **GENERATE, "inputs": _same("texts"), "source": _same("texts"), "src_lang": _same("source_language"),
        "tgt_lang": _same("target_language"), "input_ids": _else("call generate for token ids")},
    "score": SCORE,
    "transcribe": TRANSCRIBE,
    "transcriptions": TRANSCRIBE,
    "detect_language": {"sounds": TRANSCRIBE["sounds"]},
    "encode": ENCODE,
    "encode_sparse": {
        **{name: row for name, row in ENCODE.items() if row.ours in (None, "sentences")},
        "convert_to_tensor": _else("the result is SparseVectors, whose parts are NumPy arrays", True, False),
        "convert_to_sparse_tensor": _else("the result is SparseVectors, whose parts are NumPy arrays", True),
        "return_dense": _else("encode(sentences) returns one vector for each text", False),
        "return_sparse": _else("encode_sparse returns the sparse vectors", True),
        "save_to_cpu": _else("everything is on the CPU", True, False)},
    "encode_tokens": {
        **{name: row for name, row in ENCODE.items() if row.ours in (None, "sentences")},
        "convert_to_numpy": _else("the result is a list of NumPy arrays", True, False),
        "return_dense": _else("encode(sentences) returns one vector for each text", False),
        "return_colbert_vecs": _else("encode_tokens returns the vectors of tokens", True),
        "convert_to_tensor": _else("the result is a list of NumPy arrays; pass each to torch.from_numpy", False),
        "output_value": _else(_LACKS, "token_embeddings"),
        "device": _else(_CPU, "cpu"),
        "pool": _else("one engine uses all CPUs that the process may use"),
        "chunk_size": _else("one engine uses all CPUs that the process may use"),
        "token_pooling": _else(_LACKS)},
    "classify": {**PIPELINE, "return_all_scores": _same("top_k", (True, None), (False, 1))},
    "tag": {**PIPELINE, "grouped_entities": _same("aggregation_strategy", (True, "simple"), (False, "none")),
            "offset_mapping": _else("the tokenizer gives the offsets"),
            "delimiter": _else("words are joined by spaces", " ")},
    "fill_mask": PIPELINE,
    "answer": {**{name: row for name, row in PIPELINE.items() if row.ours is None},
               "topk": _same("top_k"), "max_question_len": _else("a question may be as long as the window lets it")},
    "predict": {**RANK, "sentences": _same("pairs"), "inputs": _same("pairs")},
    "rank": {**RANK, "docs": _same("documents"), "passages": _same("documents"), "texts": _same("documents"),
             "top_n": _same("top_k")},
    # Of engine.ops; torch has these names.
    "attention": {"is_causal": _same("causal"),
                  "attn_mask": _else("it is called mask if it is bool, and bias if it is added to the scores"),
                  "dropout_p": _else("there is no dropout", 0.0),
                  "enable_gqa": _else("k and v may have fewer heads than q in any case", True, False)},
    "softmax": {"dim": _same("axis")},
}
"""The rows of each function, by the name of the function."""

MODEL_FIRST = "the model is the first argument, without an option"
_FILE = "the file is the second argument, without an option"


def _option(name: str) -> str:
    return f"{name} is the same"


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "": {"-m": MODEL_FIRST, "--model": MODEL_FIRST, "-t": _option("--threads"),
         "-o": "the results go to standard output; write > FILE at the end"},
    "generate": {"-p": _option("--prompt"), "-n": _option("--max-new-tokens"), "-s": _option("--seed"), "-f": _FILE,
                 "--file": _FILE},
    "translate": {"-n": _option("--max-new-tokens"), "-f": _FILE, "--file": _FILE,
                  **{name: _option("--source-language") for name in ("--src-lang", "--source-lang", "--from")},
                  **{name: _option("--target-language") for name in ("--tgt-lang", "--target-lang", "--to")}},
    "transcribe": {"-f": "the recordings follow the model, without an option", "-l": _option("--language"),
                   "--word-timestamps": _option("--words"), "--output-dir": "--output takes the path of a file",
                   "--output-format": "--json, --srt and --vtt are the formats"},
}
"""What to type in place of an option of another command line, by our command; "" is for all. These options are no
arguments of `CALLS`, or are other options than arguments."""

_GENERATES = "a Generator generates; engine.load returns the object that the model's files ask for"
_ENCODES = "an Engine encodes; engine.load returns the object that the model's files ask for"
_SPEECH = "a Transcriber transcribes; engine.load returns the object that the model's files ask for"
_EMBEDS = "encode(sentences) of an Engine does it"
_TOKENIZER = "the attribute tokenizer has encode and decode"

METHODS: Mapping[str, str] = {
    "apply_chat_template": CHAT,
    "create_chat_completion": CHAT,
    "chat": CHAT,
    "create_completion": "generate([prompt]) and stream(prompt) of a Generator do it",
    "generate_batch": "generate(inputs) of a Generator does it",
    "generate_tokens": "stream(source) of a Generator does it",
    "generate_iterable": "results(inputs) of a Generator does it",
    "score_batch": "score(inputs, targets) of a Generator does it",
    "translate_batch": "translate(texts) of a Generator does it, and generate(ids) for token ids",
    "translate_file": "translate(lines) of a Generator does it",
    "batch_decode": "tokenizer.decode turns the ids of one result into text, and a result has its text",
    "detokenize": _TOKENIZER,
    "tokenize": _TOKENIZER,
    "decode": _TOKENIZER,
    "eos_token_id": "generation.eos_token_id has it",
    "generation_config": "generation has the settings of the model",
    "create_embedding": _EMBEDS,
    "embed": _EMBEDS,
    "query_embed": "encode_query(sentences) of an Engine does it",
    "passage_embed": "encode_document(sentences) of an Engine does it",
    "encode_queries": "encode_query(sentences) of an Engine does it",
    "encode_corpus": "encode_document(sentences) of an Engine does it",
    "compute_score": "predict(pairs) does it for a reranker; similarity(a, b) compares vectors of any kind",
    "compute_lexical_matching_score": "a.dot(b) does it for the results of encode_sparse",
    "colbert_score": "similarity(a, b) does it for the results of encode_tokens of lists of texts",
    "convert_id_to_token": "decode() of the result of encode_sparse gives the tokens with their weights",
    "start_multi_process_pool": "threads= of load says how many CPUs work",
    "rerank": "rank(query, documents) of a Reranker does it",
    "eval": "nothing is trained here; leave it out",
    "encode": _ENCODES,
    "encode_query": _ENCODES,
    "encode_document": _ENCODES,
    "forward": _ENCODES,
    "generate": _GENERATES,
    "stream": _GENERATES,
    "score": _GENERATES,
    "translate": _GENERATES,
    "rank": "a Reranker ranks; engine.load(path, kind=\"rank\") makes one",
    "predict": "a Reranker predicts scores; engine.load(path, kind=\"rank\") makes one",
    "transcribe": _SPEECH,
    "detect_language": _SPEECH,
}
"""What to do in place of a method or an attribute that an object of the engine does not have."""

CALLED: Mapping[str, str] = {
    "Engine": "encode(sentences) or forward(input_ids), or for a model with a head classify, tag, answer or fill_mask",
    "Generator": "generate([prompt]), stream(prompt) or translate([text])",
    "Reranker": "rank(query, documents) or predict(pairs)",
    "Transcriber": "transcribe([recording])",
}
"""What to call in place of an object of each class itself, as llama-cpp-python and transformers allow it."""
