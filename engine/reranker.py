"""`Reranker`: a language model that says how well documents answer a query, by the token that it would write next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .checks import flag, positive_int, positive_int_or_none
from .errors import InputError, UnsupportedError, shown
from .generation.last_logits import last_logits
from .generator import Generator
from .lazy import lazy
from .text import Tokenizer, check_sentences, progress

if TYPE_CHECKING:
    from .sequences import SequenceModel

TEMPLATE = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""What Qwen3-Reranker was trained to read."""
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
MAX_LENGTH = 8192
_PLACES = ("{instruction}", "{query}", "{document}")


class Reranker(Generator):
    """A language model such as Qwen3-Reranker, which answers "yes" or "no" to whether a document fits a query.

        reranker = Reranker.load("Qwen3-Reranker-0.6B")
        reranker.rank("Which cats purr?", ["Lions roar.", "Cheetahs purr."], top_k=1)

    The score of a pair is p(yes) / (p(yes) + p(no)) of the next token. It does not depend, to the last bit, on the
    other pairs of the call or on the number of threads. What all documents of a query begin with is computed once.
    """

    def __init__(self, model: SequenceModel, *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
                 answers: Sequence[str | int] = ("yes", "no"), max_length: int = MAX_LENGTH, **options: Any):
        """As `Generator`, for a language model with a tokenizer; the other arguments are those of `load`."""
        super().__init__(model, **options)
        if self.encoder_config is not None or self.text is None:
            raise UnsupportedError("a reranker is a language model with a tokenizer; this model has an encoder or "
                                   "lacks a tokenizer")
        self.template, self.instruction = _check_template(template), _check_text("instruction", instruction)
        longest = self._decoder.longest or self.max_tokens
        self.max_length = min(positive_int("max_length", max_length), self.max_tokens, longest)
        self.answers = self._answer_ids(answers)
        self._end = self._end_ids()

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
             answers: Sequence[str | int] | None = None, max_length: int = MAX_LENGTH, **options: Any) -> Reranker:
        """Load a reranker from what `Generator.load` reads; options are those of `Generator.load`.

        template: the text that the model reads, with the places {query} and {document} and perhaps {instruction}; the
            end behind {document} is always kept. The default is Qwen3-Reranker's. A chat template of the folder is
            not read, because it is a program.
        instruction: the default of the instruction, where the template has a place for it.
        answers: the token that means yes, and the one that means no, as texts or ids; of one token, its own logit is
            scored. None for those of the folder's module LogitScore, which sentence-transformers writes, or else
            ("yes", "no").
        max_length: the most tokens of a pair; the end of a longer document is cut off.
        """
        from .families.logit_score import read_logit_score  # here, because `import engine` shall stay light
        from .model import model_path
        from .sequences import load_sequence_model

        folder = model_path(path)
        if answers is None:
            answers = (read_logit_score(folder) if os.path.isdir(folder) else None) or ("yes", "no")
        own: dict[str, Any] = {"template": template, "instruction": instruction, "answers": answers,
                               "max_length": max_length}
        memory = options.pop("memory", "map")
        reranker = cls(load_sequence_model(path, memory=memory), **own, **options)
        again: Any = cls.load
        reranker._reload = partial(again, os.path.abspath(folder), **own, **options, memory=memory)
        return reranker

    def predict(self, pairs: Any, *, instruction: str | None = None, logits: bool = False,
                show_progress_bar: bool | None = None, timeout: float | None = None) -> Any:
        """Return the score of each pair (query, document), from 0 to 1: float32 [n]; a float for a single pair.

        instruction: what counts as an answer, in place of the model's. logits: return logit(yes) - logit(no) instead,
        whose logistic function is the score. show_progress_bar: None shows one when the logger "engine" is at level
        INFO or DEBUG. timeout: seconds after which the call raises `TimedOut`.
        """
        single = isinstance(pairs, (tuple, list)) and len(pairs) == 2 and all(isinstance(text, str) for text in pairs)
        checked = _check_pairs([tuple(pairs)] if single else pairs)
        instruction = self.instruction if instruction is None else _check_text("instruction", instruction)
        logits = flag("logits", logits)
        places: dict[str, list[int]] = {}
        for i, (query, _) in enumerate(checked):
            places.setdefault(query, []).append(i)
        scores = np.empty(len(checked), np.float32)
        with progress(len(checked), show_progress_bar) as advance:
            groups = [self._prompts(instruction, query, [checked[i][1] for i in own]) for query, own in places.items()]
            found = last_logits(self._stepper(), groups, self.answers, budget=self.budget, timeout=timeout,
                                advance=advance)  # fmt: skip
        for own, rows in zip(places.values(), found, strict=True):
            scores[own] = rows[:, 0] - (rows[:, 1] if len(self.answers) == 2 else np.float32(0))
        scores = scores if logits else _logistic(scores)
        return float(scores[0]) if single else scores

    def rank(self, query: str, documents: Any, *, top_k: int | None = None, return_documents: bool = False,
             **options: Any) -> list[dict[str, Any]]:
        """Return the documents by their scores for a query, the best first, as sentence-transformers' `rank` does.

        Each result has "corpus_id", the document's place, and "score"; with return_documents also "text". Equal scores
        keep the order of the documents. top_k: the most results to return. options: the other arguments of `predict`.
        """
        if isinstance(documents, str):
            raise InputError(f"documents must be a list of texts, not {shown(documents)}")
        top_k, texts = positive_int_or_none("top_k", top_k), check_sentences(documents)
        scores = self.predict([(query, text) for text in texts], **options)
        best = np.argsort(-scores, kind="stable")[:top_k].tolist()
        found: list[dict[str, Any]] = [{"corpus_id": i, "score": float(scores[i])} for i in best]
        if flag("return_documents", return_documents):
            found = [result | {"text": texts[result["corpus_id"]]} for result in found]
        return found

    def _prompts(self, instruction: str, query: str, documents: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the ids of the whole text for each document of a query."""
        before, after = (part.replace("{instruction}", instruction) for part in self.template[0].split("{query}"))
        found = self._start_tokenizer([f"{before}{query}{after}{document}" for document in documents])
        return [np.concatenate([ids.astype(np.int64), self._end]) for ids in found.input_ids]

    def _end_ids(self) -> NDArray[np.int64]:
        """Return the ids of what follows the document."""
        ids = self._tokenizer(self.text)([self.template[1]]).input_ids[0] if self.template[1] else np.zeros(0)
        if len(ids) >= self.max_length:
            raise InputError(f"max_length={self.max_length} leaves no room beside the {len(ids)} tokens of the end of "
                             "the template")
        return ids.astype(np.int64)

    @lazy
    def _start_tokenizer(self) -> Tokenizer:
        assert self.text is not None
        return Tokenizer(self.text, self.max_length - len(self._end), self.threads)

    def _answer_ids(self, answers: Any) -> tuple[int, ...]:
        if not isinstance(answers, (tuple, list)) or not 1 <= len(answers) <= 2:
            raise InputError(f"answers must be one or two tokens, as texts or ids, not {shown(answers)}")
        tokenizer = self._tokenizer(self.text)
        if extra := tokenizer([""]).input_ids[0].tolist():
            raise UnsupportedError(f"the tokenizer adds special tokens to each text, here {extra}, and a reranker "
                                   "needs one that adds none, as Qwen3's")
        ids: list[int] = []
        for answer in answers:
            found = tokenizer(check_sentences([answer])).input_ids[0].tolist() if isinstance(answer, str) else [answer]
            if len(found) != 1 or type(found[0]) is not int or not 0 <= found[0] < self.config.vocab_size:
                raise InputError(f"the answer {shown(answer)} must be one token of the model; it gives {shown(found)}")
            ids += found
        return tuple(ids)


def _check_template(template: Any) -> tuple[str, str]:
    """Return the template up to {document}, and what follows it; raises `InputError`."""
    counts = [template.count(place) for place in _PLACES] if isinstance(template, str) else []
    if not counts or counts[0] > 1 or counts[1:] != [1, 1] or any(
            template.index(place) > template.index(_PLACES[-1]) for place in _PLACES if place in template):
        raise InputError("template must be a text with {query} and {document} once each, perhaps {instruction} once, "
                         f"and {{document}} behind the others, not {shown(template)}")
    start, _, end = template.partition(_PLACES[-1])
    return start, end


def _check_pairs(pairs: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for pair in check_sentences([pairs] if isinstance(pairs, str) else pairs):
        if isinstance(pair, str):
            raise InputError(f"pairs must be pairs of a query and a document, not {shown(pair)}")
        found.append(pair)
    return found


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, not {shown(value)}")
    check_sentences([value])
    return value


def _logistic(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 1 / (1 + e^-x), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
