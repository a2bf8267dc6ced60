"""`Components`: the parts of a tokenizer.json, and `document`, which assembles them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import UnsupportedError, shown
from ...files.reading import FormatError
from ..safety import check_added, check_size
from .tokenizer_settings import Token, distinct


@dataclass(frozen=True)
class Components:
    """The components of a tokenizer.json, as `tokenizers` names them: model, normalizer, pre-tokenizer, templates."""

    model: dict[str, Any]
    ids: dict[str, int]
    """The id of each token of the vocabulary."""
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] | None
    tokens: dict[str, Token]
    """The special tokens by their roles, such as "cls_token", if the settings name no other ones."""
    template: tuple[str, str]
    """The templates of a text and of a pair of texts, as `_template` reads them; "A" adds nothing."""
    pieces: list[Token] = field(default_factory=list)
    """The tokens of the vocabulary that are found in a text before it is split."""
    decoder: dict[str, Any] | None = None
    """The step that turns tokens into a text again."""
    reads_pairs: bool = True
    """Whether the tokenizer reads two texts as one sequence; if not, the template of a pair is not used."""


def with_second_text(single: str) -> tuple[str, str]:
    """Return the templates of a text and of a pair: "bos A" and "bos A bos:1 B:1", whose second text has the type 1."""
    return single, " ".join([single, *(f"{word}:1" for word in single.replace("A", "B").split())])


def wordpiece(ids: dict[str, int], unknown: str, flags: Mapping[str, Any], tokens: dict[str, Token],
              template: tuple[str, str]) -> Components:
    """Return the components of BERT's tokenizer. unknown: its token for unknown words. flags: for its normalizer."""
    model = {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100, "vocab": ids}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, **flags}
    return Components(model, ids, normalizer=normalizer, pre_tokenizer={"type": "BertPreTokenizer"}, tokens=tokens,
                      template=template, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})


def document(components: Components, tokens: Iterable[Token], roles: Mapping[str, str], source: str, *,
             stated_ids: Mapping[str, int] | None = None, left: bool = False) -> bytes:
    """Return the bytes of a tokenizer.json; added tokens that the vocabulary lacks get the next ids.

    tokens: the added tokens, before `components.pieces`. roles: {role: text} of the special tokens that the templates
    name. source: the file of the vocabulary, for messages. stated_ids: {token: id} that the settings state. left:
    whether truncation removes the start of a text. Raises `UnsupportedError` if a token has another id than the
    settings state, and `FormatError` for too large a document.
    """
    ids, added, stated_ids = dict(components.ids), [], stated_ids or {}
    following = max(ids.values(), default=-1) + 1
    for token in distinct([*tokens, *components.pieces]):
        content = token["content"]
        if content not in ids:
            ids[content], following = following, following + 1
        if stated_ids.get(content, ids[content]) != ids[content]:
            raise UnsupportedError(f"the token {shown(content)} has the id {stated_ids[content]} in the settings, "
                                   f"and {ids[content]} with {source}")
        added.append({"id": ids[content], **token})
    values = {
        "version": "1.0",
        "truncation": _LEFT if left else None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": components.normalizer,
        "pre_tokenizer": components.pre_tokenizer,
        "post_processor": _template(*components.template, roles, ids),
        "decoder": components.decoder,
        "model": components.model,
    }
    check_added(token["content"] for token in added)
    try:
        data = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise FormatError("a token is half of a surrogate pair, which is not valid Unicode") from None
    check_size(data)
    return data


_LEFT = {"direction": "Left", "max_length": 512, "strategy": "LongestFirst", "stride": 0}
"""A truncation of which `Tokenizer` reads only the direction; its limits come from the model's settings."""


def _template(single: str, pair: str, roles: Mapping[str, str], ids: Mapping[str, int]) -> dict[str, Any]:
    """Return the step that adds special tokens, from the templates of a text (single) and of a pair of texts.

    "cls A sep B:1" has roles of special tokens, the texts A and B, and the token type 1 for B; others have the type 0.
    """
    used = {roles[word.partition(":")[0]] for word in f"{single} {pair}".split() if word[0] not in "AB"}
    return {
        "type": "TemplateProcessing",
        "single": [_piece(word, roles) for word in single.split()],
        "pair": [_piece(word, roles) for word in pair.split()],
        "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in sorted(used)},
    }


def _piece(word: str, roles: Mapping[str, str]) -> dict[str, Token]:
    """Return the JSON object for a word of a template, such as "sep:1"; the token type is 0 if the word has none."""
    name, _, kind = word.partition(":")
    place = {"type_id": int(kind or 0)}
    return {"Sequence": {"id": name, **place}} if name in "AB" else {"SpecialToken": {"id": roles[name], **place}}
