"""Say how the logits of the next token are changed, as the logits processors of transformers do; a step applies this.

`Rules` are shared by requests with equal settings. A `Follower` belongs to one hypothesis: its sets and tables are
updated with each new id, which costs the same after any number of ids. The order of the changes does not matter,
because a removal wins over a penalty; forced tokens need no logits (results.py) and win over a removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..backends.wants import Addends, Changes, IdSet
from ..model.generation_config import GenerationConfig
from .timestamps import Timestamps
from .top_k import Exp

Followers: TypeAlias = Mapping[tuple[int, ...], tuple[int, ...]]
"""{run of ids: the ids that may not follow it}."""
_SETTINGS = ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "ignore_eos",
             "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "eos_token_id",
             "min_new_tokens", "min_length", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
             "return_timestamps", "no_timestamps_token_id", "max_initial_timestamp_index")
"""The fields of `GenerationConfig` that rules depend on."""


class Rules:
    """The changes of logits that some settings ask for, for one vocabulary."""

    def __init__(self, config: GenerationConfig, vocab_size: int, exp: Exp = np.exp) -> None:
        """vocab_size: V. exp: the function e^x, for scores."""
        self.vocab_size, self.penalty = vocab_size, config.repetition_penalty
        self.presence, self.frequency = config.presence_penalty, config.frequency_penalty
        self.biases = config.logit_bias
        self.ngram, self.source_ngram = config.no_repeat_ngram_size, config.encoder_no_repeat_ngram_size
        single = [word[0] for word in config.bad_words_ids if len(word) == 1]
        self._ends = () if config.ignore_eos else config.eos_token_id
        # A bad word that is one end token is not removed, as in transformers.
        self._always = frozenset({*single} - {*self._ends} | {*config.suppress_tokens})
        self._least_new = config.min_new_tokens
        self._least_length = 0 if self._least_new else config.min_length      # min_new_tokens wins, as in transformers
        self._at_begin = config.begin_suppress_tokens
        self._forces_first = config.forced_bos_token_id is not None
        self.words: dict[int, Followers] = {}
        """The bad words of several ids, as `Followers` by the number m of ids before the last one."""
        for word in config.bad_words_ids:
            if len(word) > 1 and word[-1] < vocab_size:
                table: Any = self.words.setdefault(len(word) - 1, {})
                table[word[:-1]] = (*table.get(word[:-1], ()), word[-1])
        self.timestamps = None
        if config.return_timestamps and config.no_timestamps_token_id is not None:
            self.timestamps = Timestamps(config.no_timestamps_token_id, config.eos_token_id[0],
                                         config.max_initial_timestamp_index, exp)
        self._allowed: dict[tuple[bool, bool], IdSet | None] = {}
        """The results of `allowed`, by (whether end tokens are too early, whether the next token is the first one)."""

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        removes = self._always or self._at_begin or ((self._least_new or self._least_length) and self._ends)
        adds = self.presence or self.frequency or self.biases       # numbers to logits
        return bool(self.penalizes or adds or removes or self.ngram or self.source_ngram or self.words
                    or self.timestamps)

    @property
    def penalizes(self) -> bool:
        """Whether the logits of ids that came before are penalized (or, with a penalty below 1, favoured)."""
        return self.penalty != 1

    def allowed(self, length: int, prompt: int) -> IdSet | None:
        """Return the ids that the rules about lengths allow as the next token; None for all.

        length: the number of ids so far. prompt: how many of them are the prompt. `Follower` adds the rules about runs.
        """
        # `begin_suppress_tokens` holds for the first token that is chosen. After a prompt of one token, the start
        # token, a first token may be forced. Then the first chosen token is the one after it.
        begins = length == prompt + (prompt == 1 and self._forces_first)
        is_early = length < self._least_length or length - prompt < self._least_new      # for an end token
        key = is_early, begins
        if key not in self._allowed:
            removed = self._always.union(self._ends if is_early else (), self._at_begin if begins else ())
            inside = [id for id in removed if id < self.vocab_size]
            self._allowed[key] = IdSet.of(inside, self.vocab_size).complement() if inside else None
        return self._allowed[key]


class Follower:
    """Follows the ids of one hypothesis, and says how the rules change the logits after them."""

    __slots__ = ("_added", "_addends", "_changes", "_length", "_most", "_new", "_ngrams", "_prompt", "_rules", "_seen",
                 "_tables", "_tail", "_used")

    def __init__(self, rules: Rules, prompt: int, source: Followers) -> None:
        """prompt: the number of its ids. source: `followers_of` the source, with n of `rules.source_ngram`."""
        self._rules, self._prompt, self._length = rules, prompt, 0      # `_length`: how many ids it has followed
        self._seen = IdSet(rules.vocab_size) if rules.penalizes else None
        """All ids so far, which `repetition_penalty` changes."""
        self._used = IdSet(rules.vocab_size) if 1 in (rules.ngram, rules.source_ngram) else None
        """The ids that may not come again."""
        self._ngrams: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The `Followers` of the ids so far, for `no_repeat_ngram_size`."""
        self._tables: list[tuple[int, Followers]] = [*rules.words.items()]
        """(m, table) for each rule about runs: by the last m ids, the table has the ids that may not follow them."""
        if rules.ngram > 1:
            self._tables.append((rules.ngram - 1, self._ngrams))
        if rules.source_ngram > 1:
            self._tables.append((rules.source_ngram - 1, source))
        for id in source.get((), ()):       # for n = 1, the ids of the source, none of which may come again
            self._ban_after_use(id)
        self._most = max((m for m, _ in self._tables), default=0)       # the longest run that a table has
        self._tail: list[int] = []      # the last `_most` ids
        self._changes: Changes | None = None        # the result of the last `follow`
        self._added: dict[int, float] = dict(rules.biases)
        """The number to add to the logit of an id."""
        self._new: set[int] = set()     # the ids of the new tokens, which presence_penalty has already changed
        self._addends: Addends | None = None
        """`_added` in the form that a step reads; None if it has to be made anew, or if nothing is added."""

    def fork(self) -> Follower:
        """Return a copy, for a hypothesis with the same ids so far that goes on with other ids."""
        child = object.__new__(Follower)
        for name in self.__slots__:
            setattr(child, name, getattr(self, name))
        child._seen, child._used = self._seen and self._seen.copy(), self._used and self._used.copy()
        child._ngrams, child._tail, child._changes = dict(self._ngrams), [*self._tail], None
        child._added, child._new = dict(self._added), {*self._new}
        child._tables = [(m, child._ngrams if table is self._ngrams else table) for m, table in self._tables]
        return child

    def follow(self, ids: NDArray[np.int64], length: int) -> Changes | None:
        """Note the ids since the last call, up to `length`; return the changes of the logits after them, or None.

        ids: [at least length]: all ids of the hypothesis. A second call with the same length returns the same.
        """
        rules = self._rules
        for place, id in enumerate(ids[self._length : length].tolist(), self._length):
            self._note(id, is_new=place >= self._prompt)
        self._length = length
        allowed = rules.allowed(length, self._prompt)
        # Remove the ids that a table has behind the last m ids: they would complete a bad word, or repeat an n-gram.
        removed = [id for m, table in self._tables if len(self._tail) >= m
                   for id in table.get(tuple(self._tail[len(self._tail) - m :]), ())]
        if removed or self._used is not None:       # make a new set, because `allowed` is shared; one bit for each id
            words = np.full(-(-rules.vocab_size // 32), 0xFFFFFFFF, np.uint32) if allowed is None else allowed.words
            allowed = IdSet(rules.vocab_size, words.copy() if self._used is None else words & ~self._used.words)
            for id in removed:
                allowed.discard(id)
        if self._addends is None and self._added:
            added = sorted(self._added)
            self._addends = Addends(added, [self._added[id] for id in added])
        if allowed is None and self._seen is None and self._addends is None:
            return None
        if self._changes is None or allowed is not self._changes.allowed or self._addends is not self._changes.addends:
            self._changes = Changes(self._seen, rules.penalty, self._addends, allowed)
        return self._changes

    def _note(self, id: int, is_new: bool) -> None:
        """Note the next id. is_new: whether it is a new token, and not one of the prompt.

        An id from V on, which has no logit, counts in runs of ids, but is neither penalized nor removed.
        """
        rules, tail = self._rules, self._tail
        n, inside = rules.ngram, id < rules.vocab_size
        if inside and self._seen is not None:
            self._seen.add(id)
        if inside and is_new and (rules.presence or rules.frequency):
            once = 0.0 if id in self._new else rules.presence
            self._added[id] = self._added.get(id, 0.0) - rules.frequency - once
            self._new.add(id)
            self._addends = None
        if inside and n == 1:
            self._ban_after_use(id)
        if inside and len(tail) >= n - 1 > 0:
            run = tuple(tail[len(tail) + 1 - n :])      # the n - 1 ids before this one
            before = self._ngrams.get(run, ())
            self._ngrams[run] = before if id in before else (*before, id)
        if self._most:
            tail.append(id)
            del tail[: -self._most]

    def _ban_after_use(self, id: int) -> None:
        """Ban an id from now on, if n-grams may not repeat and n is 1, so that each id may come only once."""
        if self._used is not None and id < self._rules.vocab_size:
            self._used.add(id)


def followers_of(ids: NDArray[np.int64], n: int, vocab_size: int) -> Followers:
    """Return {n - 1 ids in a row of a source: the ids below V that follow them there}. ids: int64 [S]: the source."""
    followers: dict[tuple[int, ...], dict[int, None]] = {}
    listed = ids.tolist()
    for i in range(len(listed) + 1 - n):
        if listed[i + n - 1] < vocab_size:
            followers.setdefault(tuple(listed[i : i + n - 1]), {})[listed[i + n - 1]] = None
    return {run: tuple(last) for run, last in followers.items()}


def rules_of(config: GenerationConfig, vocab_size: int, exp: Exp = np.exp) -> Rules:
    """Return the rules of these settings; calls with equal settings get the same object."""
    return _shared_rules(tuple(getattr(config, name) for name in _SETTINGS), vocab_size, exp)


@lru_cache(64)
def _shared_rules(values: tuple[Any, ...], vocab_size: int, exp: Exp) -> Rules:
    """Return the rules for these values of `_SETTINGS`; unlike a GenerationConfig, the values can be hashed."""
    return Rules(GenerationConfig(**dict(zip(_SETTINGS, values, strict=True))), vocab_size, exp)
