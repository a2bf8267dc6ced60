"""`TokenStream`: the new tokens of a request as pieces of text, as soon as they are there, for an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ..base.errors import Cancelled
from ..generation.groups import Generation
from ..generation.prepared import PreparedModel
from ..generation.results import Echo, Generated, TokenLogprob
from ..generation.tickets import DecoderTicket
from ..queues.entry import has_news
from .event_loop import News

MARKERS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|START_THINKING|>", "<|END_THINKING|>"),
           ("<seed:think>", "</seed:think>"))
"""The first and the second marker of reasoning: the tokens between which models of each kind write it."""


class Written(NamedTuple):
    """An answer, or a piece of one."""

    text: str = ""
    reasoning: str = ""
    """The part that the model wrote between the markers of reasoning."""
    logprobs: Sequence[TokenLogprob] = ()
    """One for each of its tokens, if the request asks for them; empty otherwise."""
    front: Written | None = None
    """The echoed prompt, in a whole answer and in the first piece of one, if the request asks for it."""
    result: Generated | None = None
    """The result of the method, in a whole answer and in the last piece of one."""


class _AnswerPart(IntEnum):
    """Where in an answer the next character stands."""

    BEFORE = 0
    """Before the first marker, or before a text without reasoning."""
    REASONING = 1
    GAP = 2
    """Behind the second marker, among line feeds that belong to neither part."""
    TEXT = 3


class Reasoning:
    """Divides an answer, piece by piece, into the reasoning between two markers and the text behind it.

    Line feeds beside the markers belong to neither, as templates add them again. A text without the first marker at its
    start has no reasoning.
    """

    def __init__(self, markers: tuple[str, str], starts_inside: bool):
        """starts_inside: whether the prompt ends with the first marker, so that the answer begins with reasoning."""
        self._start, self._end = markers
        self._held, self._part = "", _AnswerPart.REASONING if starts_inside else _AnswerPart.BEFORE
        self._begins = True     # whether the part has no character yet

    def add(self, text: str) -> tuple[str, str]:
        """Add a piece of the answer; return (reasoning, text): the characters that no later piece can change.

        Characters that may be the beginning of a marker are held back.
        """
        self._held += text
        reasoning = content = ""
        if self._part == _AnswerPart.BEFORE:
            begin = self._held.lstrip()
            if begin.startswith(self._start):
                self._part, self._held = _AnswerPart.REASONING, begin[len(self._start) :]
            elif not self._start.startswith(begin):
                self._part = _AnswerPart.TEXT
        if self._part == _AnswerPart.REASONING:
            reasoning = self._reasoning()      # at the second marker, the part is GAP from then on
        if self._part == _AnswerPart.GAP:
            self._held = self._held.lstrip("\n")
            self._part = _AnswerPart.TEXT if self._held else _AnswerPart.GAP
        if self._part == _AnswerPart.TEXT:
            content, self._held = self._held, ""
        return reasoning, content

    def end(self, text: str = "") -> tuple[str, str]:
        """Add the last piece of the answer; return (reasoning, text): what is left, since no piece follows."""
        reasoning, content = self.add(text)
        held, self._held = self._held, ""
        if self._part == _AnswerPart.REASONING:
            return reasoning + held.rstrip("\n"), content
        return reasoning, content + (held if self._part == _AnswerPart.BEFORE else "")

    def _reasoning(self) -> str:
        """Return the reasoning that no later piece can change, and keep the characters behind it held back."""
        if self._begins:
            self._held = self._held.lstrip("\n")
            self._begins = not self._held
        before, marker, behind = self._held.partition(self._end)
        if marker:
            self._part, self._held = _AnswerPart.GAP, behind
            return before.rstrip("\n")
        most = len(self._held)      # a part of the marker at the end, and line feeds before it, are not certain
        size = next((n for n in range(min(most, len(self._end) - 1), 0, -1) if self._held.endswith(self._end[:n])), 0)
        certain = self._held[: most - size].rstrip("\n")
        self._held = self._held[len(certain) :]
        return certain


def front_of(model: PreparedModel, echo: Echo | None) -> Written | None:
    """Return the echoed prompt of an answer with its text and log probabilities; None if `echo` is None."""
    return None if echo is None else Written(model.text_of(echo) or "", "", [*map(model.named, echo.logprobs)])


class _Choice:
    """Makes the pieces of one answer of a request from its tokens, which come one by one."""

    def __init__(self, model: PreparedModel, work: Any, sample: int, reasoning: Reasoning | None):
        """sample: the number of the answer among those of the work. reasoning: divides the answer, or None."""
        self._model, self._sample, self._reasoning = model, sample, reasoning
        self._text, self._logprobs, self._echo = work.new_text(), work.logprobs, work.echo
        self._place = 0     # the number of new tokens so far

    def add(self, token: int) -> Written:
        """Return the piece of the answer that is certain with the next token, which may have no text."""
        logprobs = [self._model.named(self._logprobs[self._sample][self._place])] if self._logprobs else []
        self._place += 1
        text = self._text.add(token)
        reasoning, text = ("", text) if self._reasoning is None else self._reasoning.add(text)
        return Written(text, reasoning, logprobs, self._front())

    def end(self, result: Generated) -> Written:
        """Return the last piece, with the text that was held back and the result."""
        text = self._text.end()
        reasoning, text = ("", text) if self._reasoning is None else self._reasoning.end(text)
        return Written(text, reasoning, (), self._front(), result)

    def _front(self) -> Written | None:
        """Return the echoed prompt, for the first piece; None for all others."""
        echo, self._echo = self._echo, None
        return front_of(self._model, echo)


class TokenStream:
    """The answers of a request, piece by piece. The event loop reads it; the queue's thread rings `news`."""

    def __init__(self, model: PreparedModel, works: Sequence[Generation], tickets: Sequence[DecoderTicket],
                 reasoning: Callable[[Generation], Reasoning | None]):
        """works: those of the tickets, in the same order. reasoning: returns, for a work, a new `Reasoning` that
        divides one of its answers, or None if its answers are not divided.
        """
        self._tickets = tickets
        self._choices: list[_Choice] = []
        self._firsts: list[int] = []        # the number of the first answer of each work
        for work in works:
            self._firsts.append(len(self._choices))
            self._choices += [_Choice(model, work, sample, reasoning(work))
                              for sample in range(work.config.num_return_sequences)]
        self._seen = [0] * len(tickets)         # the number of tokens that `take` has read, for each work
        self._ended = [False] * len(tickets)    # whether `take` has returned the last piece, for each work
        self.news = News()
        """Rings when `take` has pieces to return."""

    @property
    def new_tokens(self) -> int:
        """The number of new tokens that `take` has read."""
        return sum(self._seen)

    @property
    def ended(self) -> bool:
        """Whether `take` has returned all pieces."""
        return all(self._ended)

    @property
    def has_news(self) -> bool:
        """Whether `take` has pieces to return."""
        for ticket, seen, ended in zip(self._tickets, self._seen, self._ended, strict=True):
            if not ended and has_news([ticket.entry], seen):
                return True
        return False

    @property
    def all_computed(self) -> bool:
        """Whether every work is done; pieces may still wait for `take`, until `ended`."""
        return all(ticket.done for ticket in self._tickets)

    def take(self) -> list[tuple[int, Written]]:
        """Return the new pieces since the last call, each with the number of its answer.

        Raises the error of the request, once there are no pieces before it.
        """
        pieces = []
        self.news.answer()
        for i, ticket in enumerate(self._tickets):
            if self._ended[i]:
                continue
            done = ticket.done      # is read before the tokens, so that none comes after a True
            tokens = ticket.tokens(self._seen[i])
            self._seen[i] += len(tokens)
            first = self._firsts[i]
            for token in tokens:
                number = first + token.sample
                pieces.append((number, self._choices[number].add(token.id)))
            if done and (ticket.error is None or not pieces):
                self._ended[i] = True
                for number, result in enumerate(self._results(ticket), first):
                    pieces.append((number, self._choices[number].end(result)))
        return pieces

    def _results(self, ticket: DecoderTicket) -> list[Generated]:
        """Return the results of a work, or raise its error; a cancelled work raises that of the one that failed."""
        if isinstance(ticket.error, Cancelled):
            for other in self._tickets:
                if other.error is not None and not isinstance(other.error, Cancelled):
                    raise other.error
        results: list[Generated] = ticket.result()
        return results

    def cancel(self) -> None:
        """Cancel the works that are not done; their rows of the batch are free after the present step."""
        for ticket in self._tickets:
            ticket.cancel()
