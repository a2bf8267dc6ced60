"""`HeadMethods`: the methods of an `Engine` that need a head after the encoder, such as `classify` and `rank`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.arguments import renamed_arguments
from ..base.errors import UnsupportedError
from ..base.lazy import lazy
from ..heads.coverage import FALSE_ALARM_RATE
from ..heads.runner import HeadRunner
from ..heads.sparse import SparseVectors
from ..methods.answer import ANSWER, AnswerOptions
from ..methods.classify import CLASSIFY, ClassifyOptions
from ..methods.encode_sparse import ENCODE_SPARSE, EncodeSparseOptions
from ..methods.encode_tokens import ENCODE_TOKENS, EncodeTokensOptions
from ..methods.fill_mask import FILL_MASK, FillMaskOptions
from ..methods.method import Method
from ..methods.pairs import PREDICT, RANK, PredictOptions, RankOptions
from ..methods.run import run
from ..methods.table import methods_of
from ..methods.tag import TAG, TagOptions
from ..model.head import heads_in_words
from ..weights.calibration import outputs_of
from .engine_base import EngineBase, on_route


class HeadMethods(EngineBase):
    """The part of `Engine` that runs heads; a method raises `UnsupportedError` if the model lacks its head."""

    _made_with_calibrations = ("_runners_of_heads",)

    @renamed_arguments
    def classify(self, texts: Any, *, top_k: int | None = 1, function_to_apply: str | None = None,
                 candidate_labels: Sequence[str] | str | None = None, hypothesis_template: str | None = None,
                 multi_label: bool = False, coverage: float | None = None, conformal_score: str = "lac",
                 by_class: bool = False, false_alarm_rate: float | None = FALSE_ALARM_RATE,
                 batch_size: int | None = None, show_progress_bar: bool | None = None, truncation: bool | None = None,
                 timeout: float | None = None) -> Any:
        """Return the labels of texts or images, as the classification pipelines of transformers give them.

        With candidate_labels, they are labels of your own, as its zero-shot classification pipelines give them. The
        model is then a classifier of natural language inference, which has a label "entailment", and for images one
        that compares images with texts, such as CLIP.

        texts: a string, or a collection of n strings; a pair of strings in a collection is one input. For a model of
            images: a path, bytes, an image of Pillow, uint8 [H,W], [H,W,3] or [H,W,4], or a collection of n of them.
        top_k: how many labels to return for each text; None for all.
        function_to_apply: "softmax", "sigmoid" or "none"; None for the model's: softmax, or sigmoid for one label and
            for a model whose problem_type has several labels at once, or none for a regression.
        candidate_labels: labels of your own to choose from, such as ["sports", "politics"]; a string is split at its
            commas. None for the labels of the model.
        hypothesis_template: what the model is asked about each label, which stands in place of {}; None for "This
            example is {}.", and for images "This is a photo of {}."
        multi_label: whether several labels of a text may be right, so that each has a probability of its own.
            Otherwise the probabilities of all labels of a text sum to 1. Of images, the model decides: each label has
            its own with SigLIP, and with CLIP they sum to 1, so that True is an error.
        coverage: for a calibrated model, how often the set of labels of a text shall hold the right one, such as 0.9.
        conformal_score: "lac" for the smallest sets, or "aps" for larger ones where a text is hard.
        by_class: whether the coverage shall hold for the texts of each class.
        false_alarm_rate: with a coverage, how often a call may warn that its texts look unlike those of the
            calibration although they do not; None for no warning.
        batch_size, show_progress_bar, truncation, timeout: as in `encode`.

        Returns a list of n dictionaries with "label" and "score", or for another top_k than 1 of n lists of them, the
        best first. A single string gives its result alone. The scores of a calibrated model are calibrated unless
        function_to_apply is given, and each result has "margin", the largest probability minus the second largest, and
        "entropy" in nats. With a coverage it also has "labels", the set, which may be empty; the set of a text does not
        depend on the other texts. No calibration applies to candidate_labels, and each result of a calibrated model
        then has "calibrated", which is False.
        Raises `InputError`, and `UnsupportedError` for a model without a classifier, candidate_labels without a label
        "entailment" of the model, or a coverage without calibration.
        """
        options = ClassifyOptions(top_k=top_k, function_to_apply=function_to_apply, candidate_labels=candidate_labels,
                                  hypothesis_template=hypothesis_template, multi_label=multi_label, coverage=coverage,
                                  conformal_score=conformal_score, by_class=by_class,
                                  false_alarm_rate=false_alarm_rate)
        return run(CLASSIFY, self, texts, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @renamed_arguments
    def predict(self, pairs: Any, *, prompt_name: str | None = None, prompt: str | None = None, logits: bool = False,
                activation_fn: Any = None, apply_softmax: bool = False, batch_size: int | None = None,
                show_progress_bar: bool | None = None, truncation: bool | None = None, timeout: float | None = None
                ) -> Any:
        """Return the scores of pairs of texts, such as a query and a document, as `CrossEncoder.predict` does.

        pairs: a pair of strings, or a collection of n pairs. The longer text of a pair is truncated first.
        prompt_name, prompt: a prompt of the model, or a text, to put in front of the first text of each pair.
        logits: return what the model computes, before any function.
        activation_fn: "identity", "sigmoid", "tanh", "relu", "gelu" or "silu", or an object of such a class of
            torch.nn; None for the model's: the one that its files state, or else sigmoid for one label. A calibrated
            model gives calibrated probabilities for None: with one label, or with apply_softmax.
        apply_softmax: turn the scores of several labels into probabilities.
        batch_size, show_progress_bar, truncation, timeout: as in `encode`.

        Returns float32 [n], or [n, labels] of a model with several labels; without the first axis for a single pair.
        Raises `InputError`, and `UnsupportedError` for a model without a classifier.
        """
        options = PredictOptions(prompt_name=prompt_name, prompt=prompt, logits=logits, activation_fn=activation_fn,
                                 apply_softmax=apply_softmax)
        return run(PREDICT, self, pairs, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @renamed_arguments
    def rank(self, query: str, documents: Any, *, top_k: int | None = None, return_documents: bool = False,
             coverage: float | None = None, prompt_name: str | None = None, prompt: str | None = None,
             activation_fn: Any = None, batch_size: int | None = None, show_progress_bar: bool | None = None,
             truncation: bool | None = None, timeout: float | None = None) -> list[dict[str, Any]]:
        """Return the documents by their scores for a query, the best first, as `CrossEncoder.rank` does.

        Each result has "corpus_id", the document's place, and "score"; with return_documents also "text". Documents are
        ordered by the logits, which differ where scores are rounded to one number; equal logits keep the order of the
        documents. The other arguments are those of `predict`.

        top_k: the most results to return.
        return_documents: whether each result has the text of its document.
        coverage: for a model that is calibrated on labelled queries, return the best documents alone, as few as hold a
            relevant one so often, such as 0.9, for queries with one. A calibrated model's results have "margin" and
            "entropy" of the probabilities that a document is relevant, and that it is not, unless activation_fn is
            given.

        Raises `InputError`, and `UnsupportedError` for a model without a classifier, or with several labels.
        """
        options = RankOptions(top_k=top_k, return_documents=return_documents, coverage=coverage,
                              prompt_name=prompt_name, prompt=prompt, activation_fn=activation_fn)
        ranks: list[dict[str, Any]] = run(
            RANK, self, (query, documents), options, batch_size=batch_size, show_progress_bar=show_progress_bar,
            truncation=truncation, timeout=timeout)
        return ranks

    @renamed_arguments
    def tag(self, texts: Any, *, aggregation_strategy: str = "none", ignore_labels: Sequence[str] = ("O",),
            stride: int | None = None, words: str = "spaces", is_split_into_words: bool = False,
            batch_size: int | None = None, show_progress_bar: bool | None = None, truncation: bool | None = None,
            timeout: float | None = None) -> Any:
        """Return the tags of tokens, or the entities that they make, as the pipeline of transformers does.

        texts: a string, or a collection of n strings; with is_split_into_words a list of words, or n lists of words.
        aggregation_strategy: "none" for one result a token, "simple" to join adjacent tokens of one tag, or "first",
            "average" or "max", which first give each word one tag: that of its first token, of the mean of its tokens'
            probabilities, or of its surest token.
        ignore_labels: the labels to leave out.
        stride: read a long text in windows that overlap by this many tokens; None truncates it to `max_seq_length`.
        is_split_into_words: whether each text is a list of words.
        words: how to tell the tokens of one word: "spaces" as the pipeline does, or "tokenizer" by the tokenizer's own
            words, which is right for tokenizers whose tokens hold the space before a word, such as DeBERTa's.
        batch_size, show_progress_bar, truncation, timeout: as in `encode`.

        Returns for each text a list of dictionaries with "entity" ("entity_group" with a strategy), "score", "word",
        "start" and "end", which count characters of the text, and without a strategy "index", the token's place. Words
        of is_split_into_words count as joined by spaces. Raises `InputError`, and `UnsupportedError` for a model
        without tags.
        """
        options = TagOptions(aggregation_strategy=aggregation_strategy, ignore_labels=ignore_labels, stride=stride,
                             words=words, is_split_into_words=is_split_into_words)
        return run(TAG, self, texts, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @renamed_arguments
    def answer(self, question: Any, context: Any = None, *, top_k: int = 1, max_answer_len: int = 15,
               handle_impossible_answer: bool = False, align_to_words: bool = True, max_seq_len: int = 384,
               doc_stride: int | None = None, coverage: float | None = None, batch_size: int | None = None,
               show_progress_bar: bool | None = None, timeout: float | None = None) -> Any:
        """Return the parts of texts that answer questions, as the pipeline of transformers 4 did.

        question, context: a question and the text to read, or lists of both; a single one of either stands beside each
            of the other's list. Or one dictionary with "question" and "context", or a list of them, without a context.
        top_k: how many answers to return for each text.
        max_answer_len: the most tokens of an answer.
        handle_impossible_answer: whether "", no answer, is among the answers.
        align_to_words: whether an answer consists of whole words, by the tokenizer's own words.
        max_seq_len: the most tokens of the question and a part of the text together; a longer text is read in windows.
        doc_stride: the tokens by which the windows of a text overlap; None for 128, or for half of the window if that
            is less.
        coverage: such as 0.9, for a model that is calibrated on questions. For each text there is a set of answers,
            which holds the right one for this share of all questions. If it has one answer, that is given; otherwise
            the model abstains. So at most a share of 1 - coverage of all questions is answered wrongly. Leave out
            top_k, max_answer_len, handle_impossible_answer, align_to_words, max_seq_len and doc_stride then.
        batch_size, show_progress_bar, timeout: as in `encode`.

        Returns for each text a dictionary with "score", "start" and "end", which count characters of the text, and
        "answer"; for another top_k than 1 a list of them, the best first. The scores of equal answers are added up. A
        text without an answer gives "" with score 0. With a coverage, "answer", "start" and "end" are None where the
        model abstains, and there are "abstains", the set as "answers", the "margin" between the two best scores, and
        the "entropy" of all of them, scaled to a sum of 1. Raises `InputError`, and `UnsupportedError` for a model
        without answers, or a coverage without calibration.
        """
        options = AnswerOptions(top_k=top_k, max_answer_len=max_answer_len,
                                handle_impossible_answer=handle_impossible_answer, align_to_words=align_to_words,
                                max_seq_len=max_seq_len, doc_stride=doc_stride, coverage=coverage)
        return run(ANSWER, self, (question, context), options, batch_size=batch_size,
                   show_progress_bar=show_progress_bar, timeout=timeout)

    @renamed_arguments
    def fill_mask(self, texts: Any, *, top_k: int = 5, targets: Any = None, batch_size: int | None = None,
                  show_progress_bar: bool | None = None, truncation: bool | None = None, timeout: float | None = None
                  ) -> Any:
        """Return the words that fit the mask of texts, as the pipeline of transformers does.

        texts: a string, or a collection of n strings, each with the mask of the model's tokenizer, such as "[MASK]".
        top_k: how many words to return for each mask.
        targets: the words to choose from; None for the whole vocabulary. The first token stands for a word of several.
        batch_size, show_progress_bar, truncation, timeout: as in `encode`.

        Returns for each text a list of dictionaries with "score", "token", "token_str" and "sequence", the text with
        the word in place, the best first; for a text with several masks a list of such lists. Raises `InputError` for a
        text without a mask, and `UnsupportedError` for a model without words.
        """
        options = FillMaskOptions(top_k=top_k, targets=targets)
        return run(FILL_MASK, self, texts, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @renamed_arguments
    @on_route
    def encode_sparse(self, sentences: Any, *, prompt_name: str | None = None, prompt: str | None = None,
                      max_active_dims: int | None = None, batch_size: int | None = None,
                      show_progress_bar: bool | None = None, task: str | None = None, truncation: bool | None = None,
                      timeout: float | None = None) -> SparseVectors:
        """Return sparse vectors over the vocabulary, as `SparseEncoder.encode` of a SPLADE model does.

        For BGE-M3 they are the lexical weights of FlagEmbedding.

        sentences: a string, or a collection of n strings; a pair of strings in a collection is one input.
        prompt_name, prompt: the name of a prompt of the model, or a text, to put in front of every sentence.
        max_active_dims: how many words to keep for each text, those with the largest numbers; None for the model's
            limit, which most models lack.
        batch_size, show_progress_bar, task, truncation, timeout: as in `encode`.

        Returns `SparseVectors` of n rows, one for a single string: indices, values and indptr, as scipy.sparse has
        them, and `decode` for the words. Raises `InputError`, and `UnsupportedError` for a model without words.
        """
        options = EncodeSparseOptions(prompt_name=prompt_name, prompt=prompt, max_active_dims=max_active_dims)
        vectors: SparseVectors = run(
            ENCODE_SPARSE, self, sentences, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
            truncation=truncation, timeout=timeout)
        return vectors

    @renamed_arguments
    def encode_tokens(self, sentences: Any, *, task: str | None = "document", prompt_name: str | None = None,
                      prompt: str | None = None, normalize_embeddings: bool = False, batch_size: int | None = None,
                      show_progress_bar: bool | None = None, truncation: bool | None = None,
                      timeout: float | None = None) -> Any:
        """Return a vector for each token of a text, for late interaction, as `MultiVectorEncoder.encode` does.

        For BGE-M3 they are the ColBERT vectors of FlagEmbedding, and the task chooses nothing but a prompt.

        sentences: a string, or a collection of n strings; a pair of strings in a collection is one input.
        task: "query" or "document", which differ in their prompt, their limit on tokens, whether they are filled up
            with [MASK], and which tokens are left out. `encode_query` and `encode_document` choose it. None: the
            model's default prompt and its own limit; otherwise as a document.
        prompt_name, prompt: the name of a prompt of the model, or a text, to put in front of every sentence in place of
            the prompt of the task.
        normalize_embeddings: scale each vector to length 1, even when the model does not.
        batch_size, show_progress_bar, truncation, timeout: as in `encode`.

        Returns a list of n arrays, float32 [T_i, D'], or one array for a single string; `similarity` compares them.
        D' is the width of these vectors, and T_i counts the tokens that are not left out.
        Raises `InputError`, and `UnsupportedError` for a model with one vector for each text.
        """
        options = EncodeTokensOptions(task=task, prompt_name=prompt_name, prompt=prompt,
                                      normalize_embeddings=normalize_embeddings)
        return run(ENCODE_TOKENS, self, sentences, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @property
    def methods(self) -> dict[str, Method[Any]]:
        """The methods that this model can run, by their names, such as "encode"."""
        return methods_of(self)

    def runner_of(self, task: str, use: str = "") -> HeadRunner:
        """Return the runner of a task's head; raises `UnsupportedError` for a model without it.

        use: a verb for what the caller wants to do, for the message; "" for the task's own.
        """
        if task not in self._runners_of_heads:
            late = self._late is not None
            raise UnsupportedError(f"this model has no head to {use or _VERBS.get(task, task)}; it "
                                   f"{heads_in_words(self.heads.values())}"
                                   f"{BY_SIMILARITY if use == 'rank' and (late or not self.heads) else ''}")
        return self._runners_of_heads[task]

    @property
    def sparse_runner(self) -> HeadRunner:
        """The runner for `encode_sparse`: of its own head, or of `fill_mask`, whose logits become sparse vectors.

        Raises `UnsupportedError` for a model with neither.
        """
        return self.runner_of("encode_sparse" if "encode_sparse" in self.heads else "fill_mask", "encode sparsely")

    @property
    def _calibrated_outputs(self) -> dict[str, int]:
        return outputs_of([head.config for head in self._heads])

    @lazy
    def _runners_of_heads(self) -> dict[str, HeadRunner]:
        """The runner of each head by its task; a classifier with one output has the calibration of "rank"."""
        if not self._heads:
            return {}
        runners = {}
        for head in self._heads:
            is_ranker = head.config.task == "classify" and head.config.outputs == 1
            calibration = self._calibrations.get("rank" if is_ranker else head.config.task)
            runners[head.config.task] = HeadRunner(head, self._head_encoder, self._ops, lambda: self._word_table,
                                                   calibration)
        return runners


_VERBS = {"fill_mask": "fill masks", "encode_sparse": "encode sparsely"}
"""Verbs for tasks in messages, where the name of the task is none."""
BY_SIMILARITY = ("; similarity(encode_query(query), encode_document(documents)) compares a query with documents, and "
                 "np.argsort sorts them")
"""The advice for a user who wants to rank with a model that has no head for it."""
