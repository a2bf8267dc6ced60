"""`Reranker`: a language model that scores how well documents answer a query, by the probability of its next token."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import flag, positive_int, positive_int_or_none, renamed_arguments
from ..base.errors import InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..base.progress import progress
from ..base.stop import Stop
from ..generation.scoring import last_logits
from ..text.sentences import check_sentences
from ..text.tokenizer import Tokenizer
from .loaded import Loaded
from .prepared import PreparedModel

if TYPE_CHECKING:
    from ..weights.model import Model

TEMPLATE = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""The template that Qwen3-Reranker was trained with."""
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
MAX_LENGTH = 8192
_PLACES = ("{instruction}", "{query}", "{document}")


class Reranker(Loaded):
    """A language model such as Qwen3-Reranker, which answers "yes" or "no" to whether a document fits a query.

        reranker = Reranker.load("Qwen3-Reranker-0.6B")
        reranker.rank("Which cats purr?", ["Lions roar.", "Cheetahs purr."], top_k=1)

    The score of a pair is p(yes) / (p(yes) + p(no)) of the next token. It does not depend, to the last bit, on the
    other pairs of the call or on the number of threads. The common prefix of a query's prompts is computed once.
    """

    @renamed_arguments
    def __init__(self, model: Model, *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
                 answers: Sequence[str | int] = ("yes", "no"), max_length: int = MAX_LENGTH, backend: str = "auto",
                 threads: int | None = None, max_batch_tokens: int = 8192, precision: str | None = None,
                 max_rows: int = 64):
        """As `load`, for a language model with a tokenizer that is in memory already."""
        self._adopt(PreparedModel(model, "Reranker", backend=backend, threads=threads, precision=precision,
                                  max_batch_tokens=max_batch_tokens, max_rows=max_rows))
        self._decoder = self._model.decoder
        if self._model.encoder_config is not None or self.text is None:
            found = "lacks a tokenizer" if self._model.encoder_config is None else "has an encoder"
            raise UnsupportedError(f"a reranker is a language model with a tokenizer, and this model {found}")
        self.template, self.instruction = _check_template(template), _check_text("instruction", instruction)
        longest = self._decoder.longest or self.max_batch_tokens
        self.max_length = min(positive_int("max_length", max_length), self.max_batch_tokens, longest)
        self.answers = self._answer_ids(answers)
        self._end = self._end_ids()

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
             answers: Sequence[str | int] | None = None, max_length: int = MAX_LENGTH, backend: str = "auto",
             threads: int | None = None, max_batch_tokens: int = 8192, precision: str | None = None,
             max_rows: int = 64, memory: str = "map") -> Reranker:
        """Load a reranker from any path that `Generator.load` reads; the other options are those of `Generator.load`.

        template: the prompt, with the placeholders {query} and {document} and perhaps {instruction}; truncation keeps
            the end after {document}. The default is Qwen3-Reranker's. The engine does not read a chat template of the
            folder, because it is a program.
        instruction: the default of the instruction, if the template has the placeholder.
        answers: the yes and no tokens, as texts or ids. If you give one token, its logit is the score. None reads the
            tokens of the folder's module LogitScore, which sentence-transformers writes, and takes ("yes", "no") if
            there is none.
        max_length: the most tokens of a pair; the end of a longer document is cut off.
        """
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        source = open_source(path, memory)
        if answers is None:
            answers = source.answers() or ("yes", "no")
        options: dict[str, Any] = {
            "template": template, "instruction": instruction, "answers": answers,
            "max_length": max_length, "backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
            "precision": precision, "max_rows": max_rows}  # fmt: skip
        return cls._load(source, "rank", options, memory)

    @renamed_arguments
    def predict(self, pairs: Any, *, instruction: str | None = None, logits: bool = False,
                show_progress_bar: bool | None = None, timeout: float | None = None) -> Any:
        """Return the score of each pair (query, document), from 0 to 1: float32 [n]; a float for a single pair.

        instruction: what counts as an answer, in place of the model's. logits: return logit(yes) - logit(no) instead,
        whose logistic function is the score. show_progress_bar: None shows one when the logger "engine" is at level
        INFO or DEBUG and standard error is a terminal. timeout: seconds after which the call raises `TimedOut`.
        """
        stop = Stop.after(timeout)
        single = isinstance(pairs, (tuple, list)) and len(pairs) == 2 and all(isinstance(text, str) for text in pairs)
        checked = _check_pairs([tuple(pairs)] if single else pairs)
        instruction = self.instruction if instruction is None else _check_text("instruction", instruction)
        logits = flag("logits", logits)
        places: dict[str, list[int]] = {}
        for i, (query, _) in enumerate(checked):
            places.setdefault(query, []).append(i)
        scores = np.empty(len(checked), np.float32)
        with progress(len(checked), show_progress_bar) as advance:
            groups = []
            for query, own in places.items():
                stop.check()
                groups.append(self._prompts(instruction, query, [checked[i][1] for i in own]))
            found = last_logits(self._model.stepper(stop), groups, self.answers, budget=self._model.budget, stop=stop,
                                advance=advance)  # fmt: skip
        for own, rows in zip(places.values(), found, strict=True):
            scores[own] = rows[:, 0] - (rows[:, 1] if len(self.answers) == 2 else np.float32(0))
        scores = scores if logits else _logistic(scores)
        return float(scores[0]) if single else scores

    @renamed_arguments
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
        """Return the ids of the prompt for each document of a query."""
        before, after = (part.replace("{instruction}", instruction) for part in self.template[0].split("{query}"))
        found = self._start_tokenizer([f"{before}{query}{after}{document}" for document in documents])
        return [np.concatenate([ids.astype(np.int64), self._end]) for ids in found.input_ids]

    def _end_ids(self) -> NDArray[np.int64]:
        """Return the ids of the end of the template, after the document."""
        ids = self._model.tokenizer(self.text)([self.template[1]]).input_ids[0] if self.template[1] else np.zeros(0)
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
        tokenizer = self._model.tokenizer(self.text)
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
    """Return the template before {document} and after it; raises `InputError`."""
    counts = [template.count(place) for place in _PLACES] if isinstance(template, str) else []
    if not counts or counts[0] > 1 or counts[1:] != [1, 1] or any(
            template.index(place) > template.index(_PLACES[-1]) for place in _PLACES if place in template):
        raise InputError("template must be a text with {query} and {document} once each, perhaps {instruction} once, "
                         f"and {{document}} after the others, not {shown(template)}")
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
