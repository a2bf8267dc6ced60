"""The tables of docs/coming-from.md, made from the table of advice. Run this file as a module to write them anew:

    python -m tests.base.advice

`LIBRARIES` says which names a library has; a name that stands under no library comes into the last tables of the page.
Those of a generation are all that the library has, also the names that are the engine's own, which no table shows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import signature

import engine
from engine import Engine, Generator, Reranker, Transcriber
from engine.base.advice.attributes import ATTRIBUTES, CONFIG, MODULE, TOKENIZER
from engine.base.advice.calls import CALLS, LACKED, WITHOUT_EFFECT
from engine.base.advice.commands import COMMANDS, OPTIONS
from engine.base.other_names import OtherName
from engine.cli.main import parsers
from engine.interface.session import Session
from engine.model.generation_config import CHECKS

from ..tools.documents import ROOT, with_tables

DOCUMENT = ROOT / "docs" / "coming-from.md"
TABLES: Mapping[str, Mapping[str, str]] = {"methods": ATTRIBUTES, "module": MODULE, "tokenizer": TOKENIZER,
                                           "config": CONFIG}
"""The names that are no arguments, by the scopes of `LIBRARIES`; every other scope is a function of `CALLS`."""

LIBRARIES: Mapping[str, Mapping[str, str]] = {
    "transformers": {
        "module": "AutoModel AutoModelForCausalLM AutoModelForSequenceClassification AutoModelForTokenClassification "
                  "AutoTokenizer AutoConfig pipeline from_pretrained",
        "load": "pretrained_model_name_or_path dtype torch_dtype device device_map load_in_8bit load_in_4bit "
                "quantization_config attn_implementation low_cpu_mem_usage cache_dir token use_auth_token subfolder "
                "local_files_only force_download trust_remote_code tokenizer model_kwargs config num_labels",
        "generate": f"inputs input_ids attention_mask decoder_input_ids decoder_attention_mask inputs_embeds "
                    f"position_ids token_type_ids encoder_outputs past_key_values streamer stopping_criteria "
                    f"logits_processor prefix_allowed_tokens_fn assistant_model assistant_tokenizer tokenizer "
                    f"negative_prompt_ids negative_prompt_attention_mask custom_generate return_full_text synced_gpus "
                    f"generation_config batch_size max_length max_new_tokens min_length min_new_tokens early_stopping "
                    f"stop_strings do_sample num_beams temperature top_k top_p min_p repetition_penalty length_penalty "
                    f"no_repeat_ngram_size bad_words_ids renormalize_logits forced_bos_token_id forced_eos_token_id "
                    f"suppress_tokens begin_suppress_tokens num_return_sequences pad_token_id bos_token_id "
                    f"eos_token_id encoder_no_repeat_ngram_size decoder_start_token_id "
                    f"{' '.join([*WITHOUT_EFFECT, *LACKED])}",
        "translate": "src_lang tgt_lang",
        "classify": "inputs padding max_length tokenizer_kwargs num_workers return_tensors return_all_scores "
                    "sequences multi_class",
        "tag": "grouped_entities offset_mapping delimiter",
        "answer": "topk max_question_len",
        "transcribe": "return_timestamps chunk_length_s stride_length_s generate_kwargs prompt_ids "
                      "condition_on_prev_tokens logprob_threshold no_speech_threshold compression_ratio_threshold",
        "chat": "conversation conversations chat_template",
        "apply_chat_template": "truncation return_dict return_assistant_tokens_mask",
        "methods": "to half float eval train parameters named_parameters state_dict load_state_dict requires_grad_ "
                   "save_pretrained push_to_hub get_input_embeddings num_parameters generation_config id2label "
                   "label2id batch_decode",
        "tokenizer": " ".join(TOKENIZER),
        "config": " ".join(CONFIG)},
    "OpenAI": {
        "generate": "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty "
                    "seed stop stream stream_options suffix temperature top_p user extra_headers extra_query "
                    "extra_body timeout",
        "chat": "messages model audio frequency_penalty function_call functions logit_bias logprobs "
                "max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction "
                "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort "
                "response_format safety_identifier seed service_tier stop store stream stream_options temperature "
                "tool_choice tools top_logprobs top_p user verbosity web_search_options"},
    "vLLM": {
        "generate": "prompt sampling_params use_tqdm lora_request n best_of presence_penalty frequency_penalty "
                    "repetition_penalty temperature top_p top_k min_p seed stop stop_token_ids ignore_eos max_tokens "
                    "min_tokens logprobs prompt_logprobs logprob_token_ids flat_logprobs detokenize "
                    "skip_special_tokens spaces_between_special_tokens include_stop_str_in_output guided_decoding "
                    "structured_outputs logit_bias allowed_token_ids extra_args bad_words thinking_token_budget "
                    "repetition_detection use_beam_search length_penalty truncate_prompt_tokens cache_salt"},
    "llama-cpp-python": {
        "module": "Llama",
        "load": "model_path n_threads n_threads_batch n_ctx n_batch n_gpu_layers use_mmap use_mlock seed verbose "
                "embedding chat_format chat_handler repo_id filename",
        "generate": "prompt suffix max_tokens temperature top_p min_p typical_p logprobs echo stop frequency_penalty "
                    "presence_penalty repeat_penalty top_k stream seed tfs_z mirostat_mode mirostat_tau mirostat_eta "
                    "model stopping_criteria logits_processor grammar logit_bias",
        "chat": "messages functions function_call tools tool_choice temperature top_p top_k min_p typical_p stream "
                "stop seed response_format max_tokens presence_penalty frequency_penalty repeat_penalty tfs_z "
                "mirostat_mode mirostat_tau mirostat_eta model logits_processor grammar logit_bias logprobs "
                "top_logprobs",
        "methods": "create_completion create_chat_completion create_embedding embed detokenize from_pretrained"},
    "CTranslate2": {
        "load": "model_path compute_type intra_threads inter_threads device device_index max_queued_batches files",
        "generate": "beam_size num_hypotheses max_decoding_length min_decoding_length patience coverage_penalty "
                    "sampling_topk sampling_topp sampling_temperature target_prefix suppress_sequences disable_unk "
                    "end_token return_scores return_attention return_logits_vocab include_prompt_in_result callback "
                    "max_batch_size batch_type max_input_length",
        "methods": "translate_batch translate_file generate_batch generate_tokens generate_iterable score_batch"},
    "faster-whisper": {
        "module": "WhisperModel",
        "load": "model_size_or_path compute_type cpu_threads num_workers device device_index download_root",
        "transcribe": "beam_size patience best_of word_timestamps without_timestamps initial_prompt hotwords "
                      "vad_filter vad_parameters clip_timestamps condition_on_previous_text "
                      "prompt_reset_on_temperature compression_ratio_threshold log_prob_threshold no_speech_threshold "
                      "hallucination_silence_threshold max_initial_timestamp suppress_blank multilingual chunk_length "
                      "language_detection_threshold language_detection_segments log_progress"},
    "fastembed": {
        "module": "TextEmbedding",
        "load": "model_name cache_dir local_files_only cuda device_ids providers lazy_load",
        "encode": "documents parallel",
        "methods": "embed query_embed passage_embed rerank"},
    "FlagEmbedding": {
        "load": "model_name_or_path use_fp16 use_bf16 devices normalize_embeddings pooling_method "
                "query_instruction_for_retrieval query_max_length passage_max_length",
        "encode": "return_dense return_sparse return_colbert_vecs max_length",
        "methods": "encode_queries encode_corpus compute_score compute_lexical_matching_score colbert_score "
                   "convert_id_to_token"},
    "sentence-transformers": {
        "module": "SentenceTransformer CrossEncoder SparseEncoder util cos_sim dot_score",
        "load": "device prompts default_prompt_name similarity_fn_name cache_folder truncate_dim model_kwargs "
                "processor_kwargs tokenizer_kwargs config_kwargs automodel_args max_seq_length",
        "encode": "inputs processing_kwargs",
        "encode_sparse": "convert_to_sparse_tensor save_to_cpu",
        "encode_tokens": "pool chunk_size token_pooling",
        "predict": "activation_fn activation_fct apply_softmax convert_to_numpy convert_to_tensor sentences",
        "methods": "get_max_seq_length start_multi_process_pool encode_multi_process semantic_search "
                   "community_detection paraphrase_mining"},
}  # fmt: skip
"""The names of each library, by the function that has the argument, or by what they are the names of."""
_COMMANDS = "|".join(parsers()[1])
CODE = re.compile(
    rf"engine (?:{_COMMANDS})\b(?: [A-Z]{{2,}}| -[-\w]+| \w+\.\w+)*"     # a command line
    r"|[\w.]+\((?:[^()]|\([^()]*\))*\)(?:\.\w+)*"                        # a call
    r'|\w+=(?:\[[^\]]*\]|\{.*?\}(?=[ ,;]|$)|"[^"]*"|[^\s,;)]*)'          # an argument
    r'|[a-z]\w*\["\w+"\](?:\.\w+)*|\{"[^}]*\}|[\w/]*[a-z]\w*(?:\.[a-z]\w+)+|\w*[a-z]_\w+|\b[A-Z]+_[A-Z_]+\b'
    r"|(?<![\w-])--?[A-Za-z][-\w]*")


def coded(text: str) -> str:
    """Return advice as Markdown, with names, calls and options as code."""
    return CODE.sub(lambda found: f"`{found[0]}`", text).replace("|", "\\|")


def arguments_of(function: str) -> set[str]:
    """Return the names of the arguments that a function has in any class, settings of a generation included."""
    owners = (Engine, Generator, Reranker, Transcriber, Session, engine.ops)
    names = {name for owner in owners if hasattr(owner, function)
             for name in signature(getattr(owner, function)).parameters}
    return names | CHECKS.keys() if "settings" in names else names


def literal(value: object) -> str:
    """Return a value as code."""
    return f"`{value!r}`".replace("'", '"')


def said(row: OtherName, place: str) -> str:
    """Return what becomes of an argument. place: what has our name, such as " of `load`"."""
    if row.ours is None:
        neutral = [literal(value) for value in row.neutral if value is not None]
        return coded(row.advice) + (f" ({' and '.join(neutral)}: accepted)" if neutral else "")
    pairs = "; ".join(f"{literal(theirs)} is {literal(ours)}" for theirs, ours in row.values)
    return f"`{row.ours}`{place}{', its earlier name' * row.earlier}" + (f" ({pairs})" if pairs else "")


def answers(names: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str]]:
    """Yield the names of each scope with what becomes of them."""
    for scope, own in names.items():
        for name in own:
            if scope in TABLES:
                yield name, coded(TABLES[scope][name])
            elif name in CALLS[scope] or name not in arguments_of(scope):
                yield name, said(CALLS[scope][name], f" of `{scope}`")


def table(head: str, found: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and what becomes of them; names with one answer share a row."""
    rows: dict[str, list[str]] = {}
    for name, answer in found:
        names = rows.setdefault(answer, [])
        names += [name] if name not in names else []
    return "\n".join([f"| {head} | here |", "|---|---|", *(
        f"| {', '.join(f'`{name}`' for name in names)} | {answer} |" for answer, names in rows.items())])


