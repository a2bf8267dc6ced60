"""Truncate pairs of long texts in memory that grows linearly with their length; `Tokenizer` calls this.

`tokenizers` keeps all that it cuts off a pair, each piece of one text with each piece of the other: two texts of
100,000 tokens take gigabytes. Here each text is truncated alone, and the special tokens are put around the kept tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SAMPLES = ("a", "the", "0", ".", "\u3042")
"""Texts with which `find_frame` finds special tokens; every vocabulary has a token for at least one of them."""


@dataclass(frozen=True)
class PairEncoding:
    """The token ids and the token types of a pair, under the names that `tokenizers` gives to them."""

    ids: list[int]
    type_ids: list[int]
    overflowing: bool = False
    """Whether tokens were cut off."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Frame:
    """The special tokens of a pair, in order, and the places of its two texts between them."""

    places: tuple[tuple[int | None, int, int | None], ...]
    """(None, token type, id) for each special token; (0 or 1, token type, None) for each text."""

    @property
    def special(self) -> int:
        """Return the number of special tokens."""
        return sum(text is None for text, _, _ in self.places)

    def join(self, encodings: tuple[Any, Any], limit: int, from_right: bool, only_first: bool = False) -> PairEncoding:
        """Return the encoding of a pair, truncated to `limit` tokens, from the encodings of its texts.

        encodings: each text alone, without special tokens. from_right: whether truncation keeps the end of a text.
        only_first: whether the first text alone loses tokens; the second one must leave room for it.
        """
        first, second = encodings
        tokens = count_tokens(first), count_tokens(second)
        room = limit - self.special
        kept = (min(tokens[0], room - tokens[1]), tokens[1]) if only_first else kept_tokens(*tokens, room)
        ids: list[int] = []
        types: list[int] = []
        for text, kind, token in self.places:
            if token is not None:
                part = [token]
            else:
                assert text is not None
                text_ids = encodings[text].ids
                part = text_ids[len(text_ids) - kept[text] :] if from_right else text_ids[: kept[text]]
            ids += part
            types += [kind] * len(part)
        return PairEncoding(ids, types, overflowing=sum(kept) < sum(tokens))


def find_frame(tokenizer: Any) -> Frame | None:
    """Return the frame of a tokenizer that does not truncate; None if no sample has tokens in both texts of a pair."""
    for sample in SAMPLES:
        encoding = tokenizer.encode(sample, sample)
        places: list[tuple[int | None, int, int | None]] = []
        for text, kind, token in zip(encoding.sequence_ids, encoding.type_ids, encoding.ids, strict=True):
            if text is None:
                places.append((None, kind, token))
            elif (text, kind, None) not in places:
                places.append((text, kind, None))
        if sorted(text for text, _, _ in places if text is not None) == [0, 1]:
            return Frame(tuple(places))
    return None


def count_tokens(encoding: Any) -> int:
    """Return the number of tokens of a text, including the tokens that truncation cut off."""
    return len(encoding.ids) + sum(len(piece.ids) for piece in encoding.overflowing)


def kept_tokens(first: int, second: int, most: int) -> tuple[int, int]:
    """Return how many tokens of each text are kept, at most `most` together; the longer text loses tokens first."""
    if first + second <= most:
        return first, second
    shorter = min(first, second, most // 2)     # a text of up to half of the tokens keeps all of its own
    longer = most - shorter
    return (longer, shorter) if first > second else (shorter, longer)
