"""Make a tokenizer.json from the settings of a GGUF file, which has the whole tokenizer of a model.

    tokenizer.ggml.model        "gpt2" for BPE over bytes, "llama" for SentencePiece's BPE, "bert" for WordPiece
    tokenizer.ggml.pre          how BPE over bytes splits a text into words
    tokenizer.ggml.tokens       the tokens by their ids; .token_type their types, as SentencePiece numbers them
    tokenizer.ggml.merges       the pairs of "gpt2", the first one first; "llama" has .scores instead

A GGUF file states only the name of the pattern that splits a text. The patterns here are those of the tokenizer.json
that the models were published with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError, shown
from ...files.reading import FormatError
from ..patterns import BLOOM, GPT_4O, words_pattern
from ..safety import MAX_TOKEN, MAX_VOCABULARY
from .byte_pairs import checked_pairs, sentencepiece_bpe
from .sentencepiece import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, PieceTable
from .tokenizer_json import Components, document, with_second_text, wordpiece
from .tokenizer_settings import MAX_ADDED, added_token

_KEYS = "tokenizer.ggml."
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_GPT2 = {**_BYTE_LEVEL, "use_regex": True}


def _split(pattern: str) -> dict[str, Any]:
    """Return the pre-tokenizer that makes a word of each match of a pattern, and of each text between two matches."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    """Return several pre-tokenizers as one."""
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _words(digits: str) -> dict[str, Any]:
    """Return the pre-tokenizer of Llama 3 and Qwen. digits: the pattern of a token's digits, in which they differ."""
    return _sequence(_split(words_pattern(digits)), _BYTE_LEVEL)


