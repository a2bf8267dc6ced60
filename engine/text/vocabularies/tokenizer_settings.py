"""Read the settings of a tokenizer from the JSON files beside its vocabulary, as transformers does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...base.errors import UnsupportedError, WeightsError, shown
from ...files.folder import ModelFolder

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The roles of special tokens."""
MAX_ADDED = 10_000
"""The most tokens that are added to a vocabulary, because `tokenizers` compares each with all others."""
FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""The file of the settings, and the files of tokens that older folders have beside it."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")

Token = dict[str, Any]
"""A token as the list added_tokens of tokenizer.json describes it, without its id."""

_NORMALIZES = {"do_lower_case": "lowercase", "strip_accents": "strip_accents",
               "tokenize_chinese_chars": "handle_chinese_chars"}
"""{setting of a class such as BertTokenizer: its name in the normalizer, to which the class passes it}."""
_GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that leave the normalizer of a tokenizer.json as it is."""


def with_stated_normalizer(tokenizer_json: bytes, settings: Mapping[str, Any]) -> bytes:
    """Return a tokenizer.json whose BertNormalizer has the settings of tokenizer_config.json, as in transformers.

    settings: the contents of tokenizer_config.json. If both agree, or it has no such settings, the bytes stay the same.
    """
    stated = {key: settings[name] for name, key in _NORMALIZES.items() if type(settings.get(name)) is bool}
    if not stated or settings.get("tokenizer_class") in _GENERAL or b'"BertNormalizer"' not in tokenizer_json:
        return tokenizer_json
    values = json.loads(tokenizer_json)
    normalizer = values.get("normalizer")
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer":
        return tokenizer_json
    if stated.items() <= normalizer.items():
        return tokenizer_json
    # "backslashreplace" writes half of a surrogate pair as its escape in JSON.
    changed = values | {"normalizer": normalizer | stated}
    return json.dumps(changed, ensure_ascii=False).encode(errors="backslashreplace")


class TokenizerSettings:
    """The contents of tokenizer_config.json, and of the older files beside it."""

    def __init__(self, folder: ModelFolder):
        """Read the files; raises `WeightsError` for a file that cannot be read."""
        settings, special_tokens, added_tokens = FILES
        self.source = folder.label(settings)
        self.values = folder.read_object_or_empty(settings)
        self.config = folder.read_object_or_empty("config.json")
        self.stated_ids: dict[str, int] = {}
        """{added token: the id that the files state}."""
        self.added: dict[str, Token] = {}       # the added tokens, by their texts
        if "added_tokens_decoder" in self.values:
            self.added = self._added_tokens(self.values["added_tokens_decoder"])
            return
        # Files written before transformers 4.34 have the tokens beside the settings.
        self.values |= folder.read_object_or_empty(special_tokens)
        special = {self.token(name)["content"] for name in NAMED if self.values.get(name) is not None}
        for content, number in folder.read_object_or_empty(added_tokens).items():
            self.added[content] = self._token(content, {"content": content, "special": content in special})
            self._note_id(content, number)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a flag, or its default if the file lacks it or has null."""
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise WeightsError(f"{self.source}: {name} must be true or false, not {shown(value)}")
        return value

    def token(self, name: str, default: str | None = None) -> Token:
        """Return a special token by its role (name). default: its text, if the files do not name it.

        Raises `UnsupportedError` if the files say null: then the tokenizer has no such token, and the caller needs it;
        and `WeightsError` if there is neither a name nor a default.
        """
        if self.is_null(name):
            raise UnsupportedError(f"{self.source}: {name} is null, and this tokenizer cannot do without that token")
        token = self._token(name, self.values.get(name, default))
        return self.added.get(token["content"], token)      # an added token also states its flags, such as lstrip

    def is_null(self, name: str) -> bool:
        """Return whether the files say null for a role (there is no such token), which differs from not naming it."""
        return name in self.values and self.values[name] is None

    def tokens(self, defaults: Mapping[str, Token]) -> list[Token]:
        """Return all tokens that are added to the vocabulary: first those with stated ids, sorted by these.

        defaults: the special tokens by their roles, for the roles that the files do not name.
        """
        named = [self.token(name) for name in NAMED if self.values.get(name) is not None]
        usual = {name: defaults[name] for name in defaults if name not in self.values}
        extra = self.values.get("additional_special_tokens") or self.values.get("extra_special_tokens") or []
        extra = list(extra.values()) if isinstance(extra, dict) else extra
        if not isinstance(extra, list) or len(extra) > MAX_ADDED:
            raise WeightsError(f"{self.source}: additional_special_tokens must be a list of tokens, {MAX_ADDED:,} at "
                               "most")
        ordered = sorted(self.added.values(), key=lambda token: self.stated_ids[token["content"]])
        return [*ordered, *usual.values(), *named, *(self._token("additional_special_tokens", one) for one in extra)]

    def _added_tokens(self, values: Any) -> dict[str, Token]:
        """Return {text: token} of added_tokens_decoder, {id: token}, and note the ids in `stated_ids`."""
        if not isinstance(values, dict) or len(values) > MAX_ADDED:
            raise WeightsError(f"{self.source}: added_tokens_decoder must be an object of {MAX_ADDED:,} tokens at most")
        added = {}
        for number, value in values.items():
            token = self._token("added_tokens_decoder", value, special=False)
            short = number.isdecimal() and len(number) < 10     # `_note_id` refuses the text of anything else
            self._note_id(token["content"], int(number) if short else number)
            added[token["content"]] = token
        return added

    def _note_id(self, content: str, number: Any) -> None:
        """Note the id that a file states for an added token."""
        if type(number) is not int or not 0 <= number < 2**31:
            raise WeightsError(f"{self.source}: the added token {shown(content)} has the id {shown(number)}; an id is "
                               "an integer from 0 to 2^31 - 1")
        if len(self.stated_ids) >= MAX_ADDED:
            raise WeightsError(f"{self.source} adds more than {MAX_ADDED:,} tokens")
        self.stated_ids[content] = number

    def _token(self, name: str, value: Any, special: bool = True) -> Token:
        """Return a token that a file has as a text or as an object (value). name: its setting, for messages. special:
        whether it is special if the object does not say it."""
        given = value if isinstance(value, dict) else {"content": value}
        special = given.get("special", special)
        token = added_token(given.get("content", ""), special) | {"normalized": not special}
        token |= {flag: given[flag] for flag in _FLAGS if flag in given}
        content = token["content"]
        if not isinstance(content, str) or not content or len(content) > 1000 or not all(
                type(token[flag]) is bool for flag in _FLAGS):
            raise WeightsError(f"{self.source}: {name} must be a token, not {shown(value)}")
        return token


def added_token(content: str, special: bool = True) -> Token:
    """Return an added token with this text, which is looked for before a text is normalized."""
    return {"content": content, **dict.fromkeys(_FLAGS, False), "special": special}


def plain_tokens(**contents: str) -> dict[str, Token]:
    """Return {"cls_token": token, ...} of special tokens. contents: their texts, by roles such as cls."""
    return {f"{name}_token": added_token(content) for name, content in contents.items()}


def masks_with_space(content: str) -> dict[str, Token]:
    """Return {"mask_token": token} of a mask that removes the white space in front of it."""
    return {"mask_token": added_token(content) | {"lstrip": True}}


def distinct(tokens: Iterable[Token]) -> list[Token]:
    """Return the tokens without those whose text an earlier token has."""
    by_text: dict[str, Token] = {}
    for token in tokens:
        by_text.setdefault(token["content"], token)
    return list(by_text.values())