def unlisted() -> dict[str, list[str]]:
    """Return the names that stand under no library, or under one with another answer, by their scopes."""
    scopes: Mapping[str, Mapping[str, object]] = {**CALLS, **TABLES}
    listed = {(name, repr(scopes[scope][name])) for own in LIBRARIES.values() for scope, names in own.items()
              for name in names.split() if name in scopes[scope]}
    found: dict[str, list[str]] = {}
    for scope, rows in scopes.items():
        found[scope] = [name for name, row in rows.items() if (name, repr(row)) not in listed]
        listed |= {(name, repr(row)) for name, row in rows.items()}
    return found


def options() -> Iterator[tuple[str, str]]:
    """Yield the options of other programs with the command that has them and what becomes of them."""
    for command, rows in OPTIONS.items():
        for typed, row in rows.items():
            yield typed, f"`engine {command}`: " * bool(command) + said(row, "")


def tables() -> dict[str, str]:
    """Return the tables of the page by their names."""
    found = {library: table(library, answers({scope: names.split() for scope, names in own.items()}))
             for library, own in LIBRARIES.items()}
    others = unlisted()
    return {**found, "arguments": table("argument", answers({
        scope: names for scope, names in others.items() if scope not in TABLES})),
        "methods": table("method or attribute", answers({
            scope: names for scope, names in others.items() if scope in TABLES})),
        "options": table("option", options()),
        "commands": table("command", ((typed, said(row, "")) for typed, row in COMMANDS.items()))}


def document() -> str:
    """Return docs/coming-from.md with its tables made anew."""
    return with_tables(DOCUMENT, "tests.base.advice", tables())


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