_SPLITS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, bool]] = {
    "gpt-2": (_GPT2, None, False),
    "llama-bpe": (_words(r"\p{N}{1,3}"), None, True),
    "qwen2": (_words(r"\p{N}"), {"type": "NFC"}, False),
    "smollm": (_sequence({"type": "Digits", "individual_digits": True}, _GPT2), None, False),
    "olmo": (_GPT2, {"type": "NFC"}, False),
    "dbrx": (_words(r"\p{N}{1,3}"), None, False),
    "gpt-4o": (_sequence(_split(GPT_4O), _BYTE_LEVEL), None, False),
    "bloom": (_sequence(_split(BLOOM), _BYTE_LEVEL), None, False),
}
"""{tokenizer.ggml.pre: (pre-tokenizer, normalizer, whether a word that is a token is not split further)}, for BPE over
bytes."""
_ALIASES = {
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
                    "llama-bpe"),
    **dict.fromkeys(("deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2"), "qwen2"),
    **dict.fromkeys(("starcoder", "refact"), "smollm"),
    "mpt": "olmo",
    "phi-2": "gpt-2",
}
"""{another value of tokenizer.ggml.pre: the key of `_SPLITS` that llama.cpp treats alike}."""
_STARTS = ("llama-bpe",)
"""Values of tokenizer.ggml.pre whose texts start with the bos token if the file does not say anything else."""
_KEEPS_SPACE_OF_PHI3 = ("<unk>", "<s>", "<|endoftext|>")
"""The added tokens of Phi-3 and Phi-3.5 that keep white space behind them. The others remove it; no setting says so."""
ENDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""The names, in the settings, of the ids of tokens at which llama.cpp ends a generation."""
END_TEXTS = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "<EOT>",
    "_<EOT>", "[EOT]", "<end_of_utterance>",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>",
})  # fmt: skip
"""The texts of tokens that end a generation in llama.cpp (load in llama-vocab.cpp), whatever the settings of the file
say: they are control tokens there, too."""


def gguf_ends(settings: Mapping[str, Any]) -> list[int]:
    """Return the ids of the tokens that end a generation in llama.cpp, the one that the file calls eos first.

    Raises `FormatError` for settings that no tokenizer has.
    """
    tokens, _ = _read_tokens(settings)
    stated = [number for name in ENDS if (number := _id_of_role(settings, name, len(tokens))) >= 0]
    return list(dict.fromkeys([*stated, *(i for i, text in enumerate(tokens) if text in END_TEXTS)]))


def read_gguf_tokenizer(settings: Mapping[str, Any]) -> bytes:
    """Return the tokenizer in the settings of a GGUF file as the bytes of a tokenizer.json.

    Raises `FormatError` for settings that no tokenizer has, and `UnsupportedError` for a kind that is not supported.
    """
    model = settings.get(f"{_KEYS}model")
    if not isinstance(model, str) or model not in (*_KINDS, "bert"):
        raise UnsupportedError(f"{_KEYS}model {shown(model)} is not supported; supported are "
                               f"{', '.join((*_KINDS, 'bert'))}")
    tokens, types = _read_tokens(settings)
    if model == "bert":
        tokens = [_piece(text, kind) for text, kind in zip(tokens, types, strict=True)]
    if model == "llama":    # files write Gemma's pieces for runs of spaces with spaces, where SentencePiece has "▁"
        tokens = [text.replace(" ", "▁") if kind == USER_DEFINED else text
                  for text, kind in zip(tokens, types, strict=True)]
    # The keys of files have this spelling: "seperator".
    names = ("bos", "cls", "seperator", "unknown") if model == "bert" else ("bos", "eos")
    roles = {name: tokens[number] for name in names if (number := _id_of_role(settings, name, len(tokens))) >= 0}
    if model == "bert":
        roles |= {"cls": roles["bos"]} if "bos" in roles else {}    # llama.cpp begins a text with bos_token_id
        components = _wordpiece(settings, tokens, roles)
    else:
        components = _KINDS[model](settings, tokens, types, _template(settings, roles, model))
    added = [added_token(text, special=kind != USER_DEFINED) for text, kind in zip(tokens, types, strict=True)
             if kind in (CONTROL, USER_DEFINED, UNKNOWN)]
    if settings.get("general.architecture") == "phi3" and model == "llama":
        added = [{**token, "rstrip": token["content"] not in _KEEPS_SPACE_OF_PHI3} for token in added]
    if len(added) > MAX_ADDED:
        raise FormatError(f"{_KEYS}token_type has {len(added):,} control tokens and tokens of the user; at most "
                          f"{MAX_ADDED:,} are allowed")
    return document(components, added, roles, f"{_KEYS}tokens")


def _read_tokens(settings: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """Return (texts of the tokens by id, their types, which are those of SentencePiece); raises `FormatError`."""
    tokens, types = settings.get(f"{_KEYS}tokens"), settings.get(f"{_KEYS}token_type")
    if not isinstance(tokens, list) or not 1 <= len(tokens) <= MAX_VOCABULARY or len(set(tokens)) != len(tokens):
        raise FormatError(f"{_KEYS}tokens must be a list of different texts, {MAX_VOCABULARY:,} at most")
    if not all(0 < len(text) <= MAX_TOKEN for text in tokens):
        raise FormatError(f"{_KEYS}tokens has a token without a text, or with more than {MAX_TOKEN:,} characters")
    if types is None:
        types = np.full(len(tokens), NORMAL)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu" or types.shape != (len(tokens),):
        raise FormatError(f"{_KEYS}token_type must have an integer for each of the {len(tokens):,} tokens")
    return tokens, [CONTROL if text in END_TEXTS else kind for text, kind in zip(tokens, types.tolist(), strict=True)]


def _id_of_role(settings: Mapping[str, Any], name: str, count: int) -> int:
    """Return the id of the special token with a role (name), -1 if the model has none. count: that of all tokens."""
    number = settings.get(f"{_KEYS}{name}_token_id", -1)
    if type(number) is not int or not -1 <= number < count:
        raise FormatError(f"{_KEYS}{name}_token_id must be the number of a token, not {shown(number)}")
    return number


def _template(settings: Mapping[str, Any], roles: Mapping[str, str], model: str) -> str:
    """Return the template of a text with its special tokens: "bos A", "A eos" and so on. roles: {role: token}."""
    starts = model == "llama" or _split_of(settings) in _STARTS
    words = []
    for name, usual in (("bos", starts), ("eos", False)):
        flag = settings.get(f"{_KEYS}add_{name}_token", usual)
        if type(flag) is not bool or (flag and name not in roles):
            raise FormatError(f"{_KEYS}add_{name}_token {shown(flag)} must be true or false, and needs "
                              f"{_KEYS}{name}_token_id")
        words.append(f" {name} " if flag else " ")
    return "A".join(words).strip()


def _split_of(settings: Mapping[str, Any]) -> str:
    """Return the key of `_SPLITS` that a file asks for, another name that is no key, or "" if it names none."""
    split = settings.get(f"{_KEYS}pre")
    return _ALIASES.get(split, split) if isinstance(split, str) else ""


def _byte_level(settings: Mapping[str, Any], tokens: list[str], types: list[int], template: str) -> Components:
    """Return the components of BPE over bytes (Radford et al. 2019), as GPT-2, Llama 3, Qwen and SmolLM have it."""
    split = _split_of(settings)
    if split not in _SPLITS:
        raise UnsupportedError(f"{_KEYS}pre {shown(settings.get(f'{_KEYS}pre'))} is not supported; supported are "
                               f"{', '.join((*_SPLITS, *_ALIASES))}")
    splitter, normalizer, ignores_merges = _SPLITS[split]
    lines = settings.get(f"{_KEYS}merges")
    if not isinstance(lines, list):
        raise FormatError(f"{_KEYS}merges must be a list of texts")
    ids = {text: i for i, text in enumerate(tokens)}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignores_merges,
             "vocab": ids, "merges": checked_pairs(lines, ids, f"{_KEYS}merges")}
    decoder = {**_GPT2, "add_prefix_space": True}       # as in published files; no decoder reads its flags
    return Components(model, ids, normalizer=normalizer, pre_tokenizer=splitter, tokens={},
                      template=with_second_text(template), decoder=decoder)


def _sentencepiece(settings: Mapping[str, Any], tokens: list[str], types: list[int], template: str) -> Components:
    """Return the components of SentencePiece's BPE, as Llama 1 and 2, Gemma and Phi-3 have it."""
    scores = settings.get(f"{_KEYS}scores")
    if not isinstance(scores, np.ndarray) or scores.shape != (len(tokens),) or not np.isfinite(scores).all():
        raise FormatError(f"{_KEYS}scores must have a number for each of the {len(tokens):,} tokens")
    if UNKNOWN not in types and (unknown := _id_of_role(settings, "unknown", len(tokens))) >= 0:
        types = [UNKNOWN if i == unknown else kind for i, kind in enumerate(types)]     # new files have CONTROL there
    if types.count(UNKNOWN) != 1:
        raise FormatError(f"{_KEYS}token_type has {types.count(UNKNOWN)} unknown tokens; expected one")
    if len(set(tokens)) != len(tokens):
        raise FormatError(f"{_KEYS}tokens has two tokens for one piece of SentencePiece")
    space = _adds_space(settings)
    # Files give tokens of the user a score of -1000; in SentencePiece models they have the best score.
    best = np.where(np.array(types) == USER_DEFINED, np.float32(0), scores)
    pieces = PieceTable(tokens, best.tolist(), types)
    return sentencepiece_bpe(pieces, {}, template, add_space=space)


