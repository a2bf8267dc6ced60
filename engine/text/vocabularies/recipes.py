"""`RECIPES`: how the components of a tokenizer are made from its vocabulary files, one row for each class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import shown
from ...files.folder import ModelFolder
from ...files.reading import MAX_JSON, FormatError, parse_object
from ..incremental import BYTES
from .byte_pairs import checked_pairs, sentencepiece_bpe, spaces_decoder
from .fairseq import mbart, mbart50, nllb
from .sentencepiece import BPE, CONTROL, MAX_MODEL, USER_DEFINED, PieceTable, parse_model
from .sentencepiece_tables import precompiled, replace
from .tokenizer_json import Components, with_second_text, wordpiece
from .tokenizer_settings import MAX_ADDED, Token, TokenizerSettings, added_token, masks_with_space, plain_tokens

MAX_LINES = 8_000_000
"""The most bytes of a vocab.txt or merges.txt; the largest that we know, of LaBSE, has 5 MB."""
_MAX_EXTRA = 10_000
"""The most tokens that a setting such as extra_ids adds to a vocabulary."""
_SENTENCEPIECE = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
FILES = ("vocab.txt", "vocab.json", "merges.txt", *_SENTENCEPIECE)
"""The names of vocabulary files."""

BERT = ("cls A sep", "cls A sep B:1 sep:1")
ROBERTA = ("cls A sep", "cls A sep sep B sep")
BOS_EOS = ("bos A eos", "bos A eos eos B eos")
T5 = ("A eos", "A eos B eos")
ONE_EOS = ("A eos", "A B eos")
EOS_AFTER_ONE = ("A eos", "A B:1")
PLAIN = ("A", "A B")
"""The templates of a text A and of a pair of texts A and B: roles of special tokens, and token types after colons."""

_BERT_TOKENS = plain_tokens(unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]", mask="[MASK]")
_ROBERTA_MASK, _BERT_MASK = masks_with_space("<mask>"), masks_with_space("[MASK]")
_ROBERTA_TOKENS = plain_tokens(bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>") | _ROBERTA_MASK
_MPNET_TOKENS = _ROBERTA_TOKENS | plain_tokens(unk="[UNK]")
_ALBERT_TOKENS = plain_tokens(bos="[CLS]", eos="[SEP]", unk="<unk>", sep="[SEP]", pad="<pad>", cls="[CLS]") | _BERT_MASK
_LLAMA_TOKENS = plain_tokens(bos="<s>", eos="</s>", unk="<unk>")
_DEBERTA_TOKENS = plain_tokens(bos="[CLS]", eos="[SEP]", unk="[UNK]", sep="[SEP]", pad="[PAD]", cls="[CLS]",
                               mask="[MASK]")
_BIG_BIRD_TOKENS = plain_tokens(bos="<s>", eos="</s>", unk="<unk>", sep="[SEP]", pad="<pad>", cls="[CLS]") | _BERT_MASK
_BIG_BIRD_TOKENS["unk_token"] |= {"normalized": True}       # as in transformers' class
_ESM_TOKENS = plain_tokens(unk="<unk>", pad="<pad>", cls="<cls>", mask="<mask>", eos="<eos>")
_PEGASUS_TOKENS = plain_tokens(eos="</s>", unk="<unk>", pad="<pad>", mask="<mask_2>")
_BYT5_TOKENS = {name: token | {"lstrip": True, "rstrip": True}
                for name, token in plain_tokens(pad="<pad>", eos="</s>", unk="<unk>").items()}


_BYTES_DECODER: Token = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
"""The decoder as transformers writes it; no decoder reads its flags, which are those of a pre-tokenizer."""


@dataclass(frozen=True)
class TokenizerRecipe:
    """How the components of a class of tokenizer are made."""

    needs: tuple[str, ...]
    """The names of the files that it needs, all of them or, for SentencePiece, one. A tokenizer of bytes needs none."""
    build: Callable[[ModelFolder, Sequence[str], TokenizerSettings], Components]
    """Makes the components from the folder, the names of the files that `files` returned, and the settings."""

    def files(self, present: Sequence[str]) -> list[str] | None:
        """Return the names of the files to read, or None if one is missing. present: those that a folder has."""
        present_files = [name for name in self.needs if name in present]
        if self.needs == _SENTENCEPIECE:
            return present_files[:1] or None
        return present_files if len(present_files) == len(self.needs) else None


def _wordpiece(tokens: dict[str, Token], template: tuple[str, str]) -> TokenizerRecipe:
    """Return the recipe of a WordPiece. tokens: the special tokens, if the settings name no other ones."""
    def build(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
        """Return the components, as `TokenizerRecipe.build` says."""
        ids, unknown = _read_words(folder, files[0], settings, tokens)
        flags = {"handle_chinese_chars": settings.boolean("tokenize_chinese_chars", True),
                 "strip_accents": _strip_accents(settings), "lowercase": settings.boolean("do_lower_case", True)}
        return wordpiece(ids, unknown, flags, tokens, template)

    return TokenizerRecipe(("vocab.txt",), build)


def _strip_accents(settings: TokenizerSettings) -> bool | None:
    """Return the flag strip_accents; None if the file lacks it, with which BertNormalizer uses its flag lowercase."""
    stated = settings.values.get("strip_accents") is not None
    return settings.boolean("strip_accents", False) if stated else None


def _byte_level(tokens: dict[str, Token], template: tuple[str, str]) -> TokenizerRecipe:
    """Return the recipe of a BPE over bytes. tokens: the special tokens, if the settings name no other ones."""
    def build(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
        """Return the components, as `TokenizerRecipe.build` says."""
        ids = parse_object(folder.read_bytes(files[0], MAX_JSON))
        if not all(type(number) is int and 0 <= number < 2**31 for number in ids.values()):
            raise FormatError("expected an object from tokens to their ids")
        merges = [line for line in _read_lines(folder, files[1]) if not line.startswith("#version")]
        # Only GPT-2's class can add a start token; the templates of the other classes have their special tokens.
        starts = template == PLAIN and settings.boolean("add_bos_token", False)
        return _of_bytes(ids, checked_pairs(merges, ids, files[1]), tokens,
                         with_second_text("bos A") if starts else template,
                         add_prefix_space=settings.boolean("add_prefix_space", False))

    return TokenizerRecipe(("vocab.json", "merges.txt"), build)


def _of_bytes(ids: dict[str, int], merges: list[list[str]], tokens: dict[str, Token], template: tuple[str, str], *,
              add_prefix_space: bool = False, pieces: Sequence[Token] = ()) -> Components:
    """Return the components of a BPE over bytes. merges: the pairs that it joins, in this order. pieces: tokens that
    are found in a text before it is split."""
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": ids, "merges": merges}
    splitter = _BYTES_DECODER | {"add_prefix_space": add_prefix_space}
    return Components(model, ids, normalizer=None, pre_tokenizer=splitter, tokens=tokens, template=template,
                      pieces=list(pieces), decoder=_BYTES_DECODER)


def _llama(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of the SentencePiece BPE of Llama 1 and 2."""
    pieces = parse_model(folder.read_bytes(files[0], MAX_MODEL), BPE)
    start = "bos " if settings.boolean("add_bos_token", True) and not settings.is_null("bos_token") else ""
    end = " eos" if settings.boolean("add_eos_token", False) and not settings.is_null("eos_token") else ""
    return sentencepiece_bpe(pieces, _LLAMA_TOKENS, f"{start}A{end}", legacy=settings.boolean("legacy", True),
                             add_space=settings.boolean("add_prefix_space", True))


