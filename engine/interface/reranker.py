"""`Reranker`: the class for users of models that score how well documents answer a query.

It is a cross-encoder, which has one logit for a pair of texts, or a language model, whose next token is "yes" or "no".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import positive_int, renamed_arguments, warn_caller
from ..base.errors import InputError, UnsupportedError, listed, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop
from ..generation.prepared import PreparedModel
from ..generation.step_queue import StepQueue
from ..heads.coverage import ranked
from ..heads.pairs import is_pair, pair_scores
from ..methods.method import Method
from ..methods.rerank import RERANKER_PREDICT, RERANKER_RANK, RerankerPredictOptions, RerankerRankOptions
from ..methods.run import run
from ..methods.table import RERANKING
from ..model.bits import FASTEST
from ..model.head import heads_in_words
from ..model.run_config import RunOptions
from ..queues.model_queue import ModelQueue
from ..text.cuts import Cuts, report_of_cuts, reporting
from ..text.sentences import check_text
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from ..uncertainty.probabilities import probabilities
from ..weights.head import tasks_of
from ..weights.modules import sigmoid
from .engine import Engine
from .head_methods import BY_SIMILARITY
from .loaded import Loaded
from .rerank_prompts import KNOWN, QWEN3, fill_in, prompt_of

if TYPE_CHECKING:
    from ..loading.source import Source
    from ..weights.model import Model

TEMPLATE = QWEN3
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
MAX_LENGTH = 8192


class Reranker(Loaded):
    """A cross-encoder such as bge-reranker, or a language model such as Qwen3-Reranker that answers "yes" or "no".

        reranker = Reranker.load("bge-reranker-v2-m3")
        reranker.rank("Which cats purr?", ["Lions roar.", "Cheetahs purr."], top_k=1)

    The score of a pair is a function of its logit, which the files of a cross-encoder state: usually the logistic one.
    The logit of a language model is logit(yes) - logit(no) of the next token, and its score p(yes) / (p(yes) + p(no)).
    It does not depend, to the last bit, on the other pairs of the call or on the number of threads. The common prefix
    of a query's prompts is computed once.
    """

    _own = (*Loaded._own, "max_length")
    _engine: Engine | None = None
    """The encoder of a cross-encoder; None for a language model."""

    @renamed_arguments
    def __init__(self, model: Model, *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
                 answers: Sequence[str | int] | None = None, max_length: int = MAX_LENGTH, backend: str = "auto",
                 threads: int | None = None, max_batch_tokens: int = 8192, precision: str | None = None,
                 max_rows: int = 64, keep_tokens: int | None = None, bits: str = FASTEST):
        """As `load`, for a cross-encoder or a language model with a tokenizer that is in memory already."""
        from ..weights.model import Model as Loadable  # here, because `import engine` shall stay light

        if isinstance(model, Loadable) and model.kind == "encode":
            is_default = {"template": template == TEMPLATE, "instruction": instruction == INSTRUCTION,
                          "answers": answers is None, "max_rows": max_rows == 64, "keep_tokens": keep_tokens is None}
            self._adopt_engine(model, is_default, max_length, backend=backend, threads=threads, precision=precision,
                               max_batch_tokens=max_batch_tokens, bits=bits)
            return
        self._adopt(PreparedModel(model, "Reranker", RunOptions(
            backend=backend, threads=threads, max_batch_tokens=max_batch_tokens, precision=precision, max_rows=max_rows,
            keep_tokens=keep_tokens, bits=bits)))
        self._decoder = self._model.decoder
        if self._model.encoder_config is not None or self.text is None:
            reason = "lacks a tokenizer" if self._model.encoder_config is None else "has an encoder"
            raise UnsupportedError(f"a reranker is a language model with a tokenizer, and this model {reason}")
        self.template, self.instruction = prompt_of(template), check_text("instruction", instruction)
        # The prompts of known models have their special tokens themselves.
        self._prompt_text = replace(self.text, special_tokens=False) if self.template.is_known else self.text
        longest = self._decoder.longest or self.max_batch_tokens
        self.max_length = min(positive_int("max_length", max_length), self.max_batch_tokens, longest)
        self.answers = self._answer_ids(self.template.answers if answers is None else answers)
        self._end = self._end_ids()

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, template: str = TEMPLATE, instruction: str = INSTRUCTION,
             answers: Sequence[str | int] | None = None, max_length: int = MAX_LENGTH, backend: str = "auto",
             threads: int | None = None, max_batch_tokens: int = 8192, precision: str | None = None,
             max_rows: int = 64, keep_tokens: int | None = None, bits: str = FASTEST, memory: str = "map",
             revision: str | None = None) -> Reranker:
        """Load a reranker from what `Engine.load` or `Generator.load` read; they explain the other options.

        The options template, instruction, answers, max_rows and keep_tokens are for language models alone.

        template: the prompt, with the placeholders {query} and {document} and perhaps {instruction}; truncation keeps
            the end after {document}. The default is Qwen3-Reranker's; "bge-reranker-v2-gemma" and "mxbai-rerank-v2" are
            those of these models, with their answers. The engine does not read a chat template of the folder, because
            it is a program.
        instruction: the default of the instruction, if the template has the placeholder.
        answers: the yes and no tokens, as texts or ids. If you give one token, its logit is the score. None reads the
            tokens of the folder's module LogitScore, which sentence-transformers writes, and takes those of the
            template if there is none, which are ("yes", "no") for a template of your own.
        max_length: the most tokens of a pair, below the model's own limit; the end of a longer document is cut off, and
            a cross-encoder cuts the longer text of a pair first.

        Raises the errors of `Engine.load` and `Generator.load`, and `UnsupportedError` for a model of another kind.
        """
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        source = open_source(path, memory, revision)
        if answers is None:
            answers = source.answers()
        options: dict[str, Any] = {
            "template": template, "instruction": instruction, "answers": answers, "max_length": max_length,
            "backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens, "precision": precision,
            "max_rows": max_rows, "keep_tokens": keep_tokens, "bits": bits}
        if _is_encoder(source):
            return cls._load_cross_encoder(source, options, memory)
        return cls._load(source, "rank", options, memory)

    @classmethod
    def _load_cross_encoder(cls, source: Source, options: dict[str, Any], memory: str) -> Reranker:
        """Return a reranker for files of an encoder; raises `UnsupportedError` if it scores no pairs of texts."""
        from ..loading.load import load_model  # here, because `import engine` shall stay light

        model = load_model(source, kind="encode")
        if model.encoder is None or model.routes:
            raise source.refuse_kind("rank", "encode")
        if "classify" not in tasks_of(model.encoder.heads):
            late = None if model.encoder.text is None else model.encoder.text.late
            has = heads_in_words([*(head.config for head in model.encoder.heads), *([] if late is None else [late])])
            raise UnsupportedError(f"{source.path}: the model is an encoder without a classifier of pairs, so it "
                                   f"cannot rank; load it with Engine. It {has}{BY_SIMILARITY if late else ''}")
        reranker = cls(model, **options)
        reranker.address = address, commit = source.address
        reranker._reload = partial(cls.load, address, **options, memory=memory, revision=commit)
        reranker._read_model = partial(load_model, address, kind="encode", memory=memory, revision=commit)
        return reranker

    def close(self) -> None:
        """Free the weights and the plans: see `Loaded.close`."""
        engine = self._engine
        super().close()
        if engine is not None:
            engine.close()

    @renamed_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one `.npz`, as `Loaded.save` does; the file does not hold the template and the answers."""
        if self._engine is None:
            warn_caller("an .npz does not say that its model is a reranker; load it with Reranker.load(path, answers="
                        f"{list(self.answers)}), and the template and the instruction that you use", UserWarning)
        super().save(path)

    def _adopt_engine(self, model: Model, is_default: dict[str, bool], max_length: int, **options: Any) -> None:
        """Set up a cross-encoder. is_default: whether each option of language models has its default."""
        if changed := [name for name, usual in is_default.items() if not usual]:
            raise InputError(f"a cross-encoder reads a query and a document as they are, and has no {listed(changed)}; "
                             "leave out what is for language models")
        if model.encoder is None or model.routes:
            raise UnsupportedError("a reranker has one encoder, and this model has routes: "
                                   f"{', '.join(model.routes)}; load it with Engine")
        text, limit = model.encoder.text, positive_int("max_length", max_length)
        if text is not None:
            limit = min(limit, text.max_seq_length or limit)
            model = replace(model, encoder=replace(model.encoder, text=replace(text, max_seq_length=limit)))
        engine = Engine(model, **options)
        head = engine.heads.get("classify")
        if text is None or head is None or head.outputs != 1:
            reason = NO_TOKENIZER if text is None else "this model has " + (
                f"{head.outputs} labels; Engine.predict gives the scores of all" if head else "no classifier")
            raise UnsupportedError(f"a reranker needs a tokenizer and one label for a pair of texts, and {reason}")
        self._engine, self._configs = engine, [engine.config]
        self.config, self.text = engine.config, engine.text
        self.backend, self.threads, self.precision = engine.backend, engine.threads, engine.precision
        self.max_batch_tokens, self.max_length, self.bits = engine.max_batch_tokens, limit, engine.bits
        self._calibrations = engine.calibrations

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer: encode, decode and special_tokens."""
        return self._model.tokenizer(self.text) if self._engine is None else self._engine.tokenizer

    @renamed_arguments
    def predict(self, pairs: Any, *, instruction: str | None = None, logits: bool = False,
                show_progress_bar: bool | None = None, truncation: bool | None = None, timeout: float | None = None,
                cache_key: str = "") -> Any:
        """Return the score of each pair (query, document): float32 [n]; a float for a single pair.

        instruction: what counts as an answer, in place of the model's, for a language model.
        logits: return the logits instead, of which the scores are a function.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG and standard error is a
            terminal.
        timeout: seconds after which the call raises `TimedOut`.
        truncation: what becomes of a pair with more than `max_length` tokens, as in `Engine.encode`.
        cache_key: as in `Generator.generate`, for a language model.
        The scores of a calibrated model are the probabilities that documents are relevant.
        """
        options = RerankerPredictOptions(instruction=instruction, logits=logits, cache_key=cache_key)
        scores = run(RERANKER_PREDICT, self, pairs, options, show_progress_bar=show_progress_bar,
                     truncation=truncation, timeout=timeout)
        return float(scores) if is_pair(pairs) else scores

    @renamed_arguments
    def rank(self, query: str, documents: Any, *, top_k: int | None = None, return_documents: bool = False,
             coverage: float | None = None, instruction: str | None = None, logits: bool = False,
             show_progress_bar: bool | None = None, truncation: bool | None = None, timeout: float | None = None,
             cache_key: str = "") -> list[dict[str, Any]]:
        """Return the documents by their scores for a query, the best first, as sentence-transformers' `rank` does.

        Each result has "corpus_id", the document's place, and "score"; with return_documents also "text". Documents are
        ordered by their logits, and equal logits keep the order of the documents.

        top_k: the most results to return.
        return_documents: whether each result has the text of its document.
        coverage: for a model that is calibrated on labelled queries, return the best documents alone, as few as hold a
            relevant one so often, such as 0.9, for queries with one. A calibrated model's results have "margin" and
            "entropy" of the probabilities that a document is relevant, and that it is not.
        instruction, show_progress_bar, truncation, timeout, cache_key: as in `predict`.
        logits: whether the score of a result is its logit.
        """
        options = RerankerRankOptions(top_k=top_k, return_documents=return_documents, coverage=coverage,
                                      instruction=instruction, logits=logits, cache_key=cache_key)
        ranks: list[dict[str, Any]] = run(RERANKER_RANK, self, (query, documents), options, truncation=truncation,
                                          show_progress_bar=show_progress_bar, timeout=timeout)
        return ranks

    def prompts(self, pairs: Sequence[tuple[str, str]], instruction: Any = None, stop: Stop = NEVER
                ) -> list[NDArray[np.int64]]:
        """Return the ids of the prompt of each pair (query, document) for a language model; raises `InputError`.

        instruction: None for the instruction of this object.
        """
        instruction = self.instruction if instruction is None else check_text("instruction", instruction)
        prompts: list[NDArray[np.int64]] = []
        for query, group in groupby(pairs, key=itemgetter(0)):      # the common prefix of a query is tokenized once
            stop.check()
            prompts += self._prompts(instruction, query, [document for _, document in group], stop)
        return prompts

    def ranks_of(self, logits: NDArray[np.float32], texts: Sequence[str] | None, top_k: int | None,
                 limit: np.float32 | None = None, *, as_logits: bool = False) -> list[dict[str, Any]]:
        """Return the results of `rank` for documents with these logits, [n].

        texts: of the documents, to be in the results; None to leave them out. limit: of `limit_of_rank`.
        """
        scores = logits if as_logits else self.scores_of(logits)
        return ranked(logits, scores, texts, top_k, limit, self._probabilities(logits))

    @property
    def methods(self) -> dict[str, Method[Any]]:
        """The methods of this model by their names."""
        return dict(RERANKING)

    @property
    def queue(self) -> ModelQueue | StepQueue:
        """The queue that computes the calls of all threads: a `StepQueue` for a language model."""
        return self._model.queue if self._engine is None else self._engine.queue

    @property
    def cross_encoder(self) -> Engine | None:
        """The encoder of a cross-encoder; None for a language model."""
        return self._engine

    def scores_of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of logits, float32 [n] both: calibrated probabilities, or the model's own function."""
        calibrated = self._probabilities(logits)
        if calibrated is not None:
            return calibrated[:, 1].astype(np.float32)
        if self._engine is not None:
            return pair_scores(self._engine.runner_of("classify"), logits[:, None])
        return sigmoid(logits)

    def _probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float64] | None:
        """Return the calibrated probabilities of "no" and "yes" of each pair, [n, 2]; None without a calibration."""
        rank = self._calibrations.get("rank")
        return None if rank is None else probabilities(logits[:, None], rank.temperature, rank.bias)

    @property
    def _calibrated_outputs(self) -> dict[str, int]:
        return {"rank": 1}

    def _prompts(self, instruction: str, query: str, documents: Sequence[str], stop: Stop) -> list[NDArray[np.int64]]:
        """Return the ids of the prompt for each document of a query: prefix, document, end of the template."""
        # The prefix is the same for all documents; `start` is tokenized with the document that follows it.
        *before, start = fill_in(self.template.pieces[: self.template.place + 1], instruction, query)
        prefix = self._ids_of(before, stop)
        texts = [f"{start}{document}" for document in documents]
        # With a prefix, a document keeps fewer tokens than this tokenizer leaves, so cuts are reported only below.
        with reporting(Cuts(truncation=True)) if len(prefix) else nullcontext():
            starts = self._start_tokenizer(texts, stop).input_ids
        limit = self.max_length - len(self._end) - len(prefix)
        # A query can fill max_length alone only if some prompt reaches the limit; empty documents lose nothing by that.
        if max(map(len, starts)) >= limit and any(documents):
            length = len(self._ids_of([start], stop))
            if length >= limit:
                raise InputError(f"the query {shown(query)} fills max_length: with the template it has "
                                 f"{length + len(prefix) + len(self._end):,} tokens, and max_length={self.max_length} "
                                 "leaves none for a document; shorten the query, or load the model with a larger "
                                 "max_length")
        if len(prefix) and (cuts := report_of_cuts()) is not None:
            cuts.add(texts, [len(ids) > limit for ids in starts], limit, self._start_tokenizer.count)
        return [np.concatenate([prefix, ids[:limit].astype(np.int64), self._end]) for ids in starts]

    def _ids_of(self, pieces: Sequence[str], stop: Stop = NEVER) -> NDArray[np.int64]:
        """Return the joined ids of pieces, each tokenized apart. Cuts in these texts of ours are not reported."""
        with reporting(Cuts(truncation=True)):
            parts = self._model.tokenizer(self._prompt_text)(list(pieces), stop).input_ids if pieces else []
        return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)

    def _end_ids(self) -> NDArray[np.int64]:
        """Return the ids of the end of the template, after the document."""
        ids = self._ids_of(self.template.pieces[self.template.place + 1 :])
        if len(ids) >= self.max_length:
            raise InputError(f"max_length={self.max_length} leaves no room beside the {len(ids)} tokens of the end of "
                             "the template")
        return ids

    @lazy
    def _start_tokenizer(self) -> Tokenizer:
        """The tokenizer of the piece with the document; its limit leaves room for the end of the template."""
        assert self._prompt_text is not None
        return Tokenizer(self._prompt_text, self.max_length - len(self._end), self.threads)

    def _answer_ids(self, answers: Any) -> tuple[int, ...]:
        """Return the ids of one or two answers, texts or ids; raises `InputError` unless each is one token."""
        if not isinstance(answers, (tuple, list)) or not 1 <= len(answers) <= 2:
            raise InputError(f"answers must be one or two tokens, as texts or ids, not {shown(answers)}")
        tokenizer = self._model.tokenizer(self._prompt_text)
        if extra := tokenizer([""]).input_ids[0].tolist():
            raise UnsupportedError(f"the tokenizer adds special tokens to each text, here {extra}, and a reranker "
                                   "needs one that adds none, as Qwen3's, or the template of a known model: "
                                   f"{', '.join(KNOWN)}")
        ids: list[int] = []
        for answer in answers:
            text = check_text("an answer", answer) if isinstance(answer, str) else None
            tokens = [answer] if text is None else tokenizer([text]).input_ids[0].tolist()
            if len(tokens) != 1 or type(tokens[0]) is not int or not 0 <= tokens[0] < self.config.vocab_size:
                raise InputError(f"the answer {shown(answer)} must be one token of the model; it gives {shown(tokens)}")
            ids += tokens
        return tuple(ids)


def _is_encoder(source: Source) -> bool:
    """Return whether the files of a model are of an encoder; files that fit two kinds count as a language model."""
    try:
        return source.kind == "encode"
    except InputError:
        return False
