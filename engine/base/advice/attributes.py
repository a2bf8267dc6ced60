"""What to do in place of a method, an attribute or a name that an object or the module `engine` does not have."""

from __future__ import annotations

from collections.abc import Mapping

from ..other_names import each
from .calls import AS_ARGUMENTS, CHAT, CPU, THREADS

_GENERATES = "a Generator generates; engine.load returns the object that the model's files ask for"
_ENCODES = "an Engine encodes; engine.load returns the object that the model's files ask for"
_SPEECH = "a Transcriber transcribes; engine.load returns the object that the model's files ask for"
_TEXTS_TO_VECTORS = "encode(sentences) of an Engine does it"
_IMAGES_TO_VECTORS = "encode(images) of an Engine does it, where the path of an image is a pathlib.Path"
_TOKENIZER = "the attribute tokenizer has encode and decode"

ATTRIBUTES: Mapping[str, str] = each({
    "to cuda cpu device get_device": CPU,
    "half float double bfloat16 float16 quantize dtype":
        'precision="bfloat16" or "int8" of load chooses the precision; the attribute precision says it',
    "train fit fine_tune finetune parameters named_parameters state_dict load_state_dict requires_grad_":
        "nothing is trained here",
    "eval": "nothing is trained here; leave it out",
    "from_pretrained from_checkpoint from_gguf": "load reads a path or a name on the hub",
    "save_pretrained push_to_hub export": "save(path) writes one .npz",
    "compile warmup": "the kernels are compiled already; leave it out",
    "modules layers embeddings get_input_embeddings encoder model net":
        "load_model(path) returns a Model, which has the weights by name",
    "convert_ids_to_tokens convert_tokens_to_ids convert_tokens_to_string detokenize tokenize decode": _TOKENIZER,
    "batch_decode": "tokenizer.decode turns the ids of one result into text, and a result has its text",
    "predict_proba decision_function":
        "classify(texts, top_k=None) gives the probabilities of all labels, and predict(pairs) scores",
    "get_max_seq_length max_length": "max_seq_length has it",
    "id2label labels label2id classes_": 'heads["classify"].labels has the labels',
    "truncate_dim": "encode(..., truncate_dim=...) does it",
    "embed_query": "encode_query(text) of an Engine does it",
    "embed_documents": "encode_document(texts) of an Engine does it",
    "query_embed encode_queries": "encode_query(sentences) of an Engine does it",
    "passage_embed encode_corpus": "encode_document(sentences) of an Engine does it",
    "encode_image encode_images get_image_features embed_image embed_images": _IMAGES_TO_VECTORS,
    "encode_text encode_texts get_text_features": _TEXTS_TO_VECTORS,
    "image_classification zero_shot_image_classification":
        "classify(images) of an Engine does it, and classify(images, candidate_labels=[...]) with labels of your own",
    "transform fit_transform embed_text get_embeddings get_text_embedding create_embedding embed feature_extraction":
        _TEXTS_TO_VECTORS,
    "text_classification sentiment_analysis": "classify(texts) of an Engine does it",
    "zero_shot zero_shot_classification": "classify(texts, candidate_labels=[...]) of an Engine does it",
    "ner extract_entities token_classification": "tag(texts) of an Engine does it",
    "question_answering qa": "answer(question, context) of an Engine does it",
    "unmask fill": "fill_mask(texts) of an Engine does it",
    "semantic_search search community_detection paraphrase_mining":
        "similarity(queries, documents) gives all similarities, on which np.argsort sorts",
    "compute_score": "predict(pairs) does it for a reranker; similarity(a, b) compares vectors of any kind",
    "compute_lexical_matching_score": "a.dot(b) does it for the results of encode_sparse",
    "colbert_score": "similarity(a, b) does it for the results of encode_tokens of lists of texts",
    "convert_id_to_token": "decode() of the result of encode_sparse gives the tokens with their weights",
    "rerank": "rank(query, documents) of a Reranker does it",
    "complete": "generate(prompt) of a Generator does it",
    "create_completion": "generate(prompt) and stream(prompt) of a Generator do it",
    "summarize": "generate(text) of a Generator does it",
    "perplexity": "score(text) of a Generator gives the log probability of each token",
    "generate_batch": "generate(inputs) of a Generator does it",
    "generate_tokens": "stream(source) of a Generator does it",
    "generate_iterable": "results(inputs) of a Generator does it",
    "score_batch": "score(inputs, targets) of a Generator does it",
    "translate_batch": "translate(texts) of a Generator does it, and generate(ids) for token ids",
    "translate_file": "translate(lines) of a Generator does it",
    "create_chat_completion chat_completion apply_chat_template chat stream_chat": CHAT,
    "chat_template get_chat_template": "text.chat has the templates of the model's files",
    "dim dimension embedding_size embedding_dim shape":
        "get_embedding_dimension() of an Engine says it, and config.hidden_size the width of the model",
    "hidden_size vocab_size num_layers num_attention_heads config_class": "the attribute config has it",
    "eos_token_id": "generation.eos_token_id has it",
    "generation_config": "generation has the settings of the model",
    "num_parameters name path model_name summary info":
        "print(model) says what it is, and the command engine info more",
    "free release unload delete": "close() frees the weights",
    "run infer inference pipeline invoke": "help(model) lists the methods",
    "similarity_fn score_fn score_functions": "similarity_fn_name and similarity have it",
    "encode_multi_process": "encode(sentences) uses all CPUs that the process may use",
    "start_multi_process_pool": THREADS,
    "encode encode_query encode_document forward similarity similarity_pairwise with_text encode_stream encode_sparse "
    "encode_tokens classify tag answer fill_mask look": _ENCODES,
    "generate stream score translate": _GENERATES,
    "rank": 'a Reranker ranks; engine.load(path, kind="rank") makes one',
    "predict": 'a Reranker predicts scores; engine.load(path, kind="rank") makes one',
    "transcribe detect_language": _SPEECH,
})
"""What to do in place of a method or an attribute that an object of the engine does not have."""