def _esm(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of ESM's tokenizer, which finds every token of its vocabulary anywhere in a text."""
    ids, unknown = _read_words(folder, files[0], settings, _ESM_TOKENS)
    if len(ids) > MAX_ADDED:
        raise FormatError(f"the vocabulary of amino acids has {len(ids):,} tokens; at most {MAX_ADDED:,} are allowed")
    model = {"type": "WordLevel", "vocab": ids, "unk_token": unknown}
    added = [added_token(text, special=False) for text in ids]
    ends = not settings.is_null("eos_token")        # the Nucleotide Transformers have no end token
    template = ("cls A eos", "cls A eos B eos") if ends else ("cls A", "cls A B")
    return Components(model, ids, normalizer=None, pre_tokenizer={"type": "WhitespaceSplit"}, tokens=_ESM_TOKENS,
                      template=template, pieces=added, reads_pairs=ends)


def _byt5(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of ByT5's tokenizer: the bytes of UTF-8 after three special tokens, and no merges."""
    extra = _count_extra(settings, "extra_ids", 125)
    named = [settings.token(name, token["content"])["content"] for name, token in _BYT5_TOKENS.items()]
    sentinels = [f"<extra_id_{i}>" for i in range(extra)]
    ids = {token: i for i, token in enumerate([*named, *sorted(BYTES, key=BYTES.__getitem__), *sentinels])}
    if len(ids) != len(named) + 256 + extra:
        raise FormatError(f"the special tokens {', '.join(map(shown, named))} must differ from each other and from "
                          "single characters")
    return _of_bytes(ids, [], _BYT5_TOKENS, T5, pieces=[added_token(text) for text in sentinels])


def _unigram(tokens: dict[str, Token], template: tuple[str, str],
             vocabulary: Callable[[PieceTable, TokenizerSettings], tuple[list[tuple[str, float]], int]],
             normalizers: Callable[[PieceTable, TokenizerSettings], list[dict[str, Any]]], *,
             splits_spaces: bool = False) -> TokenizerRecipe:
    """Return the recipe of a Unigram model.

    vocabulary: returns (text, score) of each token in the order of ids, and the id of the unknown token. normalizers:
    returns the normalizer's steps, in transformers' order. splits_spaces: whether white space splits texts and is lost.
    """
    def build(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
        """Return the components, as `TokenizerRecipe.build` says."""
        pieces = parse_model(folder.read_bytes(files[0], MAX_MODEL))
        scores, unknown = vocabulary(pieces, settings)
        ids = {text: i for i, (text, _) in enumerate(scores)}
        if len(ids) != len(scores):
            raise FormatError("the SentencePiece model has a piece with the text of a special token")
        model = {"type": "Unigram", "unk_id": unknown, "vocab": scores, "byte_fallback": False}
        adds_space = settings.boolean("add_prefix_space", True)
        spaces = "always" if adds_space else "never"
        splitter: dict[str, Any] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": spaces, "split": True}
        if settings.boolean("split_by_punct", False):
            punctuation = {"type": "Punctuation", "behavior": "Isolated"}
            splitter = {"type": "Sequence", "pretokenizers": [punctuation, splitter]}
        if splits_spaces:
            splitter = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, splitter]}
        # Tokens that the class adds to the pieces, such as <mask>, count as control tokens.
        kinds = dict(zip(pieces.texts, pieces.types, strict=True))
        added = [added_token(text, special=kinds.get(text) != USER_DEFINED) for text in ids
                 if kinds.get(text, CONTROL) in (CONTROL, USER_DEFINED)]
        steps = {"type": "Sequence", "normalizers": normalizers(pieces, settings)}
        return Components(model, ids, normalizer=steps, pre_tokenizer=splitter, tokens=tokens, template=template,
                          pieces=added, decoder=spaces_decoder(adds_space))

    return TokenizerRecipe(_SENTENCEPIECE, build)


def _plain_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return ([(text, score) of each piece], id of the unknown piece), a vocabulary for `_unigram`, without changes."""
    return list(zip(pieces.texts, pieces.scores, strict=True)), pieces.unknown


def _xlm_roberta_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return a vocabulary for `_unigram`: four special tokens of fairseq replace three pieces; <mask> is last."""
    scores, _ = _plain_vocabulary(pieces, settings)
    return [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores[3:], ("<mask>", 0.0)], 3


def _camembert_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return a vocabulary for `_unigram`: fairseq's five special tokens replace the first piece; <mask> is last."""
    scores, _ = _plain_vocabulary(pieces, settings)
    special = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
    return [*special, *scores[1:], ("<mask>", 0.0)], 3


def _t5_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return a vocabulary for `_unigram` with T5's sentinel tokens at the end, the last one first."""
    scores, unknown = _plain_vocabulary(pieces, settings)
    extra = _count_extra(settings, "extra_ids", 100)
    return scores + [(f"<extra_id_{i}>", 0.0) for i in range(extra - 1, -1, -1)], unknown


def _pegasus_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return a vocabulary for `_unigram` with Pegasus' masks and unknown tokens (`offset`) for the first two pieces."""
    scores, unknown = _plain_vocabulary(pieces, settings)
    offset = _count_extra(settings, "offset", 103)
    if unknown < 2:
        raise FormatError("the unknown piece of the SentencePiece model is one of the two that Pegasus replaces")
    names = [settings.token(name, _PEGASUS_TOKENS[name]["content"])["content"] for name in ("pad_token", "eos_token")]
    masks = {"mask_token_sent": "<mask_1>", "mask_token": "<mask_2>"} if offset else {}
    names += [settings.token(name, usual)["content"] for name, usual in masks.items()
              if settings.values.get(name, usual) is not None]
    first = [(name, 0.0) for name in names] + [(f"<unk_{i}>", -100.0) for i in range(2, offset)]
    return [*first, *scores[2:]], unknown - 2 + len(first)


def _count_extra(settings: TokenizerSettings, name: str, default: int) -> int:
    """Return the number of tokens that a setting (name) adds to a vocabulary; raises `FormatError` for a wrong one."""
    extra = settings.values.get(name, default)
    if type(extra) is not int or not 0 <= extra <= _MAX_EXTRA:
        raise FormatError(f"{name} must be an integer from 0 to {_MAX_EXTRA:,}, not {shown(extra)}")
    return extra


def _albert_vocabulary(pieces: PieceTable, settings: TokenizerSettings) -> tuple[list[tuple[str, float]], int]:
    """Return a vocabulary for `_unigram` in which a digit and a comma are unlikely in one piece: ALBERT splits them."""
    scores = [(text, score - 100 if text[-1] == "," and text[-2:-1].isdigit() else score)
              for text, score in zip(pieces.texts, pieces.scores, strict=True)]
    return scores, pieces.unknown


def _strip(left: bool) -> dict[str, Any]:
    """Return the normalizer that removes white space at the end of a text. left: whether at its start, too."""
    return {"type": "Strip", "strip_left": left, "strip_right": True}


def _lowercase(settings: TokenizerSettings, default: bool) -> list[dict[str, Any]]:
    """Return the normalizer that lower-cases a text, in a list, or no one if the settings do not ask for it."""
    return [{"type": "Lowercase"}] if settings.boolean("do_lower_case", default) else []


def _plain_normalizers(pieces: PieceTable, settings: TokenizerSettings) -> list[dict[str, Any]]:
    """Return most classes' normalizers: SentencePiece's table, no spaces at the end, one mark for several spaces."""
    return [*precompiled(pieces), _strip(left=False), replace(" {2,}", "▁")]


def _albert_normalizers(pieces: PieceTable, settings: TokenizerSettings) -> list[dict[str, Any]]:
    """Return ALBERT's normalizers: plain quotes, no accents, lower case, SentencePiece's table, single spaces."""
    quotes = [replace("``", '"', "String"), replace("''", '"', "String")]
    accents = [] if settings.boolean("keep_accents", False) else [{"type": "NFKD"}, {"type": "StripAccents"}]
    return [*quotes, *accents, *_lowercase(settings, default=True), *precompiled(pieces), replace(" {2,}", " ")]


def _deberta_normalizers(pieces: PieceTable, settings: TokenizerSettings) -> list[dict[str, Any]]:
    """Return DeBERTa's normalizers: lower case if set, no spaces at both ends, SentencePiece's table, single spaces."""
    return [*_lowercase(settings, default=False), _strip(left=True), *precompiled(pieces), replace(" {2,}", " ")]


def _read_lines(folder: ModelFolder, name: str) -> list[str]:
    """Return the lines of a vocabulary file, without spaces at their ends, and without an empty last line."""
    try:
        lines = folder.read_bytes(name, MAX_LINES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name} is not UTF-8: {error}") from None
    return [line.rstrip(" \t\r") for line in (lines if lines[-1] else lines[:-1])]


def _read_words(folder: ModelFolder, name: str, settings: TokenizerSettings, tokens: dict[str, Token]
                ) -> tuple[dict[str, int], str]:
    """Return ({word of a vocab.txt: id}, token for unknown words); raises `FormatError` if that token is missing."""
    ids = {line: i for i, line in enumerate(_read_lines(folder, name)) if line}
    unknown = settings.token("unk_token", tokens["unk_token"]["content"])["content"]
    if unknown not in ids:
        raise FormatError(f"the vocabulary lacks the token {shown(unknown)} for unknown words")
    return ids, unknown


_BERT = _wordpiece(_BERT_TOKENS, BERT)
RECIPES: dict[str, TokenizerRecipe] = {
    "AlbertTokenizer": _unigram(_ALBERT_TOKENS, BERT, _albert_vocabulary, _albert_normalizers, splits_spaces=True),
    "BartTokenizer": _byte_level(_ROBERTA_TOKENS, ROBERTA),
    "BertTokenizer": _BERT,
    "BigBirdTokenizer": _unigram(_BIG_BIRD_TOKENS, BERT, _plain_vocabulary, _plain_normalizers),
    "BlenderbotTokenizer": _byte_level(_ROBERTA_TOKENS, EOS_AFTER_ONE),
    "ByT5Tokenizer": TokenizerRecipe((), _byt5),
    "CamembertTokenizer": _unigram(_ROBERTA_TOKENS, BOS_EOS, _camembert_vocabulary, _plain_normalizers),
    "DPRContextEncoderTokenizer": _BERT,
    "DPRQuestionEncoderTokenizer": _BERT,
    "DebertaTokenizer": _byte_level(_DEBERTA_TOKENS | _BERT_MASK, BERT),
    "DebertaV2Tokenizer": _unigram(_DEBERTA_TOKENS, BERT, _plain_vocabulary, _deberta_normalizers),
    "DistilBertTokenizer": _BERT,
    "ElectraTokenizer": _BERT,
    "EsmTokenizer": TokenizerRecipe(("vocab.txt",), _esm),
    "GPT2Tokenizer": _byte_level(plain_tokens(bos="<|endoftext|>", eos="<|endoftext|>", unk="<|endoftext|>"), PLAIN),
    "LlamaTokenizer": TokenizerRecipe(_SENTENCEPIECE, _llama),
    "MBart50Tokenizer": TokenizerRecipe(_SENTENCEPIECE, mbart50),
    "MBartTokenizer": TokenizerRecipe(_SENTENCEPIECE, mbart),
    "MPNetTokenizer": _wordpiece(_MPNET_TOKENS, ROBERTA),
    "NllbTokenizer": TokenizerRecipe(_SENTENCEPIECE, nllb),
    "PegasusTokenizer": _unigram(_PEGASUS_TOKENS, ONE_EOS, _pegasus_vocabulary, _plain_normalizers, splits_spaces=True),
    "RobertaTokenizer": _byte_level(_ROBERTA_TOKENS, ROBERTA),
    "T5Tokenizer": _unigram(plain_tokens(eos="</s>", unk="<unk>", pad="<pad>"), T5, _t5_vocabulary, _plain_normalizers),
    "XLMRobertaTokenizer": _unigram(_ROBERTA_TOKENS, BOS_EOS, _xlm_roberta_vocabulary, _plain_normalizers),
}
"""The recipe of each class of tokenizer of transformers, by its name without "Fast" at the end."""
