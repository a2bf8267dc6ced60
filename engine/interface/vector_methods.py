"""`VectorMethods`: the methods of an `Engine` that turn token ids and texts into vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import ObservingPlan
from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, UnsupportedError, shown
from ..base.stop import Stop
from ..encoding.outputs import WantedOutputs, read_asked
from ..encoding.packing import pack
from ..encoding.text_encoder import check_options
from ..methods.encode import ENCODE, EncodeOptions
from ..methods.method import with_role_prompt
from ..methods.run import encode_stream, run
from ..text.cuts import truncating
from ..text.sentences import check_sentences, read_sentences
from ..weights.input_layers import embed
from .engine_base import on_route
from .head_methods import HeadMethods
from .look import Look, make_look


class VectorMethods(HeadMethods):
    """The part of `Engine` that every encoder has: vectors of tokens, and vectors of texts or images."""

    @renamed_arguments
    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None,
                position_ids: Any = None, *, inputs_embeds: Any = None, pixel_values: Any = None,
                input_features: Any = None, input_values: Any = None, output_hidden_states: Any = None,
                output_attentions: Any = None, output_entropies: Any = None, timeout: float | None = None) -> Any:
        """Return the vectors of all tokens after the last layer.

        Arrays give an array. B sequences, T tokens, D model width:
            input_ids       integers [B,T]
            attention_mask  0/1 or bool [B,T], 1 for a real token, in any pattern; None when all are real
            token_type_ids  integers [B,T]; None for zeros
            position_ids    integers [B,T]; None to count as the model's family does
            inputs_embeds   floats [B,T,D], instead of input_ids: word embeddings, as wide as the rows of the word table
            pixel_values    floats [B,C,H,W], instead of input_ids, for a model of images: pixels that the model's image
                            processor resized and normalised
            input_features  floats [B,C,T], instead of input_ids, for Whisper: log-mel spectrograms of C frequencies
            input_values    floats [B,n], instead of input_ids, for wav2vec 2.0 and HuBERT: samples at 16 kHz, scaled as
                            the model's feature extractor does it
            returns         float32 [B,T,D], zeros at padding
        Padding costs nothing.

        Lists give a list, and the sequences may have any lengths. input_ids, token_type_ids, position_ids and
        attention_mask are then lists of [T_i], or inputs_embeds is a list of [T_i,D]; the result is a list of float32
        [T_i,D], which are views of one array. You can pass the lists of a transformers tokenizer as
        `forward(**tokenizer(texts))`.

        With one of these arguments, the call returns a `ForwardOutput`, which also has the token vectors:
            output_hidden_states  True for all, or a layer or layers from 0 to L: 0 for the embeddings, l for the
                                  result of layer l
            output_attentions     True for all, or pairs (layer, head) from (0, 0): the attention weights [T,T]
            output_entropies      True for all, or pairs (layer, head): the entropy in nats of each token's weights
        Negative numbers count from the end. These arguments do not change a bit of the token vectors.

        timeout: seconds after which the call stops with `TimedOut`; None for no limit. Ctrl-C stops a call, too.

        Raises `InputError` for a wrong shape, type or range, and `UnsupportedError` for an argument that the backend
        does not support.
        """
        stop = Stop.after(timeout)
        asked = read_asked(self.config, output_hidden_states, output_attentions, output_entropies)
        stem_inputs = {"pixel_values": pixel_values, "input_features": input_features,
                       "input_values": input_values}
        inputs_embeds = self._embed({name: value for name, value in stem_inputs.items() if value is not None},
                                    inputs_embeds)
        batch, form = pack(self.config, input_ids, attention_mask, token_type_ids, position_ids,
                           inputs_embeds=inputs_embeds)
        if asked is None:
            return form.unpack(self._queue.compute(lambda stop: self._plan.forward(batch, stop), batch.tokens, stop))
        return asked.output(form, self._observe(batch, asked, stop))

    def _embed(self, stem_inputs: dict[str, Any], inputs_embeds: Any) -> Any:
        """Return `inputs_embeds`, or the stem's vectors [B, T, D] of pixels or audio; raises `InputError`.

        stem_inputs: the arrays of the caller by their names: pixel_values, input_features or input_values.
        """
        for name, value in stem_inputs.items():
            if self._stem is None or self._stem.given != name or inputs_embeds is not None:
                takes = "input_ids" if self._stem is None else self._stem.given
                raise InputError(f"this model takes {takes} or inputs_embeds, one of them, and not {name}")
            inputs_embeds = embed(self._stem, value, self._ops)
        return inputs_embeds

    def _observe(self, batch: Batch, asked: WantedOutputs, stop: Stop) -> list[np.ndarray]:
        """Return the token vectors of a batch, [N, D], and then the arrays that `asked` describes."""
        plan = self._plan
        if not isinstance(plan, ObservingPlan):
            raise UnsupportedError(f"the {self.backend} backend gives no hidden states, attention weights or "
                                   "entropies; cython, numba and reference do: Engine.load(..., backend=...)")
        return self._queue.compute(lambda stop: plan.observe(batch, asked.observed, stop), batch.tokens, stop)

    @renamed_arguments
    def look(self, text: Any, *, timeout: float | None = None) -> Look:
        """Return what attention does with one text: the entropy of each head, its share of the maximum, and rollout.

        text: a string or a pair of strings, which is truncated to `max_seq_length`. timeout: as in `forward`.

        The `Look` has arrays and two pictures. It takes T * T numbers of memory for each head, T being the tokens.
        Raises `InputError`, and `UnsupportedError` for a model without layers, or a backend that gives no weights.
        """
        stop = Stop.after(timeout)
        with truncating():
            tokens = self.text_encoder.tokenizer(check_sentences([text]), stop)
        names = [self.text_encoder.tokenizer.decode([int(i)], skip_special_tokens=False) for i in tokens.input_ids[0]]
        if not names:
            raise InputError(f"the text {shown(text)} has no tokens to look at")
        if not self.config.num_layers:
            raise UnsupportedError("a static model has no layers, and so no attention to look at")
        batch, form = pack(self.config, [tokens.input_ids[0]], token_type_ids=[tokens.token_type_ids[0]]
                           if self.text_encoder.uses_token_types else None)
        asked = read_asked(self.config, hidden_states=None, attentions=True, entropies=True)
        assert asked is not None
        output = asked.output(form, self._observe(batch, asked, stop))
        return make_look(names, output, self.config.num_layers, self.config.num_heads, self._ops)

    @renamed_arguments
    @on_route
    def encode(self, sentences: Any, *, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None,
               output_value: str | None = "sentence_embedding", precision: str | None = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
               normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: None = None,
               chunk_size: None = None, ranges: Any = None, task: str | None = None, truncation: bool | None = None,
               timeout: float | None = None) -> Any:
        """Return the vectors of sentences, as `SentenceTransformer.encode` does, or of images.

        sentences: a string, or a collection of n strings; a pair of strings in a collection is one input. For a model
            of images, images as in `classify`.
        prompt_name, prompt: the name of a prompt of the model, or a text, to put in front of every sentence.
        batch_size: the most sentences that are computed at a time, besides the limit `max_batch_tokens`; it does not
            change the result.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG and standard error is a
            terminal.
        output_value: "sentence_embedding", "token_embeddings" for the vectors of all tokens, or None for everything.
        convert_to_numpy: False gives a list of n vectors in place of one array.
        normalize_embeddings: scale to length 1, even when the model does not.
        truncate_dim: keep this many of the first dimensions; None for what the model's files say, usually all. A number
            above the width of the vectors keeps all, as in sentence-transformers.
        precision: "float32", or "int8", "uint8", "binary" or "ubinary" for vectors in fewer bits, as
            `quantize_embeddings` of sentence-transformers makes them: int8 [n, D'] or one bit a dimension [n, D'/8].
        ranges: for int8 and uint8 the smallest and the largest number of each dimension, [2, D']; None for those of the
            vectors of this call, with a warning, because a vector then depends on the others.
        task: one of `routes`, such as "query"; None for the model's default, if it has routes.
        truncation: what becomes of a sentence with more than `max_seq_length` tokens: None cuts it, and the call warns
            once with the number of such sentences; True cuts it without a word; False raises `InputError`.
        timeout: seconds after which the call stops with `TimedOut`; None for no limit.
        convert_to_tensor, device, pool, chunk_size: accepted for compatibility, with values that have no
            effect, as the defaults; every other value is an error.

        Returns float32 [n, D'], or [D'] for a single string. D' is the model's width times the number of its pooling
        modes, or what its modules after pooling make of it. Token embeddings are a list of n arrays [T_i, D], or one
        array. output_value=None gives a list of n dictionaries, or one dictionary, with input_ids, attention_mask,
        token_type_ids if the model has them, token_embeddings and sentence_embedding.
        Raises `InputError`, and `UnsupportedError` for a model without a tokenizer.
        """
        check_options(self.backend, device=device, pool=pool, convert_to_tensor=convert_to_tensor,
                      chunk_size=chunk_size)
        options = EncodeOptions(
            prompt_name=prompt_name, prompt=prompt, output_value=output_value, precision=precision,
            convert_to_numpy=convert_to_numpy, normalize_embeddings=normalize_embeddings, truncate_dim=truncate_dim,
            ranges=ranges)
        return run(ENCODE, self, sentences, options, batch_size=batch_size, show_progress_bar=show_progress_bar,
                   truncation=truncation, timeout=timeout)

    @renamed_arguments
    def encode_stream(self, sentences: Iterable[Any], *, rows: int = 4096, result: str = "vectors",
                      **options: Any) -> Iterator[Any]:
        """Return an iterator over the results of sentences, `rows` of them at a time, in their order.

        It reads `rows` sentences, encodes them, yields the result and forgets both, so that the memory does not grow
        with the number of sentences. Row i has the bits of row i of the call for all sentences at once.

        sentences: an iterable of strings, such as a generator; a pair of strings in it is one input. It is read only
            as far as results are asked for. For a model of images, all of them images as in `classify`.
        result: "vectors" of `encode`, "sparse" vectors of `encode_sparse`, "tokens" of `encode_tokens`, or "classes" of
            `classify`.
        options: those of that method, such as normalize_embeddings=True, checked at the call. A timeout is that of each
            array. Only the first array with sentences that were cut gives a warning. precision="int8" and "uint8" need
            ranges.

        Raises `InputError` and `UnsupportedError` as the method does; an error of the iterable passes through, after
        the arrays before it.
        """
        return encode_stream(self, sentences, rows, result, options)

    @renamed_arguments
    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Encode queries: as `encode`, with the prompt "query" of the model unless options name a prompt.

        If the model has no prompt "query", no prompt is used, even if the model has a default prompt. A model with
        `routes` runs the one called "query".
        """
        return self._encode_as("query", sentences, options)

    @renamed_arguments
    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Encode documents: as `encode`, with the prompt "document" of the model unless options name a prompt.

        If the model has no prompt "document", its prompt "passage" is used, or else "corpus", or else no prompt. A
        model with `routes` runs the one called "document".
        """
        return self._encode_as("document", sentences, options)

    def _encode_as(self, role: str, sentences: Any, options: dict[str, Any]) -> Any:
        """Encode texts of a role, "query" or "document", by the model's task, prompt or route for it."""
        if self._late is not None:
            return self.encode_tokens(sentences, **{"task": role} | options)
        if self.text is None and self.reads_images:
            return self.encode(sentences, **options)
        options = with_role_prompt(self._text, role, options)
        if self._routes and options.get("task") is None:
            options = options | {"task": role}
        return self.encode(sentences, **options)

    @renamed_arguments
    def tokenize(self, sentences: Any, *, truncation: bool | None = None) -> dict[str, np.ndarray]:
        """Return the token ids of sentences as the arguments of `forward`: `engine.forward(**engine.tokenize(texts))`.

        Returns input_ids, attention_mask and, if the model has them, token_type_ids: int64 [n,T], padded on the right.
        No prompt is added. truncation: None and True cut sentences as `encode` does, and False leaves them whole, so
        that you can count their tokens. Raises the errors of `encode`.
        """
        inputs, _ = read_sentences(sentences)
        whole = truncation is not None and not flag("truncation", truncation)       # False: cut nothing
        with truncating(True if whole else truncation):
            return self.text_encoder.tokenize(inputs, whole=whole)
