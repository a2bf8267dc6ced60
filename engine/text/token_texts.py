"""`TokenTexts`: the texts of token ids, and the ids of tokens; `Tokenizer`, which inherits it, adds texts to ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..base.arguments import flag
from ..base.errors import InputError
from ..base.lazy import lazy
from ..model.generation_config import ids_array
from ..model.text_config import TextConfig
from .incremental import IncrementalText
from .special_tokens import special_ids
from .tokenizers_package import NO_LIMIT, failures, load_tokenizer, make_decoder


class TokenTexts:
    """The tokens of a model, by their ids and by their texts. Several threads may call it at once."""

    def __init__(self, text: TextConfig):
        """Load the tokenizer with the package `tokenizers`."""
        self._text = text
        self._tokenizer = load_tokenizer(text)

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens, given by their own texts."""
        if self._text.bytes_alone:
            return self._with_bytes_alone(tokens)
        decoder = self._tokenizer.decoder
        with failures("turns tokens into text"):
            return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

    def token(self, number: int) -> str:
        """Return the token of an id as the vocabulary has it; "" for an id that it lacks."""
        return str(self._tokenizer.id_to_token(number) or "")

    def token_id(self, token: str) -> int | None:
        """Return the id of a token by its text; None if the vocabulary lacks it."""
        number = self._tokenizer.token_to_id(token)
        return None if number is None else int(number)

    @property
    def continuing_prefix(self) -> str | None:
        """The prefix of a token that continues a word, such as "##"; None if tokens have none."""
        return getattr(self._tokenizer.model, "continuing_subword_prefix", None) or None

    def _replace_unknown(self, ids: np.ndarray) -> np.ndarray:
        """Return ids [T] in which `unknown_id` replaces each id that the model does not know."""
        known, unknown = self._text.known_ids, self._text.unknown_id
        return np.where(ids < known, ids, np.int32(unknown)) if known else ids

    @lazy
    def added_tokens(self) -> dict[str, bool]:
        """{added token: whether it is special}. A tokenizer looks for added tokens before it splits a text."""
        return {token.content: token.special for token in self._tokenizer.get_added_tokens_decoder().values()}

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids, without special tokens unless the caller wants them; raises `InputError`."""
        known = ids_array("ids", ids)
        if known.size and known.max() > NO_LIMIT:
            raise InputError(f"ids must be token ids, and no vocabulary reaches {known.max()}")
        skip = flag("skip_special_tokens", skip_special_tokens)
        if self._text.bytes_alone:
            tokens = map(self._token_with_text if skip else self._tokenizer.id_to_token, known.tolist())
            return self._with_bytes_alone(token for token in tokens if token is not None)
        with failures("turns ids into text"):
            return str(self._tokenizer.decode(known.tolist(), skip_special_tokens=skip))

    def _with_bytes_alone(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens if `TextConfig.bytes_alone` is True, which `tokenizers` cannot decode."""
        numbered = dict(enumerate(tokens))
        text = self._new_incremental(numbered.__getitem__, lambda token: "")
        return "".join([*map(text.add, numbered), text.end()])

    def continuation(self, ids: Sequence[int]) -> str:
        """Return the text of new tokens, which begins with a space if their first token does.

        `decode` is for whole texts: it removes the space that SentencePiece puts in front of a whole text.
        """
        first = next((token for token in map(self._token_with_text, ids) if token is not None), "")
        return self._space_before(first) + self.decode(ids)

    def _space_before(self, token: str) -> str:
        """Return the space before a text of new tokens, or "". token: the first of them."""
        return " " if self._text.keeps_space and token.startswith(("▁", "<0x20>")) else ""

    def incremental(self) -> IncrementalText:
        """Return a decoder that gets ids one by one; its texts, joined, are what `continuation` returns for all ids."""
        return self._new_incremental(self._token_with_text, self._space_before)

    def _new_incremental(self, token_of: Callable[[int], str | None], space_before: Callable[[str], str]
                         ) -> IncrementalText:
        """Return a new decoder that gets the ids of a text one by one.

        token_of: returns the token of an id; None for an id that has no text. space_before: returns the space (or "")
        in front of the text, by its first token.
        """
        decoder = self._tokenizer.decoder
        settings = None if decoder is None else json.loads(decoder.__getstate__())
        return IncrementalText(settings, token_of, make_decoder, space_before, bytes_alone=self._text.bytes_alone)

    def token_text(self, number: int) -> tuple[str, bytes]:
        """Return (text, bytes) that a token adds to the middle of a text; for a special token, its name.

        The text has U+FFFD for bytes that are no character.
        """
        known = self._texts.get(number)
        if known is None:
            token = self.token(number)
            data = token.encode() if token in self._special else self._no_text.bytes_in_the_middle(number)
            known = self._texts[number] = data.decode("utf-8", "replace"), data
        return known

    def token_bytes(self, number: int) -> bytes:
        """Return the bytes of `token_text`."""
        return self.token_text(number)[1]

    @lazy
    def _texts(self) -> dict[int, tuple[str, bytes]]:
        """The results of `token_text` so far, by id."""
        return {}

    @lazy
    def _no_text(self) -> IncrementalText:
        """A text without ids, to which nothing is added."""
        return self.incremental()

    def _token_with_text(self, number: int) -> str | None:
        """Return the token of an id; None for a special token, and for an id that the vocabulary lacks."""
        token = self._tokenizer.id_to_token(number)
        return None if token is None or token in self._special else str(token)

    @lazy
    def _special(self) -> set[str]:
        """The special tokens, which `decode` leaves out."""
        return {content for content, special in self.added_tokens.items() if special}

    @property
    def special_tokens(self) -> dict[str, int]:
        """The ids of the special and other added tokens by their texts, such as {"</s>": 2}."""
        return special_ids(self._text)
