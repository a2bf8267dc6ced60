"""`GenerationConfig`: the settings of a generation, under the argument names of transformers' `generate`, checked.

Each check takes the name of a field and a value, and returns the value to use, or raises `InputError`.
"""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import flag, is_number, positive_int, positive_int_or_none
from ..base.errors import ContextTooLong, InputError, UnsupportedError, listed, nearest, shown
from ..base.options import option

NEW_TOKENS = 256
"""The most new tokens when neither max_new_tokens nor max_length is given."""
MOST_IDS = 100_000
"""The most ids of one field together, because each is compared in every step, and a file can list millions."""
MOST_STOPS = 16
"""The most stop texts of a request, because each is looked for after each token."""
LONGEST_STOP = 1000
"""The most characters of a stop text."""
_LARGEST = 2**31 - 1
"""The largest id, and the largest number of tokens."""
GREEDY_BELOW = 1e-6
"""Below this temperature a search takes the best token: logits that differ by 0.0001 would differ by 100 after the
division, so the best token would have all of the probability in float32, and a quotient could overflow."""


def _length(name: str, value: Any) -> int | None:
    """Return a number of tokens, at least 1, or None; numbers beyond `_LARGEST`, such as 10^30 for "any", become it."""
    length = positive_int_or_none(name, value)
    return None if length is None else min(length, _LARGEST)


def _new_tokens(name: str, value: Any) -> int | None:
    """Return a number of tokens, at least 0, or None; `_check_new_tokens` allows 0 only with `echo`."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value == 0:
        return 0
    return _length(name, value)


def _count(name: str, value: Any, most: int = _LARGEST, hint: str = "") -> int:
    """Return an integer from 0 to `most`. hint: the end of the message about a value that is no such number."""
    try:
        number = -1 if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"{name} must be an int of at least 0, not {shown(value)}{hint}")
    if number > most:
        raise InputError(f"{name} must be at most {most:,}, not {shown(value)}")
    return number


def _seed(name: str, value: Any) -> int:
    """Return a seed of up to 64 bits; "random" becomes a number that nobody can guess."""
    if isinstance(value, str) and value == "random":
        return secrets.randbits(63)
    return _count(name, value, 2**64 - 1, '; "random" draws one')


def _stop_texts(name: str, value: Any) -> tuple[str, ...]:
    """Return one text, several texts or None as a tuple without repeats."""
    texts = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple, set, frozenset)) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} must be a text or a list of texts, not {shown(value)}")
    if len(texts) > MOST_STOPS:
        raise InputError(f"{name} may have up to {MOST_STOPS} texts, not {len(texts):,}")
    for text in texts:
        if not text:
            raise InputError(f"{name} has an empty text, which every text holds; leave it out")
        if len(text) > LONGEST_STOP:
            raise InputError(f"each text of {name} may have up to {LONGEST_STOP:,} characters, not {len(text):,}")
    return tuple(dict.fromkeys(texts))


def _logprobs(name: str, value: Any) -> int | None:
    """Return a number from 0 to 20, or None; True becomes 0, and False becomes None."""
    if value is None or isinstance(value, bool):
        return 0 if value else None
    return _count(name, value, most=20)


def _biases(name: str, value: Any) -> tuple[tuple[int, float], ...]:
    """Return a dictionary from ids to numbers, or a list of such pairs, as pairs (id, number) in the order of ids."""
    try:
        biases = dict(() if value is None else value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a dictionary from ids of tokens to numbers, not {shown(value)}") from None
    _check_few_ids(name, len(biases))
    check = _number_between(-100, 100)
    return tuple(sorted((_count(f"each id of {name}", id), check(f"each number of {name}", bias))
                        for id, bias in biases.items()))


def _id(name: str, value: Any) -> int | None:
    """Return an id, or None."""
    return None if value is None else _count(name, value)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """Return one id, several ids or None as a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        raise InputError(f"{name} must be an id or a list of ids, not {shown(value)}; tokenizer.token_id of the model "
                         "gives the id of a token")
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, bytes):
        _check_few_ids(name, np.size(value) if isinstance(value, np.ndarray) else len(value))
        ids = np.atleast_1d(value) if isinstance(value, np.ndarray) else value
        return tuple(_count(f"each id of {name}", x) for x in ids)
    return (_count(name, value),)


