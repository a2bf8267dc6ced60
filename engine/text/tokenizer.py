"""`Tokenizer`: a model's own tokenizer, which cuts long texts and makes windows of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.advice.attributes import TOKENIZER
from ..base.arguments import flag
from ..base.errors import InputError, WeightsError, shown
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
"""How many characters each thread tokenizes between two looks at a `Stop`, which takes 0.05 s at most."""
_READS = failures("reads a text")


class Tokenizer(TokenTexts):
    """A model's tokenizer, which does not pad. Several threads may call it at once."""

    def __init__(self, text: TextConfig, max_tokens: int | None, threads: int, *, truncates: bool = True):
        """Load the tokenizer; it truncates sentences to the smaller of `text.max_seq_length` and `max_tokens`.

        A limit that is None is ignored, and so is the limit in the tokenizer.json. With threads=1 the caller's thread
        does all the work; otherwise `tokenizers` chooses the number of threads. truncates: False for a tokenizer that
        gives all tokens of a text, whatever the limits are, as the prompts of a model need it.
        """
        from .safety import check_tokenizer  # here, because `import engine` shall stay light

        # The characters of the longest added token or pattern, and whether a pattern may take minutes by backtracking.
        longest, self._backtracks = check_tokenizer(text.tokenizer_json)
        super().__init__(text)
        self._threads = threads
        self._spare: list[Any] = []     # tokenizers of `windows`, which sets their truncation, while no call uses them
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
        """Tokenize sentences that `check_sentences` has returned.

        stop: when to stop; it is looked at between batches of `CHARACTERS_AT_A_TIME`. Raises `InputError` for a text
        alone.
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
        """Tokenize short texts of several calls at one time; return the tokens, and which texts were cut.

        Nobody is told of the cuts. Raises as a call does, whichever text is wrong.
        """
        kept = self._cut_all(texts, NEVER)
        encodings = self._encode(kept, NEVER)
        return self._tokens_of(encodings), self._were_cut(texts, kept, encodings)

    @property
    def is_quick(self) -> bool:
        """Whether a short text takes no long time, and nobody counts tokens in this thread: others may read it then."""
        return not self._backtracks and not is_counting()

    def pairs(self, pairs: Sequence[tuple[str, str]], stop: Stop = NEVER) -> Tokens:
        """Tokenize pairs as a call does, but each different first text once; raises as a call does.

        A query and its documents are such pairs. The ids are equal to those of a call.
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
        """Tokenize texts that stand second in pairs; `with_each` puts a first text before them.

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
        """Tokenize each text with each of some second texts: all pairs of the first text, then those of the next one.

        Each text is tokenized once. The first text alone is truncated, so that the second one is always whole.
        """
        frame, longest = self._frame, seconds.longest
        assert frame is not None        # `second_texts` looked
        kept = [str(self._cut(text, stop)) for text in firsts]
        joined = [[frame.join((first, second), self._limit, self._from_right, only_first=True)
                   for second in seconds.encodings] for first in self._encode_inner(kept, stop)]
        beside = seconds.texts[longest]     # a text that is cut beside any other one is cut beside this one
        self._report([(text, beside) for text in firsts], [(text, beside) for text in kept],
                     [of_text[longest] for of_text in joined])
        return self._count_tokens([pair for of_text in joined for pair in of_text], each=len(seconds.texts))

    def _count_tokens(self, encodings: Sequence[Any], each: int = 1) -> Tokens:
        """Return the tokens of encodings as the model reads them, and count them where this thread wants it.

        each: how many encodings each text of the call has.
        """
        tokens = self._tokens_of(encodings)
        if is_counting():
            lengths = tokens.lengths
            note_tokens(sum(lengths[first : first + each]) for first in range(0, len(lengths), each))
        return tokens

    def _tokens_of(self, encodings: Sequence[Any]) -> Tokens:
        """Return the tokens of encodings as the model reads them; token types that it does not get are zeros."""
        ids = [finish(self._text, self._replace_unknown(int32_ids(e.ids)), self._fill_length) for e in encodings]
        if not self._text.feeds_token_types:
            return Tokens(ids, [np.zeros(len(row), np.int32) for row in ids])
        return Tokens(ids, [resized(int32_ids(e.type_ids), len(row), 0) for e, row in zip(encodings, ids, strict=True)])

    def _encode_inner(self, texts: Sequence[str], stop: Stop) -> list[Any]:
        """Return the encodings of texts without special tokens."""
        encodings: list[Any] = []
        for part in _batches(texts, CHARACTERS_AT_A_TIME * self._threads):
            stop.check()
            encodings += self._encodings(part, stop, fast=True, batch=True, add_special_tokens=False)
        return encodings

    def places(self, texts: Sequence[str | Sequence[str]], *, split: bool = False, stop: Stop = NEVER) -> list[Places]:
        """Tokenize texts, and return the place of each token in its text. split: whether a text is a list of words.

        Texts are truncated to the limit of the model. stop: when to stop; it is looked at between batches.
        """
        kept: list[Any] = []
        encodings: list[Any] = []
        for part in _batches(texts, CHARACTERS_AT_A_TIME * self._threads):
            stop.check()
            cut: list[Any] = [list(text) if split else self._cut(str(text), stop) for text in part]
            encoded = self._encodings(cut, stop, is_pretokenized=split)
            joined = [" ".join(text) for text in part] if split else part
            self._report(joined, joined if split else cut, encoded)
            encodings += encoded
            kept += cut
        # How many characters were cut off at the start of each text, which happens where truncation keeps the end.
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
            tokenizer = self._spare.pop()       # another thread that comes meanwhile finds none, and loads its own
        except IndexError:
            tokenizer = load_tokenizer(self._text)
            tokenizer.no_padding()
        try:
            return self._windows(tokenizer, texts, stride, min(limit or self._limit, self._limit), split, stop)
        finally:
            self._spare.append(tokenizer)       # also after a wrong stride, else each one would load another

    def _windows(self, tokenizer: Any, texts: Sequence[Sentence | Sequence[str]], stride: int, limit: int, split: bool,
                 stop: Stop) -> list[list[Places]]:
        """Return what `windows` does, by a tokenizer whose truncation nobody else sets meanwhile."""
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
                overlap = 0         # one window holds the whole text
            else:
                overlap = stride
                counted = text[1] if is_pair else text
                Windows(limit, special + first_tokens, stride).check_overlap(
                    partial(self._count_up_to, counted, stop))
            with _READS:
                tokenizer.enable_truncation(limit, stride=overlap, direction="right",
                                            strategy="only_second" if is_pair else "longest_first")
            # A batch, in which `tokenizers` lets other threads go on, where the text is long.
            [encoding] = self._encodings([tuple(text) if is_pair else text], stop, tokenizer, is_pretokenized=split,
                                         batch=characters_of(text) > CHARACTERS_AT_A_TIME)
            windows.append([self._places(one) for one in (encoding, *encoding.overflowing)])
        return windows

    def window_tokens(self, text: str, stride: int, most: int, stop: Stop = NEVER) -> int:
        """Return how many tokens all windows of a text have together, before they are made: more than `most`, or all.

        stride: the tokens by which windows overlap. Of a very long text the number may be wrong by some tokens
        (`_count_up_to`).
        """
        windows = Windows(self._limit, _count_special(self._tokenizer, is_pair=False), stride)
        if windows.step < 1:        # `windows` says whether one window holds the text
            return self._limit
        return windows.tokens(self._count_up_to(text, stop, windows.least_text(most)))

    def _count_up_to(self, text: str | Sequence[str], stop: Stop, most: int) -> int:
        """Return how many tokens a text has without special tokens; of a long text with more than `most`, some of them.

        A text of more than `MAX_CHARACTERS` is counted in parts, so that its number may be wrong by a token a part.
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
        """Return the tokens of an encoding. shift: the number of characters before the text that was encoded."""
        # Not encoding.tokens: there, a special token that the text holds has the spaces around it, and a special token
        # of a template, which may have several ids, has one name.
        tokens = [self.token(number) for number in encoding.ids]
        return Places(self._replace_unknown(int32_ids(encoding.ids)), int32_ids(encoding.type_ids), tokens,
                      offsets=[(start + shift, end + shift) for start, end in encoding.offsets],
                      special=[bool(special) for special in encoding.special_tokens_mask], words=encoding.word_ids,
                      texts=encoding.sequence_ids)

    def encode(self, text: str, *, add_special_tokens: bool = True, stop: Stop = NEVER) -> list[int]:
        """Return the ids that the model reads for a text, with the special tokens that the tokenizer adds, or without.

        Special tokens that are written in the text become their ids in both cases. stop: when to stop. Raises
        `InputError`.
        """
        if not isinstance(text, str):
            raise InputError(f"encode takes one text, not {shown(text)}")
        [sentence] = check_sentences([text])
        if flag("add_special_tokens", add_special_tokens):
            return list(self([sentence], stop).input_ids[0].tolist())
        [encoding] = self._encodings([self._cut(sentence, stop)], stop, add_special_tokens=False)
        return list(self._replace_unknown(int32_ids(encoding.ids)).tolist())

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text in which no added token is looked for, so that "</s>" is four characters."""
        with _READS:
            normalizer, splitter = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
            text = text if normalizer is None else normalizer.normalize_str(text)
            words = [text] if splitter is None else [word for word, _ in splitter.pre_tokenize_str(text)]
            ids = [token.id for word in words for token in self._tokenizer.model.tokenize(word)]
        return list(self._replace_unknown(int32_ids(ids)).tolist())

    def repeated_start(self, text: str, ids: np.ndarray) -> str:
        """Return the start token that the tokenizer adds to a text which begins with it already; "" for other texts.

        ids: the tokens of the text, special tokens included.
        """
        if len(ids) < 2 or ids[0] != ids[1]:
            return ""
        start = self.token(int(ids[0]))
        [added] = self([""]).input_ids      # none, if the tokenizer adds nothing
        return start if start and text.lstrip().startswith(start) and np.array_equal(added[:1], ids[:1]) else ""

    if not TYPE_CHECKING:  # for mypy, an attribute that is not here is an error

        def __getattr__(self, name: str) -> Any:
            """Say what to do in place of a method that the tokenizers of other libraries have."""
            advice = f"; {TOKENIZER[name]}" if name in TOKENIZER else "" if name.startswith("_") else (
                "; it has encode, decode, token, token_id, special_tokens and limit")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")

    def prompt_length(self, prompt: str) -> int:
        """Return the number of tokens that a prompt puts at the start of a sentence, special tokens included."""
        [encoding] = self._encode(self._cut_all([prompt], NEVER), NEVER)
        special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        ids = encoding.ids
        return len(ids) - 1 if ids and ids[-1] in special else len(ids)     # without the token at the end of a text

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
        """Report to the call that runs which sentences were cut. kept: what was tokenized of each sentence."""
        if (cuts := report_of_cuts()) is not None:
            cuts.add(sentences, self._were_cut(sentences, kept, encodings), self._limit, self.count)

    def _were_cut(self, sentences: Sequence[Any], kept: Sequence[Any], encodings: Sequence[Any]) -> list[bool]:
        """Return whether each sentence was cut: by truncation, or already before it was tokenized."""
        return [(len(encoding) >= self._limit and bool(encoding.overflowing)) or part != sentence
                for sentence, part, encoding in zip(sentences, kept, encodings, strict=True)]

    def _cut_all(self, sentences: Sequence[Sentence], stop: Stop) -> list[Sentence]:
        """Return sentences without text that truncation would remove."""
        if not _are_texts(sentences):
            self._check_room(is_pair=True)
        return [self._cut(sentence, stop) for sentence in sentences]

    def _encode(self, sentences: Sequence[Sentence], stop: Stop) -> list[Any]:
        """Return the encodings of what `_cut_all` returned."""
        if _are_texts(sentences) or not any(map(self._is_long_pair, sentences)):
            return self._encodings(sentences, stop, fast=True)
        return [self._encode_long_pair(sentence, stop) if self._is_long_pair(sentence)
                else self._encodings([sentence], stop)[0] for sentence in sentences]

    def _is_long_pair(self, sentence: Sentence) -> bool:
        """Return whether `tokenizers` would take much memory: it keeps each piece of one text with each of another."""
        return not isinstance(sentence, str) and len(sentence[0]) * len(sentence[1]) > (4 * self._limit) ** 2

    def _encode_long_pair(self, pair: Sentence, stop: Stop) -> PairEncoding:
        """Return the encoding of a pair whose texts are read alone; raises `InputError` where that is not possible."""
        first, second = self._encodings(pair, stop, add_special_tokens=False)
        if self._frame is None:
            raise InputError(f"a pair of {len(pair[0]):,} and {len(pair[1]):,} characters is too long for this model's "
                             "tokenizer; shorten it")
        return self._frame.join((first, second), self._limit, self._from_right)

    def _encodings(self, texts: Sequence[Any], stop: Stop, tokenizer: Any = None, *, fast: bool = False,
                   batch: bool = False, **options: Any) -> list[Any]:
        """Return the encodings of texts, pairs of texts or lists of words; the options are those of `tokenizers`.

        tokenizer: None for this object's own. fast: whether a batch needs no places of tokens. batch: whether to pass
        the texts as a batch even where one thread works. A tokenizer with a pattern that may backtrack runs in a thread
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

    @cached_property
    def _frame(self) -> Frame | None:
        """The special tokens around the texts of a pair; None for a tokenizer that shows none."""
        tokenizer = load_tokenizer(self._text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return find_frame(tokenizer)

    def _cut(self, sentence: Sentence, stop: Stop = NEVER) -> Sentence:
        """Return a sentence without text that truncation would remove; raises the errors of the stop."""
        if not self._truncates:
            return sentence
        if (most := self._text.max_characters) is None and characters_of(sentence) <= self._excerpts.start:
            return sentence         # as most are
        if most is not None:
            sentence = sentence[:most] if isinstance(sentence, str) else (sentence[0][:most], sentence[1][:most])
        return self._excerpts.cut(sentence, self._encode_part(stop))

    def _encode_part(self, stop: Stop) -> Encode:
        """Return what encodes a part of a text without special tokens."""
        # A long text as a batch, in which `tokenizers` lets other threads go on.
        return lambda text: self._encodings([text], stop, batch=len(text) > CHARACTERS_AT_A_TIME,
                                            add_special_tokens=False)[0]

    def least_tokens(self, text: str, most: int | None, stop: Stop = NEVER) -> int:
        """Return how many tokens a text certainly has that is too long to be read whole; 0 for any other text.

        most: the most tokens that the caller takes; None for any number, of which every text is read whole. A text is
        read whole up to `MAX_CHARACTERS`, or 32 characters for each token of `most` if that is more. The result is
        above `most`, or 0. Raises `InputError` for a longer text that may have fewer tokens.
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
    """Return the sentences in batches that end with the sentence in which they reach this number of characters."""
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
