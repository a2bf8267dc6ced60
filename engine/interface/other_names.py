"""What other libraries call the arguments of `load`, and the methods and attributes of its objects.

`same` names our argument, with pairs (their value, ours). `instead` says what to do, and accepts the values behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import BATCHES, CHAT, CPU, FOLDER, LACKS, LIMIT, OtherName, instead, register, same

_CACHE = "the environment variable HF_HUB_CACHE says where models of the hub are kept"
_TOKEN = "log in with hf auth login, or set the environment variable HF_TOKEN"
_AT_CALL = "give it to the call, and not to load"

LOAD: Mapping[str, OtherName] = {
    "max_tokens": OtherName("max_batch_tokens", earlier=True),
    # The path.
    **{name: same("path") for name in (
        "model_path", "model_name", "model_name_or_path", "model_size_or_path", "pretrained_model_name_or_path")},
    "repo_id": same("path"),
    "filename": instead("put it at the end of the name, as in org/name/model.gguf"),
    **{name: instead(_CACHE) for name in ("cache_dir", "cache_folder", "download_root")},
    **{name: instead(_TOKEN, False) for name in ("token", "use_auth_token")},
    "local_files_only": instead("the environment variable HF_HUB_OFFLINE=1 forbids to ask the hub", False),
    "force_download": instead("hf cache rm removes a model from the cache", False),
    "trust_remote_code": instead("the engine never runs the code of a model folder; leave it out", False),
    "subfolder": instead("put it at the end of the path", ""),
    # Threads.
    **{name: same("threads", (0, None)) for name in ("intra_threads", "cpu_threads")},
    **{name: same("threads") for name in ("n_threads", "num_threads")},
    "n_threads_batch": instead("threads says how many threads compute, prompts too"),
    "inter_threads": instead("any number of Python threads may call one object", 1),
    "num_workers": instead("any number of Python threads may call one object", 0, 1),
    # Precisions.
    "compute_type": same("precision", ("default", None), ("int8_float32", "int8"), ("int8_bfloat16", "int8")),
    **{name: same("precision", ("auto", None)) for name in ("dtype", "torch_dtype")},
    "use_bf16": same("precision", (True, "bfloat16"), (False, None)),
    "use_fp16": instead('precision="bfloat16" computes in 16 bits, where the CPU does', False),
    "load_in_8bit": same("precision", (True, "int8"), (False, None)),
    "load_in_4bit": same("precision", (True, "int4"), (False, None)),
    "quantization_config": instead('precision="int8" or "int4" quantizes the weights'),
    # The device.
    "device": instead(CPU, "cpu", "auto"),
    "device_map": instead(CPU, "cpu", "auto"),
    "device_index": instead(CPU, 0),
    "device_ids": instead(CPU),
    "devices": instead(CPU, "cpu", ["cpu"]),
    "n_gpu_layers": instead(CPU, 0),
    "cuda": instead(CPU, False),
    "providers": instead(CPU, ["CPUExecutionProvider"]),
    "attn_implementation": instead("a backend has one implementation of attention; leave it out", "eager", "sdpa"),
    # Memory.
    "use_mmap": same("memory", (True, "map"), (False, "copy")),
    "use_mlock": instead(LACKS, False),
    "low_cpu_mem_usage": instead('memory="map" maps the file, and is the default', True, False),
    "lazy_load": instead(LACKS, False),
    "n_ctx": instead("the limit is that of the model; long_context=True (--long-context) is for models with two tables "
                     "of positions, such as Phi-3.5", 0),
    "n_batch": instead("max_batch_tokens bounds the tokens that are computed together"),
    "max_queued_batches": instead(BATCHES, 0),
    "cache_tokens": instead("a Generator alone has it; max_rows and max_batch_tokens bound a call of a Transcriber or "
                            "of a Reranker, and an Engine keeps nothing"),
    # What a call or the folder says.
    "seed": instead(_AT_CALL),
    "verbose": instead('logging.getLogger("engine") says how much is logged', False),
    **{name: instead(_AT_CALL) for name in ("truncate_dim", "normalize_embeddings", "batch_size")},
    **{name: instead(LIMIT) for name in ("max_seq_length", "query_max_length", "passage_max_length")},
    "query_instruction_for_retrieval": instead("prompt=... of encode stands in front of each text"),
    "pooling_method": instead(FOLDER),
    "prompts": instead(FOLDER),
    "default_prompt_name": instead(FOLDER),
    "similarity_fn_name": instead(FOLDER),
    "num_labels": instead(FOLDER, 1),
    **{name: instead(FOLDER, {}) for name in (
        "model_kwargs", "tokenizer_kwargs", "processor_kwargs", "config_kwargs", "automodel_args", "config")},
    "tokenizer": instead("the tokenizer is in the model's folder; leave it out"),
    "tokenizer_path": instead("the tokenizer is in the model's folder; leave it out"),
    "chat_format": instead("the template is in the model's files; template=... of chat takes another one"),
    "chat_handler": instead("the template is in the model's files; template=... of chat takes another one"),
    "embedding": instead('kind="encode" loads an encoder', False),
    "files": instead("pass the path of a folder"),
}

register({"__init__": {name: row for name, row in LOAD.items() if row.ours not in ("path", "memory")}, "load": LOAD,})

_GENERATES = "a Generator generates; engine.load returns the object that the model's files ask for"
_ENCODES = "an Engine encodes; engine.load returns the object that the model's files ask for"
_SPEECH = "a Transcriber transcribes; engine.load returns the object that the model's files ask for"
_EMBEDS = "encode(sentences) of an Engine does it"
_TOKENIZER = "the attribute tokenizer has encode and decode"

METHODS: Mapping[str, str] = {
    **dict.fromkeys(("to", "cuda", "cpu", "device", "get_device"), CPU),
    **dict.fromkeys(("half", "float", "double", "bfloat16", "float16", "quantize", "dtype"),
                    'precision="bfloat16" or "int8" of load chooses the precision; the attribute precision says it'),
    **dict.fromkeys(("train", "fit", "fine_tune", "finetune", "parameters", "named_parameters", "state_dict",
                     "load_state_dict", "requires_grad_"), "nothing is trained here"),
    **dict.fromkeys(("from_pretrained", "from_checkpoint", "from_gguf"), "load reads a path or a name on the hub"),
    **dict.fromkeys(("save_pretrained", "push_to_hub", "export"), "save(path) writes one .npz"),
    **dict.fromkeys(("compile", "warmup"), "the kernels are compiled already; leave it out"),
    **dict.fromkeys(("modules", "layers", "embeddings", "get_input_embeddings", "encoder", "model", "net"),
                    "load_model(path) returns a Model, which has the weights by name"),
    **dict.fromkeys(("convert_ids_to_tokens", "convert_tokens_to_ids", "convert_tokens_to_string"), _TOKENIZER),
    **dict.fromkeys(("predict_proba", "decision_function"),
                    "classify(texts, top_k=None) gives the probabilities of all labels, and predict(pairs) scores"),
    **dict.fromkeys(("get_max_seq_length", "max_length"), "max_seq_length has it"),
    **dict.fromkeys(("id2label", "labels", "label2id", "classes_"), 'heads["classify"].labels has the labels'),
    "truncate_dim": "encode(..., truncate_dim=...) does it",
    "embed_query": "encode_query(text) of an Engine does it",
    "embed_documents": "encode_document(texts) of an Engine does it",
    **dict.fromkeys(("transform", "fit_transform", "embed_text", "get_embeddings", "get_text_embedding"), _EMBEDS),
    **dict.fromkeys(("ner", "extract_entities", "token_classification"), "tag(texts) of an Engine does it"),
    **dict.fromkeys(("question_answering", "qa"), "answer(question, context) of an Engine does it"),
    **dict.fromkeys(("unmask", "fill"), "fill_mask(texts) of an Engine does it"),
    **dict.fromkeys(("semantic_search", "search", "community_detection", "paraphrase_mining"),
                    "similarity(queries, documents) gives all similarities, on which np.argsort sorts"),
    "complete": "generate(prompt) of a Generator does it",
    "summarize": "generate(text) of a Generator does it",
    "perplexity": "score(text) of a Generator gives the log probability of each token",
    **dict.fromkeys(("dim", "dimension", "embedding_size", "embedding_dim", "shape"),
                    "get_embedding_dimension() of an Engine says it, and config.hidden_size the width of the model"),
    **dict.fromkeys(("hidden_size", "vocab_size", "num_layers", "num_attention_heads", "config_class"),
                    "the attribute config has it"),
    **dict.fromkeys(("num_parameters", "name", "path", "model_name", "summary", "info"),
                    "print(model) says what it is, and the command engine info more"),
    **dict.fromkeys(("free", "release", "unload", "delete"), "close() frees the weights"),
    **dict.fromkeys(("run", "infer", "inference", "pipeline", "invoke"), "help(model) lists the methods"),
    **dict.fromkeys(("similarity_fn", "score_fn", "score_functions"), "similarity_fn_name and similarity have it"),
    "encode_multi_process": "encode(sentences) uses all CPUs that the process may use",
    **dict.fromkeys(("create_chat_completion", "chat_completion", "apply_chat_template", "chat", "stream_chat"), CHAT),
    "chat_template": "text.chat has the templates of the model's files",
    "get_chat_template": "text.chat has the templates of the model's files",
    "create_completion": "generate(prompt) and stream(prompt) of a Generator do it",
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
    **dict.fromkeys(("forward", "similarity", "similarity_pairwise", "with_text", "encode_stream", "encode_sparse",
                     "encode_tokens", "classify", "tag", "answer", "fill_mask", "look"), _ENCODES),
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

SET: Mapping[str, str] = {
    **{name: f"with_text({name}=...) of an Engine returns another one with it, which shares the weights" for name in (
        "max_seq_length", "prompts", "default_prompt_name", "truncate_dim")},
    "max_length": "with_text(max_seq_length=...) of an Engine returns another one with it; a Reranker has it in load",
    "similarity_fn_name": "with_text(similarity=...) returns another engine with it, which shares the weights",
    "text": "with_text(...) of an Engine returns another one with other text settings, which shares the weights",
    "generation": "give the settings as arguments of the call",
    "generation_config": "give the settings as arguments of the call",
    "device": CPU,
}
"""What to do in place of setting an attribute; for every other public one, load the model again."""

MODULE: Mapping[str, str] = {
    **dict.fromkeys(("pipeline", "from_pretrained", "AutoModel", "AutoTokenizer", "AutoModelForCausalLM", "AutoConfig",
                     "AutoModelForSequenceClassification", "AutoModelForTokenClassification", "Model.from_pretrained",
                     "LLM", "Llama", "WhisperModel", "TextEmbedding", "InferenceSession", "load_engine", "Encoder",
                     "Embedder"), "engine.load(path) returns the object for the model: an Engine, a Generator ..."),
    **dict.fromkeys(("SentenceTransformer", "CrossEncoder", "SparseEncoder"),
                    "from engine.adapters.sentence_transformers import it; engine.load(path) is the engine's own"),
    **dict.fromkeys(("encode", "embed", "classify", "tag", "answer", "rank", "rerank", "fill_mask", "generate",
                     "stream", "translate", "score", "transcribe", "similarity", "tokenize"),
                    "it is a method of a loaded model: model = engine.load(path)"),
    **dict.fromkeys(("attention", "layer_norm", "linear", "softmax"), "engine.ops has it"),
    "convert": "engine.convert_model(model, precision) and the command engine convert do it",
    **dict.fromkeys(("cos_sim", "dot_score", "util"), "similarity(a, b) of an Engine compares vectors"),
    **dict.fromkeys(("cuda", "device", "set_device", "is_available", "get_backend"),
                    "backend=... of load chooses the backend, and engine info lists them"),
    **dict.fromkeys(("set_threads", "set_num_threads", "get_num_threads"), "threads=... of load says how many"),
    **dict.fromkeys(("download", "fetch", "snapshot_download", "list_models"),
                    "engine.load(name) downloads a model of the hub, and the command engine fetch, too"),
    **dict.fromkeys(("load_audio", "load_wav"), "engine.read_audio(path) reads a file"),
    "Whisper": "engine.load(path) returns a Transcriber for Whisper",
    "version": "engine.__version__ says it",
    "Tokenizer": "a loaded model has the attribute tokenizer",
    "adapters": "import engine.adapters.sentence_transformers, langchain or another one by its whole name",
}
"""What to do in place of a name that the module `engine` does not have."""

CALLED: Mapping[str, str] = {
    "Engine": "encode(sentences) or forward(input_ids), or for a model with a head classify, tag, answer or fill_mask",
    "Generator": "generate(prompt), chat(messages), stream(prompt) or translate(text)",
    "Reranker": "rank(query, documents) or predict(pairs)",
    "Transcriber": "transcribe(recording)",
}
"""What to call in place of an object of each class itself, as llama-cpp-python and transformers allow it."""