def _check_few_ids(name: str, ids: int) -> None:
    """Raise `InputError` for more than `MOST_IDS` ids. ids: their number."""
    if ids > MOST_IDS:
        raise InputError(f"{name} may have up to {MOST_IDS:,} ids together, not {ids:,}")


def _id_lists(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """Return a list of lists of ids, none of them empty, as tuples."""
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, (list, tuple)) and word for word in value):
        raise InputError(f"{name} must be a list of lists of at least one id, not {shown(value)}")
    _check_few_ids(name, sum(map(len, value)))
    return tuple(_ids(name, word) for word in value)


def _head_pairs(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """Return a list of pairs (layer, head) as tuples."""
    pairs = _id_lists(name, value)
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(f"{name} must be a list of pairs (layer, head), not {shown(value)}")
    return pairs


def _number_between(low: float, high: float) -> Any:
    """Return a check for a number from `low` to `high`."""

    def check(name: str, value: Any) -> float:
        """Return the number as a float."""
        if not is_number(value, np.integer, np.floating) or not low <= value <= high:
            raise InputError(f"{name} must be a number from {low:,g} to {high:,g}, not {shown(value)}")
        return float(value)

    return check


def _early_stopping(name: str, value: Any) -> bool | str:
    """Return True, False or "never"."""
    if isinstance(value, str) and value == "never":
        return value
    try:
        return flag(name, value)
    except InputError:
        raise InputError(f'{name} must be True, False or "never", not {shown(value)}') from None


_SHARE = _number_between(0, 1)


@dataclass(frozen=True)
class GenerationConfig:
    """How to generate; every field means what transformers' `generate` means by the same argument.

    num_beams of 1 is greedy search, or sampling with `do_sample`; more beams are a beam search. Lists of ids may be
    given as one id, a list or None; they become tuples. Raises `InputError` for a value that a field cannot have.
    """

    # The length, in tokens of the decoder.
    max_new_tokens: int | None = option(None, _new_tokens)
    """The most new tokens, the end token included. It comes before max_length. 256 if neither is given."""
    max_length: int | None = option(None, _length)
    """The most tokens of prompt and new tokens together."""
    min_new_tokens: int = option(0, _count)
    """No end token comes before this number of new tokens."""
    min_length: int = option(0, _count)
    """No end token comes before this number of tokens of prompt and new tokens together."""

    # The search.
    num_beams: int = option(1, positive_int)
    """The beams of a beam search; 1 is greedy search, or sampling with do_sample."""
    length_penalty: float = option(1.0, _number_between(-100, 100))
    """p in score = sum(log probabilities) / new_tokens^p, from -100 to 100; above 0 it favours long results."""
    early_stopping: bool | Literal["never"] = option(False, _early_stopping)
    """When a beam search ends that has num_beams finished results. True: at once. False: when the best live beam,
    divided by its length now, is no better than the worst of them. "never": the same, with the length (of now or of
    the end) that is best for the live beam; then no better result is missed."""
    num_return_sequences: int = option(1, positive_int)
    """How many results each input has: samples, or the best beams of a beam search."""

    # The end.
    stop_strings: tuple[str, ...] = option((), _stop_texts)
    """The stop texts: up to 16, of up to 1,000 characters each. A result ends at the first place in its text at which
    one of them is complete, and leaves it out."""
    include_stop: bool = option(False, flag)
    """Whether the text of a result keeps the stop text that ended it."""
    ignore_eos: bool = option(False, flag)
    """Whether end tokens are tokens like others, and end nothing."""

    # What a result tells.
    logprobs: int | None = option(None, _logprobs)
    """With a number from 0 to 20, each new token has its log probability under the model itself, before temperature,
    penalties and masks, and this number of the likeliest tokens in its place. True is 0, and None is neither."""
    echo: bool = option(False, flag)
    """Whether a result begins with the prompt: its tokens, its text and, with logprobs, its log probabilities, of which
    the first token has none. Then max_new_tokens may be 0."""

    # Changes of the logits (processors.py).
    repetition_penalty: float = option(1.0, _number_between(0.01, 100))
    """From 0.01 to 100. The logit of a token that came before is divided by it if the logit is above 0, and multiplied
    by it otherwise, so that the token becomes less likely above 1; 1 changes nothing."""
    presence_penalty: float = option(0.0, _number_between(-2, 2))
    """From -2 to 2. It is subtracted from the logit of each token that is among the new ones."""
    frequency_penalty: float = option(0.0, _number_between(-2, 2))
    """From -2 to 2. It is subtracted from the logit of a token once for each time that it is among the new ones."""
    logit_bias: tuple[tuple[int, float], ...] = option((), _biases)
    """Numbers from -100 to 100 that are added to the logits of some tokens, by their ids: {5: -2.0}. A call may have
    the text of one token in place of an id."""
    no_repeat_ngram_size: int = option(0, _count)
    """No run of this number of tokens comes twice in the prompt and the result together; 0 for no such rule."""
    encoder_no_repeat_ngram_size: int = option(0, _count)
    """No run of this number of tokens of the source, or of the prompt in a model without an encoder, comes in the
    result; 0 for no such rule."""
    bad_words_ids: tuple[tuple[int, ...], ...] = option((), _id_lists)
    """Sequences of ids that no result may hold."""
    suppress_tokens: tuple[int, ...] = option((), _ids)
    """The ids of tokens that never come."""
    begin_suppress_tokens: tuple[int, ...] = option((), _ids)
    """The ids of tokens that may not be the first new token, or the second one behind forced_bos_token_id."""
    forced_bos_token_id: int | None = option(None, _id)
    """The first new token, if the prompt has one token."""
    forced_eos_token_id: tuple[int, ...] = option((), _ids)
    """The last token of a result that reaches its greatest length."""
    renormalize_logits: bool = option(False, flag)
    """Whether the log probabilities of a beam search that rules have changed are made to add up to 1 again."""

    # Speech (timestamps.py).
    return_timestamps: bool = option(False, flag)
    """Whether timestamps come between the texts, by the rules of Whisper. It needs the next field and an end token."""
    no_timestamps_token_id: int | None = option(None, _id)
    """The token that asks for no timestamps. The ids above it are the times 0.00 s, 0.02 s and so on; text has the ids
    below the end token."""
    max_initial_timestamp_index: int | None = option(None, _id)
    """The first timestamp is at most this one, counted from 0."""
    alignment_heads: tuple[tuple[int, ...], ...] = option((), _head_pairs)
    """Pairs (layer, head) of cross-attention whose weights say when a token is spoken."""
    is_multilingual: bool | None = option(None, lambda name, value: None if value is None else flag(name, value))
    """Whether a model of speech knows languages and tasks; None where only the number of its tokens says so."""

    # Sampling (sampling.py).
    do_sample: bool = option(False, flag)
    """Whether each token is drawn by its probability; otherwise the search takes the best token or the best beams."""
    temperature: float = option(1.0, _number_between(0, 1e6))
    """What logits are divided by, up to 1e6. Below 1e-6, also at 0, sampling takes the best token."""
    top_k: int = option(50, partial(_count, hint="; 0 keeps all tokens"))
    """The number of best tokens among which sampling chooses; 0 is all of them. Among equals the lowest ids count."""
    top_p: float = option(1.0, _SHARE)
    """Sampling keeps the best tokens until their probabilities together reach this number; 1 keeps all."""
    min_p: float = option(0.0, _SHARE)
    """Sampling keeps the tokens whose probability is at least this part of the best one's; 0 keeps all."""
    seed: int = option(0, _seed)
    """The random numbers depend on the seed, the ids of the request and the step, and on nothing else. "random" becomes
    a number that nobody can guess; `Generated.seed` has the number."""

    # Special tokens.
    decoder_start_token_id: int | None = option(None, _id)
    """The first token of the decoder of a model with an encoder; bos_token_id if it is None."""
    bos_token_id: int | None = option(None, _id)
    """The start token of a model without decoder_start_token_id."""
    eos_token_id: tuple[int, ...] = option((), _ids)
    """The ids of the tokens that end a result."""
    pad_token_id: int | None = option(None, _id)
    """Accepted for the sake of calls that give it; it has no effect, because nothing is padded."""
    prefix: tuple[int, ...] = option((), _ids)
    """Tokens that follow the start token or the prompt of every decoder. They do not count as new tokens."""

    def __post_init__(self) -> None:
        """Replace each value by the one that its check returns; the dataclass is frozen."""
        for field in fields(self):
            object.__setattr__(self, field.name, CHECKS[field.name](field.name, getattr(self, field.name)))
        self._check_new_tokens()

    def _check_new_tokens(self) -> None:
        """Raise `InputError` for max_new_tokens=0 without `echo`, because a result would be empty."""
        if self.max_new_tokens == 0 and not self.echo:
            raise InputError("max_new_tokens must be None or an int of at least 1, not 0; with echo=True, 0 gives the "
                             "prompt alone")

    def changed(self, /, **options: Any) -> GenerationConfig:
        """Return a copy of these settings with some fields replaced and checked. None gives a field its default.

        A length in new tokens replaces a length in all tokens, and the other way round (`_EXCLUSIVE`).
        """
        unknown = sorted(options.keys() - CHECKS.keys())
        if unknown:
            raise InputError(f"generation has no argument {listed(unknown)}{nearest(unknown[0], CHECKS)}; it has "
                             f"{', '.join(CHECKS)}")
        for one, other in _EXCLUSIVE:
            if options.get(one) is not None and options.get(other) is None:
                options[other] = _DEFAULTS[other]
        if not options:
            return self
        changed = copy(self)        # not `replace`, which would check all other fields again
        for name, value in options.items():
            object.__setattr__(changed, name, CHECKS[name](name, _DEFAULTS[name] if value is None else value))
        changed._check_new_tokens()
        return changed

    def check_together(self, vocab_size: int) -> None:
        """Raise an `EngineError` for settings that contradict each other or the size of the vocabulary."""
        if self.do_sample and self.num_beams > 1:
            raise UnsupportedError(f"do_sample=True needs num_beams=1, not {self.num_beams}: the engine draws no "
                                   "samples from beams")
        most = self.num_beams if self.num_beams > 1 else 1
        if self.num_return_sequences > most and not self.do_sample:
            raise InputError(f"num_return_sequences={self.num_return_sequences} needs do_sample=True, or num_beams of "
                             f"at least {self.num_return_sequences}, not {self.num_beams}")
        if self.max_new_tokens is not None and self.min_new_tokens > self.max_new_tokens:
            raise InputError(f"min_new_tokens={self.min_new_tokens} must not be above "
                             f"max_new_tokens={self.max_new_tokens}")
        for name in _ID_FIELDS:
            if not (value := getattr(self, name)):      # None, the id 0, or no ids
                continue
            ids = chain(*value) if name == "bad_words_ids" else (value,) if isinstance(value, int) else value
            for token in ids:
                if token >= vocab_size:
                    raise InputError(f"{name} has the id {token}, but the model has {vocab_size} tokens")
        if self.logit_bias and self.logit_bias[-1][0] >= vocab_size:
            raise InputError(f"logit_bias has the id {self.logit_bias[-1][0]}, but the model has {vocab_size} tokens")
        if self.return_timestamps and (self.no_timestamps_token_id is None or not self.eos_token_id):
            raise InputError("return_timestamps=True needs no_timestamps_token_id and eos_token_id")
        first = self.forced_bos_token_id
        if first is not None and (first in self.eos_token_id or first in self.suppress_tokens):
            raise InputError(f"forced_bos_token_id={first} must not be an id of eos_token_id or suppress_tokens as "
                             "well")

    def prompt(self, ids: NDArray[np.int64] | None, has_source: bool) -> NDArray[np.int64]:
        """Return the first tokens of the decoder: int64 [P], P at least 1.

        ids: the prompt of a request; None, for a model with an encoder, is the start token.
        """
        if ids is None:
            start = self.bos_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id
            if not has_source:
                raise InputError("a request without a source needs a prompt of at least one token")
            if start is None:
                raise InputError("the decoder has no start token: give decoder_start_token_id, or a prompt")
            ids = np.array([start], np.int64)
        tokens = np.concatenate([ids, np.array(self.prefix, np.int64)])
        if not len(tokens):
            raise InputError("a prompt must have at least one token")
        return tokens

    def limit(self, prompt: int, longest: int | None, advice: str = "") -> int:
        """Return the most tokens, prompt included, of a request whose prompt has this number of tokens.

        longest: the most tokens that the model reads; None for any number. It does not read the last token of a result,
        so longest + 1 tokens are possible. advice: the end of the message about a prompt that is too long.
        """
        check_length("the prompt", prompt, longest, advice=advice)
        most = math.inf if longest is None else longest + 1
        if self.max_new_tokens is not None:
            limit = prompt + self.max_new_tokens
            if limit > most:
                raise ContextTooLong(f"max_new_tokens={self.max_new_tokens} after a prompt of {prompt} tokens is more "
                                     f"than the model has positions for; give at most {most - prompt}{advice}")
        else:
            limit = prompt + NEW_TOKENS if self.max_length is None else self.max_length
            if limit <= prompt:
                raise ContextTooLong(f"max_length={limit} leaves no room after a prompt of {prompt} tokens")
            limit = int(min(limit, most))
        if self.forced_bos_token_id is not None and prompt == 1 and limit < 3:
            raise InputError("with forced_bos_token_id there must be room for at least two new tokens")
        return limit


def check_length(part: str, tokens: int, longest: int | None, verb: str = "reads", at_least: bool = False,
                 advice: str = "") -> None:
    """Raise `InputError` for a part of a request with more tokens than the model's positions allow.

    part: its name in the message. tokens: how many it has. longest: the most tokens; None for any number. verb: what
    the model does with the part. at_least: whether it may have more than `tokens`. advice: the end of the message.
    """
    if longest is not None and tokens > longest:
        raise ContextTooLong(f"{part} has {'at least ' * at_least}{tokens:,} tokens, but the model {verb} at most "
                             f"{longest:,}; shorten it{advice}")


def ids_array(name: str, ids: Any, check: Callable[[int], object] | None = None) -> NDArray[np.int64]:
    """Return a copy of ids as int64 [n]; raises `InputError` unless they are a flat sequence of integers of at least 0.

    check: is called with the number of ids before anything is copied, to refuse too many; None for any number.
    """
    if check is not None and (isinstance(ids, Sequence) or (isinstance(ids, np.ndarray) and ids.ndim > 0)):
        check(len(ids))
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a flat sequence of token ids: {error}") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size) or (array.size and array.min() < 0):
        raise InputError(f"{name} must be a flat sequence of token ids of at least 0, not {shown(ids)}")
    return array.astype(np.int64)


CHECKS: dict[str, Any] = {field.name: field.metadata["check"] for field in fields(GenerationConfig)}
"""The check of each field, by its name."""

_DEFAULTS = {field.name: field.default for field in fields(GenerationConfig)}
# Pairs (field, other): if a call gives the field, the other one gets its default.
_EXCLUSIVE = (("max_new_tokens", "max_length"), ("max_length", "max_new_tokens"),
              ("min_new_tokens", "min_length"), ("min_length", "min_new_tokens"))  # fmt: skip
_ID_FIELDS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
              "forced_eos_token_id", "decoder_start_token_id", "eos_token_id", "no_timestamps_token_id",
              "prefix")  # fmt: skip
