"""`Tokenizer`: a model's own tokenizer, which turns texts, pairs of texts and windows of long texts into token ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.advice.attributes import TOKENIZER
from ..base.arguments import flag
from ..base.errors import InputError, WeightsError, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop, beside
from ..model.text_config import TextConfig
from .cuts import report_of_cuts
from .excerpts import CUT_MARGIN, MAX_CHARACTERS, START_CHARACTERS, Encode, Excerpts
from .sentences import Sentence, characters_of, check_sentences
from .special_tokens import finish, resized
from .token_texts import TokenTexts
from .tokenizers_package import NO_LIMIT, failures, int32_ids, load_tokenizer
from .tokens import Places, SecondTexts, Tokens, is_counting, note_tokens
from .truncate import Frame, PairEncoding, count_tokens, find_frame
from .windows import Windows

NO_TOKENIZER = "this model came without a tokenizer that the engine can read"

CHARACTERS_AT_A_TIME = 2**14
"""How many characters each thread tokenizes between two looks at a `Stop`; they take 0.05 s at most."""
_READS = failures("reads a text")


class Tokenizer(TokenTexts):
    """A model's tokenizer, which does not pad. Several threads may call it at once."""

    def __init__(self, text: TextConfig, max_tokens: int | None, threads: int, *, truncates: bool = True):
        """Load the tokenizer; it truncates sentences to the smaller of `text.max_seq_length` and `max_tokens`.

        A limit that is None is ignored, and so is the limit in the tokenizer.json. With threads=1 the caller's thread
        does all the work; otherwise `tokenizers` chooses the number of threads. truncates: False to give all tokens of
        a text despite the limits, as for the prompt of a decoder.
        """
        from .safety import check_tokenizer  # here, because `import engine` shall stay light

        # The characters of the longest added token or pattern, and whether a pattern may take minutes by backtracking.
        longest, self._backtracks = check_tokenizer(text.tokenizer_json)
        super().__init__(text)
        self._threads = threads
        self._spare: list[Any] = []     # tokenizers for `windows`, which sets their truncation, that no call uses now
        limits = [min(limit, NO_LIMIT) for limit in (text.max_seq_length, max_tokens) if limit is not None]
        # A text with fewer tokens than this is filled with `fill_id`, if the model has one.
        self._fill_length = min(limits, default=NO_LIMIT)
        self._truncates = truncates
        if not truncates:
            limits = []
        self._limit = min(limits, default=NO_LIMIT)
        self._check_room(is_pair=False)
        special = _count_special(self._tokenizer, is_pair=True)
        direction = text.truncation_side or (self._tokenizer.truncation or {}).get("direction", "right")
        self._from_right = direction == "left"
        self._excerpts = Excerpts(self._limit, self._from_right, even=(self._limit - special) % 2 == 0,
                                  margin=CUT_MARGIN + longest)
        self._tokenizer.no_padding()
        if limits:
            self._tokenizer.enable_truncation(self._limit, direction=direction)
        else:
            self._tokenizer.no_truncation()

    def __call__(self, sentences: Sequence[Sentence], stop: Stop = NEVER) -> Tokens:
        """Tokenize a list of sentences that `check_sentences` has returned.

        stop: when to stop; it is looked at between batches of `CHARACTERS_AT_A_TIME`. Raises `InputError` for a single
        text in place of a list.
        """
        if not isinstance(sentences, (list, tuple)) or not (
                _are_texts(sentences) or all(map(_is_sentence, sentences))):
            raise InputError(f"a tokenizer is called with a list of texts, not {shown(sentences, 60)}; encode(text) "
                             "takes one text")
        encodings: list[Any] = []
        for part in _batches(sentences, CHARACTERS_AT_A_TIME * self._threads):
            stop.check()
            kept = self._cut_all(part, stop)
            encoded = self._encode(kept, stop)
            self._report(part, kept, encoded)
            encodings += encoded
        stop.check()
        return self._count_tokens(encodings)

    def read_together(self, texts: Sequence[Sentence]) -> tuple[Tokens, list[bool]]:
        """Tokenize short texts of several calls at one time; return (the tokens, whether each text was cut).

        It reports no cuts, because the texts belong to several calls. It raises the error of any text that is wrong.
        """
        kept = self._cut_all(texts, NEVER)
        encodings = self._encode(kept, NEVER)
        return self._tokens_of(encodings), self._were_cut(texts, kept, encodings)

    @property
    def is_quick(self) -> bool:
        """Whether a short text certainly takes a short time, and this thread counts no tokens: then another thread may
        tokenize it for this one."""
        return not self._backtracks and not is_counting()

    def pairs(self, pairs: Sequence[tuple[str, str]], stop: Stop = NEVER) -> Tokens:
        """Tokenize pairs of texts, such as a query with each of its documents; equal first texts are tokenized once.

        The ids and the errors are those of `__call__`.
        """
        firsts = list(dict.fromkeys(first for first, _ in pairs))
        longest = max((len(text) for pair in pairs for text in pair), default=0)
        # Without many equal first texts there is nothing to save, and long texts have to be cut before they are read.
        if 2 * len(firsts) > len(pairs) or longest > START_CHARACTERS * self._limit or self._frame is None:
            return self(pairs, stop)
        self._check_room(is_pair=True)
        known = dict(zip(firsts, self._encode_inner(firsts, stop), strict=True))
        seconds = self._encode_inner([second for _, second in pairs], stop)
        joined = [self._frame.join((known[first], second), self._limit, self._from_right)
                  for (first, _), second in zip(pairs, seconds, strict=True)]
        self._report(pairs, pairs, joined)
        return self._count_tokens(joined)

    def second_texts(self, texts: Sequence[str], stop: Stop = NEVER) -> SecondTexts:
        """Tokenize the second texts of pairs; `with_each` puts first texts before them.

        Raises `InputError` if the tokenizer reads no pairs, or a text leaves no room for a token of the first one.
        """
        self._check_room(is_pair=True)
        if self._frame is None:
            raise InputError("the tokenizer of this model does not show where the texts of a pair stand")
        encodings = self._encode_inner([str(self._cut(text, stop)) for text in texts], stop)
        room = self._limit - self._frame.special
        for text, encoding in zip(texts, encodings, strict=True):
            if len(encoding) >= room:
                raise InputError(f"{shown(text)} has at least {len(encoding):,} tokens, and the model reads "
                                 f"{room:,} of two texts together, so that no room is left beside it; shorten it")
        return SecondTexts(texts, encodings)

    def with_each(self, firsts: Sequence[str], seconds: SecondTexts, stop: Stop = NEVER) -> Tokens:
        """Tokenize the pairs of each first text with each second text: all pairs of one first text, then of the next.

        Each text is tokenized once. Only first texts are truncated, so that a second text is always whole.
        """
        frame, longest = self._frame, seconds.longest
        assert frame is not None        # `second_texts` has checked it
        kept = [str(self._cut(text, stop)) for text in firsts]
        joined = [[frame.join((first, second), self._limit, self._from_right, only_first=True)
                   for second in seconds.encodings] for first in self._encode_inner(kept, stop)]
        beside = seconds.texts[longest]     # a first text that is cut beside any second text is cut beside the longest
        self._report([(text, beside) for text in firsts], [(text, beside) for text in kept],
                     [of_text[longest] for of_text in joined])
        return self._count_tokens([pair for of_text in joined for pair in of_text], each=len(seconds.texts))

    def _count_tokens(self, encodings: Sequence[Any], each: int = 1) -> Tokens:
        """Return the tokens of encodings as the model reads them, and note their numbers if this thread counts tokens.

        each: how many encodings in a row belong to one input of the caller, which is counted as one.
        """
        tokens = self._tokens_of(encodings)
        if is_counting():
            lengths = tokens.lengths
            note_tokens(sum(lengths[first : first + each]) for first in range(0, len(lengths), each))
        return tokens

    def _tokens_of(self, encodings: Sequence[Any]) -> Tokens:
        """Return the tokens of encodings as the model reads them; token types are zeros for a model without them."""
        ids = [finish(self._text, self._replace_unknown(int32_ids(e.ids)), self._fill_length) for e in encodings]
        if not self._text.feeds_token_types:
            return Tokens(ids, [np.zeros(len(row), np.int32) for row in ids])
        return Tokens(ids, [resized(int32_ids(e.type_ids), len(row), 0) for e, row in zip(encodings, ids, strict=True)])

    def _encode_inner(self, texts: Sequence[str], stop: Stop) -> list[Any]:
        """Return the encodings of texts without special tokens, by `tokenizers`."""
        encodings: list[Any] = []
        for part in _batches(texts, CHARACTERS_AT_A_TIME * self._threads):
            stop.check()
            encodings += self._encodings(part, stop, fast=True, batch=True, add_special_tokens=False)
        return encodings

    def places(self, texts: Sequence[str | Sequence[str]], *, split: bool = False, stop: Stop = NEVER) -> list[Places]:
        """Tokenize texts, and return the place of each token in its text. split: whether a text is a list of words.

        Texts are truncated to the limit of the model. stop: when to stop; it is looked at between batches.
        """
        kept: list[Any] = []        # the part of each text that was tokenized
        encodings: list[Any] = []
        for part in _batches(texts, CHARACTERS_AT_A_TIME * self._threads):
            stop.check()
            cut: list[Any] = [list(text) if split else self._cut(str(text), stop) for text in part]
            encoded = self._encodings(cut, stop, is_pretokenized=split)
            joined = [" ".join(text) for text in part] if split else part
            self._report(joined, joined if split else cut, encoded)
            encodings += encoded
            kept += cut
        # The number of characters that were cut off at the start of each text, if truncation keeps the end.
        shifts = [len(text) - len(part) if self._from_right and not split else 0
                  for text, part in zip(texts, kept, strict=True)]
        return [self._places(encoding, shift) for encoding, shift in zip(encodings, shifts, strict=True)]

    @property
    def limit(self) -> int:
        """The most tokens of a sentence, with special tokens."""
        return self._limit

    @property
    def truncation_side(self) -> str:
        """The end of a long text from which tokens are removed, "left" or "right"."""
        return "left" if self._from_right else "right"

    def windows(self, texts: Sequence[Sentence | Sequence[str]], stride: int, limit: int | None = None, *,
                split: bool = False, stop: Stop = NEVER) -> list[list[Places]]:
        """Cut each text, or the second text of each pair, into windows that overlap by `stride` tokens.

        limit: the most tokens of a window, special tokens included; None for the limit of the model. split: whether a
        text is a list of words. stop: when to stop; it is looked at between texts. Raises `InputError` if the special
        tokens, the first text of a pair and the stride leave no room, and for windows that move by so little that they
        would fill the memory.
        """
        try:
            tokenizer = self._spare.pop()       # atomic; a thread that finds none loads another one
        except IndexError:
            tokenizer = load_tokenizer(self._text)
            tokenizer.no_padding()
        try:
            return self._windows(tokenizer, texts, stride, min(limit or self._limit, self._limit), split, stop)
        finally:
            self._spare.append(tokenizer)       # also after an error, so that the next call need not load another

    def _windows(self, tokenizer: Any, texts: Sequence[Sentence | Sequence[str]], stride: int, limit: int, split: bool,
                 stop: Stop) -> list[list[Places]]:
        """Return what `windows` returns. tokenizer: one that only this call uses, because it sets the truncation."""
        windows = []
        for text in texts:
            stop.check()
            is_pair = not isinstance(text, str) and not split
            if is_pair:
                self._check_pairs()
            special = _count_special(tokenizer, is_pair)
            first_tokens = count_tokens(self._encode_inner([text[0]], stop)[0]) if is_pair else 0
            room = limit - special - first_tokens
            if stride >= room:
                size = self._count_up_to(text[1] if is_pair else text, stop, max(room, 0))
                if size > room or room < 0:
                    beside = f" and {first_tokens} of the first text" if is_pair else ""
                    raise InputError(f"a window of {limit} tokens has {special} special tokens{beside}, which leaves "
                                     f"{max(0, room)} for a text of {size} tokens with a stride of {stride}; a stride "
                                     "must be less than what is left")
                overlap = 0         # one window holds the whole text, so that the stride does not matter
            else:
                overlap = stride
                counted = text[1] if is_pair else text
                Windows(limit, special + first_tokens, stride).check_overlap(
                    partial(self._count_up_to, counted, stop))
            with _READS:
                tokenizer.enable_truncation(limit, stride=overlap, direction="right",
                                            strategy="only_second" if is_pair else "longest_first")
            # A long text is passed as a batch, because `tokenizers` releases the GIL only in a batch.
            [encoding] = self._encodings([tuple(text) if is_pair else text], stop, tokenizer, is_pretokenized=split,
                                         batch=characters_of(text) > CHARACTERS_AT_A_TIME)
            windows.append([self._places(one) for one in (encoding, *encoding.overflowing)])
        return windows

    def window_tokens(self, text: str, stride: int, most: int, stop: Stop = NEVER) -> int:
        """Return how many tokens all windows of a text have together, before they are made: the exact number up to
        `most`, and any number above `most` for more.

        stride: the number of tokens by which windows overlap. For a very long text the result may be wrong by some
        tokens (`_count_up_to`).
        """
        windows = Windows(self._limit, _count_special(self._tokenizer, is_pair=False), stride)
        if windows.step < 1:        # only one window is possible; `windows` raises an error if it cannot hold the text
            return self._limit
        return windows.tokens(self._count_up_to(text, stop, windows.least_text(most)))

    def _count_up_to(self, text: str | Sequence[str], stop: Stop, most: int) -> int:
        """Return the number of tokens of a text without special tokens; it may stop counting above `most`.

        A text of more than `MAX_CHARACTERS` is counted in parts, each of which may change the number by a token.
        """
        if not isinstance(text, str):
            words = list(text)
            if characters_of(words) <= MAX_CHARACTERS:
                return count_tokens(self._encodings([words], stop, is_pretokenized=True, add_special_tokens=False)[0])
            text = " ".join(words)
        size = CHARACTERS_AT_A_TIME if len(text) > MAX_CHARACTERS else max(1, len(text))
        tokens = 0
        for first in range(0, len(text), size):
            stop.check()
            [part] = self._encodings([text[first : first + size]], stop, add_special_tokens=False, batch=True)
            tokens += count_tokens(part)
            if tokens > most:
                break
        return tokens

    def _places(self, encoding: Any, shift: int = 0) -> Places:
        """Return the `Places` of an encoding. shift: the number of characters before the part that was encoded."""
        # Do not use encoding.tokens: there, a special token in the text has the spaces around it, and a special token
        # of a template, which may have several ids, has one name.
        tokens = [self.token(number) for number in encoding.ids]
        return Places(self._replace_unknown(int32_ids(encoding.ids)), int32_ids(encoding.type_ids), tokens,
                      offsets=[(start + shift, end + shift) for start, end in encoding.offsets],
                      special=[bool(special) for special in encoding.special_tokens_mask], words=encoding.word_ids,
                      texts=encoding.sequence_ids)

    def encode(self, text: str, *, add_special_tokens: bool = True, stop: Stop = NEVER) -> list[int]:
        """Return the ids that the model reads for a text. add_special_tokens: whether to add special tokens around it.

        Special tokens that are written in the text become their ids in both cases. stop: when to stop. Raises
        `InputError` for anything but one text.
        """
        if not isinstance(text, str):
            raise InputError(f"encode takes one text, not {shown(text)}")
        [sentence] = check_sentences([text])
        if flag("add_special_tokens", add_special_tokens):
            return list(self([sentence], stop).input_ids[0].tolist())
        [encoding] = self._encodings([self._cut(sentence, stop)], stop, add_special_tokens=False)
        return list(self._replace_unknown(int32_ids(encoding.ids)).tolist())

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text, such as a chat message, in which "</s>" is four characters and no added token."""
        with _READS:
            normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
            text = text if normalizer is None else normalizer.normalize_str(text)
            words = [text] if splitter is None else [word for word, _ in splitter.pre_tokenize_str(text)]
            ids = [token.id for word in words for token in self._tokenizer.model.tokenize(word)]
        return list(self._replace_unknown(int32_ids(ids)).tolist())

    def repeated_start(self, text: str, ids: np.ndarray) -> str:
        """Return the start token, if the text begins with it and the tokenizer has added it once more; otherwise "".

        ids: the tokens of the text, special tokens included.
        """
        if len(ids) < 2 or ids[0] != ids[1]:
            return ""
        start = self.token(int(ids[0]))
        [added] = self([""]).input_ids      # the special tokens alone
        return start if start and text.lstrip().startswith(start) and np.array_equal(added[:1], ids[:1]) else ""

    if not TYPE_CHECKING:  # for mypy, an attribute that is not here is an error

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, with advice for a method that the tokenizers of other libraries have."""
            advice = f"; {TOKENIZER[name]}" if name in TOKENIZER else "" if name.startswith("_") else (
                "; it has encode, decode, token, token_id, special_tokens and limit")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def prompt_length(self, prompt: str) -> int:
        """Return the number of tokens that a prompt puts at the start of a sentence, special tokens included."""
        [encoding] = self._encode(self._cut_all([prompt], NEVER), NEVER)
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        ids = encoding.ids
        return len(ids) - 1 if ids and ids[-1] in special else len(ids)     # the end token stands behind the sentence

    def _check_pairs(self) -> None:
        """Raise `InputError` if the tokenizer reads no pairs of texts."""
        if not self._text.reads_pairs:
            raise InputError("the tokenizer reads one text and no pair of texts: the model's files say that it has no "
                             "end token (eos_token is null), which would stand between the two")

    def _check_room(self, is_pair: bool) -> None:
        """Raise `WeightsError` if the length limit is below the number of special tokens.

        Raises `InputError` for pairs where the tokenizer reads none.
        """
        if is_pair:
            self._check_pairs()
        special = _count_special(self._tokenizer, is_pair)
        if self._limit < special:
            what = "a pair of texts" if is_pair else "a text"
            raise WeightsError(f"the model's length limit of {self._limit} tokens is below the {special} special "
                               f"tokens of {what}; correct max_seq_length in the model folder")

    def count(self, sentence: Sentence) -> str:
        """Return the number of tokens of a whole text or pair, with special tokens, for a message."""
        texts = (sentence,) if isinstance(sentence, str) else sentence
        special = _count_special(self._tokenizer, is_pair=len(texts) == 2)
        tokens = sum(map(count_tokens, self._encode_inner([text[:MAX_CHARACTERS] for text in texts], NEVER)))
        return f"{'more than ' * (max(map(len, texts)) > MAX_CHARACTERS)}{special + tokens:,}"

    def _report(self, sentences: Sequence[Any], kept: Sequence[Any], encodings: Sequence[Any]) -> None:
        """Report which sentences were cut to the current call, if it wants to know. kept: the part of each that was
        tokenized."""
        if (cuts := report_of_cuts()) is not None:
            cuts.add(sentences, self._were_cut(sentences, kept, encodings), self._limit, self.count)

    def _were_cut(self, sentences: Sequence[Any], kept: Sequence[Any], encodings: Sequence[Any]) -> list[bool]:
        """Return whether each sentence was cut: by truncation, or before it was tokenized (kept differs from it)."""
        return [(len(encoding) >= self._limit and bool(encoding.overflowing)) or part != sentence
                for sentence, part, encoding in zip(sentences, kept, encodings, strict=True)]

    def _cut_all(self, sentences: Sequence[Sentence], stop: Stop) -> list[Sentence]:
        """Return sentences without the text that truncation would remove, so that long texts take no long time."""
        if not _are_texts(sentences):
            self._check_room(is_pair=True)
        return [self._cut(sentence, stop) for sentence in sentences]

    def _encode(self, sentences: Sequence[Sentence], stop: Stop) -> list[Any]:
        """Return the encodings of sentences that `_cut_all` has returned."""
        if _are_texts(sentences) or not any(map(self._is_long_pair, sentences)):
            return self._encodings(sentences, stop, fast=True)
        return [self._encode_long_pair(sentence, stop) if self._is_long_pair(sentence)
                else self._encodings([sentence], stop)[0] for sentence in sentences]

    def _is_long_pair(self, sentence: Sentence) -> bool:
        """Return whether a pair would take much memory, because `tokenizers` keeps all pairs of pieces of its texts."""
        return not isinstance(sentence, str) and len(sentence[0]) * len(sentence[1]) > (4 * self._limit) ** 2

    def _encode_long_pair(self, pair: Sentence, stop: Stop) -> PairEncoding:
        """Encode both texts of a pair alone, and join them; raises `InputError` for a tokenizer without a `Frame`."""
        first, second = self._encodings(pair, stop, add_special_tokens=False)
        if self._frame is None:
            raise InputError(f"a pair of {len(pair[0]):,} and {len(pair[1]):,} characters is too long for this model's "
                             "tokenizer; shorten it")
        return self._frame.join((first, second), self._limit, self._from_right)

    def _encodings(self, texts: Sequence[Any], stop: Stop, tokenizer: Any = None, *, fast: bool = False,
                   batch: bool = False, **options: Any) -> list[Any]:
        """Return the encodings of texts, pairs of texts or lists of words; the options are those of `tokenizers`.

        tokenizer: None for this object's own. fast: whether the offsets of tokens are not needed. batch: whether to
        pass the texts as a batch even with one thread. A tokenizer with a pattern that may backtrack runs in a thread
        beside this one, and in batches, because `tokenizers` releases the GIL only in a batch.
        """
        tokenizer = tokenizer or self._tokenizer
        with _READS:
            if self._backtracks or batch or (self._threads > 1 and len(texts) > 1):
                in_batch = tokenizer.encode_batch_fast if fast else tokenizer.encode_batch
                call = partial(in_batch, list(texts), **options)
                return list(beside(call, stop) if self._backtracks else call())
            return [tokenizer.encode(*text, **options) if isinstance(text, tuple) else tokenizer.encode(text, **options)
                    for text in texts]

    @lazy
    def _frame(self) -> Frame | None:
        """The special tokens around the texts of a pair; None if `find_frame` cannot find them."""
        tokenizer = load_tokenizer(self._text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return find_frame(tokenizer)

    def _cut(self, sentence: Sentence, stop: Stop = NEVER) -> Sentence:
        """Return a sentence without the text that truncation would remove; raises the errors of the stop."""
        if not self._truncates:
            return sentence
        if (most := self._text.max_characters) is None and characters_of(sentence) <= self._excerpts.start:
            return sentence         # most sentences are short
        if most is not None:
            sentence = sentence[:most] if isinstance(sentence, str) else (sentence[0][:most], sentence[1][:most])
        return self._excerpts.cut(sentence, self._encode_part(stop))

    def _encode_part(self, stop: Stop) -> Encode:
        """Return a function that encodes a part of a text without special tokens."""
        # A long text is passed as a batch, because `tokenizers` releases the GIL only in a batch.
        return lambda text: self._encodings([text], stop, batch=len(text) > CHARACTERS_AT_A_TIME,
                                            add_special_tokens=False)[0]

    def least_tokens(self, text: str, most: int | None, stop: Stop = NEVER) -> int:
        """Return 0 for a text that may be tokenized whole; for a longer one, a number of tokens that it has at least.

        most: the most tokens that the caller accepts; None for any number, with which every text may be tokenized. A
        text may be tokenized whole up to `MAX_CHARACTERS`, or 32 characters for each token of `most` if that is more.
        A number that is not 0 is above `most`. Raises `InputError` for a longer text that may have fewer tokens.
        """
        return self._excerpts.least_tokens(text, most, self._encode_part(stop))


def _count_special(tokenizer: Any, is_pair: bool) -> int:
    """Return how many special tokens a tokenizer of `tokenizers` adds to a text, or to a pair."""
    with failures("counts its special tokens"):
        return int(tokenizer.num_special_tokens_to_add(is_pair=is_pair))


def _are_texts(sentences: Sequence[Any]) -> bool:
    """Return whether all sentences are texts, and none is a pair."""
    return {*map(type, sentences)} == {str} or all(isinstance(sentence, str) for sentence in sentences)


def _is_sentence(given: Any) -> bool:
    """Return whether a value is a text, or may be a pair of texts."""
    return isinstance(given, str) or (isinstance(given, tuple) and len(given) == 2)


def _batches(sentences: Sequence[Any], characters: int) -> list[Sequence[Any]]:
    """Return the sentences in batches, each of which ends with the sentence that brings it to this many characters."""
    if len(sentences) == 1:
        return [sentences]
    batches: list[Sequence[Any]] = []
    start = size = 0
    for i, length in enumerate(map(characters_of, sentences)):
        size += length
        if size >= characters:
            batches.append(sentences[start : i + 1])
            start, size = i + 1, 0
    if start < len(sentences):
        batches.append(sentences[start:])
    return batches