def _piece(text: str, kind: int) -> str:
    """Return a token for WordPiece, which marks a token inside a word by "##"; files mark the start of one by "▁"."""
    if kind in (CONTROL, UNKNOWN):
        return text
    return text[1:] if text.startswith("▁") and len(text) > 1 else f"##{text}"


def _wordpiece(settings: Mapping[str, Any], tokens: list[str], roles: Mapping[str, str]) -> Components:
    """Return the components of BERT's tokenizer, in lower case unless a file says otherwise, as in llama.cpp."""
    if missing := [name for name in ("cls", "seperator", "unknown") if name not in roles]:
        raise FormatError(f"the settings lack {_KEYS}{missing[0]}_token_id")
    ids = {text: i for i, text in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise FormatError(f"{_KEYS}tokens has two tokens for one piece of WordPiece")
    flags = {"lowercase": settings.get(f"{_KEYS}normalizer.lowercase", True)}
    flags["strip_accents"] = settings.get(f"{_KEYS}normalizer.strip_accents", flags["lowercase"])
    for name, flag in flags.items():
        if type(flag) is not bool:
            raise FormatError(f"{_KEYS}normalizer.{name} must be true or false, not {shown(flag)}")
    return wordpiece(ids, roles["unknown"], flags, tokens={},
                     template=("cls A seperator", "cls A seperator B:1 seperator:1"))


def _adds_space(settings: Mapping[str, Any]) -> bool:
    """Return whether SentencePiece puts a space in front of a text."""
    space = settings.get(f"{_KEYS}add_space_prefix", True)
    if type(space) is not bool:
        raise FormatError(f"{_KEYS}add_space_prefix must be true or false, not {shown(space)}")
    return space


def gguf_keeps_space(settings: Mapping[str, Any]) -> bool:
    """Return whether `TextConfig.keeps_space` holds: llama.cpp removes the space in front of whole texts alone."""
    return settings.get(f"{_KEYS}model") == "llama" and _adds_space(settings)


def gguf_bytes_alone(settings: Mapping[str, Any]) -> bool:
    """Return whether `TextConfig.bytes_alone` holds: llama.cpp writes the byte of a token such as <0x0A> as it is."""
    return settings.get(f"{_KEYS}model") == "llama"


_KINDS: dict[str, Callable[[Mapping[str, Any], list[str], list[int], str], Components]] = {
    "gpt2": _byte_level, "llama": _sentencepiece,
}
