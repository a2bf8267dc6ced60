"""Make the tokenizers of fairseq's translation models: mBART, its version of 50 languages, NLLB and M2M100.

Their SentencePiece models lack the special tokens that fairseq puts in front of the pieces, and the tokens of the
languages, which follow the pieces. A language token stands before or after each text. It is that of the settings, and
`engine.methods.translate` replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import UnsupportedError, shown
from ...files.folder import ModelFolder
from ...files.reading import FormatError
from ...model.text_config import TextConfig
from .language_codes import M2M100, MBART, MBART50, NLLB, WMT21
from .sentencepiece import BPE, MAX_MODEL, UNIGRAM, PieceTable, parse_model
from .sentencepiece_tables import check_mapped, mapped_components, mapped_text, read_ids
from .tokenizer_json import Components, document
from .tokenizer_settings import TokenizerSettings, added_token, masks_with_space, plain_tokens

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
"""fairseq's special tokens, which take the places of the first three pieces."""
_TOKENS = plain_tokens(bos="<s>", eos="</s>", unk="<unk>", sep="</s>", pad="<pad>", cls="<s>")
_MASK = masks_with_space("<mask>")
_BEFORE = ("lang A eos", "lang A B eos")        # the templates of a text, and of a pair of texts
_AFTER = ("A eos lang", "A B eos lang")
FILES = ("vocab.json", "sentencepiece.bpe.model")
"""The vocabulary of M2M100."""
_M2M_CODES = {"m2m100": M2M100, "wmt21": WMT21}


def mbart(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of mBART's tokenizer."""
    return _components(folder, files[0], settings, MBART, usual="en_XX", template=_AFTER)


def mbart50(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of the tokenizer of mBART with 50 languages."""
    return _components(folder, files[0], settings, MBART50, usual="en_XX", template=_BEFORE)


def nllb(folder: ModelFolder, files: Sequence[str], settings: TokenizerSettings) -> Components:
    """Return the components of NLLB's tokenizer."""
    template = _AFTER if settings.boolean("legacy_behaviour", False) else _BEFORE
    return _components(folder, files[0], settings, NLLB, usual="eng_Latn", template=template)


def read_m2m(folder: ModelFolder) -> TextConfig | None:
    """Return the tokenizer of M2M100 in a folder with vocab.json and sentencepiece.bpe.model, or None without them.

    The ids are those of transformers' M2M100Tokenizer. Raises `WeightsError` for damaged files, and `UnsupportedError`
    for a kind of SentencePiece model that M2M100 does not use.
    """
    if not all(folder.has(name) for name in FILES):
        return None
    settings = TokenizerSettings(folder)
    name = settings.values.get("language_codes", "m2m100")
    if not isinstance(name, str) or name not in _M2M_CODES:
        raise UnsupportedError(f"{settings.source}: language_codes {shown(name)} is not supported; supported are "
                               f"{', '.join(_M2M_CODES)}")
    with folder.naming(FILES[1]):
        pieces = _read_pieces(folder, FILES[1])
    with folder.naming(FILES[0]):
        ids = read_ids(folder, FILES[0])
        special = [settings.token(role, token["content"])["content"] for role, token in _TOKENS.items()]
        if missing := [token for token in special if token not in ids]:
            raise FormatError(f"it lacks the token {shown(missing[0])}")
        languages = {f"__{code}__": len(ids) + i for i, code in enumerate(_M2M_CODES[name])}
        if both := [token for token in languages if token in ids]:
            raise FormatError(f"it has the token {shown(both[0])} of a language, which must come after its tokens")
        ids |= languages
        unknown = settings.token("unk_token", "<unk>")["content"]
        tokens = _TOKENS | _language(settings, {token.strip("_"): token for token in languages}, "en")
        added = [added_token(token) for token in dict.fromkeys([*special, *languages])]
        components = mapped_components(pieces, ids, unknown, added, tokens, _BEFORE)
        # The template needs the texts of these special tokens.
        roles = {"eos": settings.token("eos_token", "</s>")["content"], "lang": tokens["lang_token"]["content"]}
        made = document(components, added, roles, FILES[0])
    return mapped_text(made, components, ids, unknown)


def _components(folder: ModelFolder, name: str, settings: TokenizerSettings, languages: Sequence[str], usual: str,
                template: tuple[str, str]) -> Components:
    """Return components with fairseq's ids, in this order: special tokens, pieces, languages, <mask>.

    name: the file of the SentencePiece model. languages: their tokens. usual: the default language.
    """
    pieces = _read_pieces(folder, name)
    tokens = [*_FIRST, *pieces.texts[3:], *languages, "<mask>"]     # in the order of their ids
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise FormatError("the SentencePiece model has a piece with the text of a special token or of a language")
    language = _language(settings, {code: code for code in languages}, usual)
    added = [added_token(token) for token in (*_FIRST, *languages)]
    components = mapped_components(pieces, ids, "<unk>", [*added, _MASK["mask_token"]], _TOKENS | language | _MASK,
                                   template)
    components.pieces.extend(added)     # the settings of a folder may lack these tokens
    return components


def _read_pieces(folder: ModelFolder, name: str) -> PieceTable:
    """Return the pieces of a SentencePiece model, Unigram or BPE, after checking that they are supported."""
    pieces = parse_model(folder.read_bytes(name, MAX_MODEL), UNIGRAM, BPE)
    check_mapped(pieces, folder.label(name))
    return pieces


def _language(settings: TokenizerSettings, tokens: dict[str, str], usual: str) -> dict[str, dict[str, object]]:
    """Return {"lang_token": token} of the source language in the settings. tokens: {code of a language: its token}."""
    code = settings.values.get("src_lang")
    code = usual if code is None else code
    if not isinstance(code, str) or code not in tokens:
        raise FormatError(f"tokenizer_config.json names the source language {shown(code)}; the model has "
                          f"{', '.join(tokens)}")
    return plain_tokens(lang=tokens[code])