_SET = "with_text({}=...) of an Engine returns another one with it, which shares the weights"
SET: Mapping[str, str] = each({
    **{name: _SET.format(name) for name in ("max_seq_length", "prompts", "default_prompt_name", "truncate_dim")},
    "max_length": "with_text(max_seq_length=...) of an Engine returns another one with it; a Reranker has it in load",
    "similarity_fn_name": "with_text(similarity=...) returns another engine with it, which shares the weights",
    "text": "with_text(...) of an Engine returns another one with other text settings, which shares the weights",
    "generation generation_config": AS_ARGUMENTS,
    "device": CPU,
})
"""What to do in place of setting an attribute; for every other public one, load the model again."""

MODULE: Mapping[str, str] = each({
    "pipeline": "engine.load(path) loads a model, and its methods do what pipelines do: classify, tag, fill_mask, "
                "encode, generate, transcribe ...",
    "from_pretrained AutoModel AutoTokenizer AutoModelForCausalLM AutoConfig AutoModelForTokenClassification "
    "AutoModelForSequenceClassification Model.from_pretrained LLM Llama WhisperModel TextEmbedding InferenceSession "
    "load_engine Encoder Embedder": "engine.load(path) returns the object for the model: an Engine, a Generator ...",
    "SentenceTransformer CrossEncoder SparseEncoder":
        "from engine.adapters.sentence_transformers import it; engine.load(path) is the engine's own",
    "encode embed classify tag answer rank rerank fill_mask generate stream translate score transcribe similarity "
    "tokenize": "it is a method of a loaded model: model = engine.load(path)",
    "attention layer_norm linear softmax": "engine.ops has it",
    "convert": "engine.convert_model(model, precision) and the command engine convert do it",
    "cos_sim dot_score util": "similarity(a, b) of an Engine compares vectors",
    "cuda device set_device is_available get_backend backends available_backends list_backends":
        "backend=... of load chooses the backend, and engine info lists them",
    "set_threads set_num_threads get_num_threads": "threads=... of load says how many",
    "download fetch snapshot_download list_models":
        "engine.load(name) downloads a model of the hub, and the command engine fetch, too",
    "load_audio load_wav": "engine.read_audio(path) reads a file",
    "Whisper": "engine.load(path) returns a Transcriber for Whisper",
    "Wav2Vec2ForCTC HubertForCTC AutoModelForCTC": "engine.load(path) returns a Transcriber for such a model",
    "version": "engine.__version__ says it",
    "Tokenizer": "a loaded model has the attribute tokenizer",
    "adapters": "import engine.adapters.sentence_transformers, langchain or another one by its whole name",
})
"""What to do in place of a name that the module `engine` does not have."""

CALLED: Mapping[str, str] = {
    "Engine": "encode(sentences) or forward(input_ids), or for a model with a head classify, tag, answer or fill_mask",
    "Generator": "generate(prompt), chat(messages), stream(prompt) or translate(text)",
    "Reranker": "rank(query, documents) or predict(pairs)",
    "Transcriber": "transcribe(recording)",
}
"""What to call in place of an object of each class itself, as llama-cpp-python and transformers allow it."""

TOKENIZER: Mapping[str, str] = each({
    "apply_chat_template chat_template": CHAT,
    "convert_ids_to_tokens convert_tokens_to_ids id_to_token token_to_id":
        "token(id) gives the text of a token, and token_id(token) its id",
    "tokenize encode_plus batch_encode_plus encode_batch":
        "encode(text) gives the ids of one text, and tokenize(texts) of an Engine those of several",
    "batch_decode decode_batch": "decode(ids) gives one text",
    "convert_tokens_to_string": "join(tokens) does it",
    "pad_token pad_token_id eos_token eos_token_id bos_token bos_token_id cls_token cls_token_id sep_token "
    "sep_token_id unk_token unk_token_id mask_token mask_token_id all_special_ids all_special_tokens":
        "special_tokens has the special tokens with their ids",
    "model_max_length": "limit has the most tokens of a text",
    "vocab_size get_vocab vocab": "config.vocab_size of the model is the number of tokens",
    "from_pretrained from_file save_pretrained save add_tokens add_special_tokens truncation_side padding_side "
    "enable_truncation enable_padding": "the tokenizer is that of the model's folder",
})
"""What to do in place of a method or an attribute that a `Tokenizer` does not have."""

CONFIG: Mapping[str, str] = each({
    "id2label label2id num_labels": 'heads["classify"].labels of the Engine has the labels',
    "eos_token_id": "generation.eos_token_id of the Generator has it",
    "max_position_embeddings": "max_positions has it",
    "num_hidden_layers": "num_layers has it",
    "num_attention_heads": "num_heads has it",
    "intermediate_size": "ffn_size has it",
    "model_type": "family has it",
    "hidden_act": "activation has it",
})
"""What to do in place of an attribute that the configuration of a model does not have."""
