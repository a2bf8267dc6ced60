"""Run language models with llama.cpp: write GGUF files in other precisions and shapes, compute logits, and generate.

It needs llama-cpp-python and gguf (requirements.txt).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0", "q8_0": "Q8_0", "int4": "Q4_0", "q4_0": "Q4_0"}
"""The kind of GGUF's matrices with the bits of each of our precisions; Q8_0 has a scale for 32 weights."""
WORDS = ("token_embd.weight", "output.weight")
"""The tensors that stay in Q8_0 in a file in Q4_0, because llama.cpp's own files have more bits there, too."""

CALL = 512
"""Largest number of tokens of a call of llama.cpp."""


SHAPES: dict[str, Mapping[str, int]] = {
    "0.5B": {"embedding_length": 1024, "block_count": 28, "feed_forward_length": 4096, "attention.head_count": 16,
             "attention.head_count_kv": 8, "rope.dimension_count": 64},
    "1.1B": {"embedding_length": 2048, "block_count": 16, "feed_forward_length": 8192, "attention.head_count": 32,
             "attention.head_count_kv": 8, "rope.dimension_count": 64},
}
"""Shapes of a Llama model, as GGUF names their numbers; the vocabulary is that of the file with the tokenizer."""


def rewrite(source: Path, target: Path, kind: str) -> None:
    """Write a GGUF file again, with every matrix converted to float32 and then to `kind`, a name of GGUF."""
    if kind == "Q4_K_M":
        _quantize(source, target)
        return
    import gguf

    reader = gguf.GGUFReader(source)

    def tensors() -> Iterator[tuple[str, np.ndarray, str]]:
        for tensor in reader.tensors:
            wide = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)
            own = "F32" if wide.ndim != 2 else "Q8_0" if kind == "Q4_0" and tensor.name in WORDS else kind
            yield tensor.name, wide, own

    _write(target, reader, {}, tensors())


def write_shape(source: Path, target: Path, shape: Mapping[str, int]) -> None:
    """Write a Llama model of a shape with random weights in BF16, and the tokenizer of another GGUF file."""
    import gguf

    reader, rng = gguf.GGUFReader(source), np.random.default_rng(0)
    D, F = shape["embedding_length"], shape["feed_forward_length"]
    queries, keys = (shape["rope.dimension_count"] * shape[f"attention.head_count{end}"] for end in ("", "_kv"))
    words = len(reader.fields["tokenizer.ggml.tokens"].data)
    matrices = {"attn_q": (queries, D), "attn_k": (keys, D), "attn_v": (keys, D), "attn_output": (D, queries),
                "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F)}

    def tensors() -> Iterator[tuple[str, np.ndarray, str]]:
        def random(rows: int, columns: int) -> np.ndarray:
            return rng.standard_normal((rows, columns), np.float32) / np.float32(columns**0.5)

        yield "token_embd.weight", random(words, D), "BF16"
        yield "output_norm.weight", np.ones(D, np.float32), "F32"
        for i in range(shape["block_count"]):
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{i}.{name}.weight", np.ones(D, np.float32), "F32"
            for name, (rows, columns) in matrices.items():
                yield f"blk.{i}.{name}.weight", random(rows, columns), "BF16"

    _write(target, reader, {f"llama.{name}": number for name, number in shape.items()}, tensors())


def _write(target: Path, reader: Any, changed: Mapping[str, int], tensors: Iterator[tuple[str, np.ndarray, str]]
           ) -> None:
    """Write the settings of a GGUF file, some of them changed, and tensors: name, float32 values, and kind."""
    import gguf

    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, fields["general.architecture"], use_temp_file=True)
    for name, value in (fields | changed).items():
        if name != "general.architecture":
            types = reader.fields[name].types
            writer.add_key_value(name, value, types[0], types[-1] if len(types) > 1 else None)
    for name, values, kind in tensors:
        own = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, gguf.quants.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, target)


def _quantize(source: Path, target: Path) -> None:
    """Write a GGUF file again in Q4_K_M, by llama.cpp's own program."""
    api = _quiet_api()
    options = api.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = api.LLAMA_FTYPE_MOSTLY_Q4_K_M, True
    partial = target.with_suffix(".partial")
    if status := api.llama_model_quantize(os.fsencode(source), os.fsencode(partial), options):
        raise RuntimeError(f"llama.cpp cannot write {source} in Q4_K_M: {status}")
    os.replace(partial, target)


@cache
def _quiet_api() -> Any:
    """Return the module llama_cpp, which prints nothing: it calls what it holds itself, so that this is never freed."""
    import llama_cpp

    llama_cpp.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(llama_cpp.silent, None)
    return llama_cpp


class LlamaLanguage:
    """A language model on llama.cpp, which generates greedily."""

    def __init__(self, path: Path, threads: int, sequences: int = 8, longest: int = 1024, *, exact: bool = False):
        """Load a GGUF file. sequences, longest: the most in a batch, and the most tokens of each.

        exact: keep the cache in float32, without flash attention; the default cache of llama.cpp is in float16.
        """
        self.api = api = _quiet_api()
        model = api.llama_model_load_from_file(os.fsencode(path), api.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        options = api.llama_context_default_params()
        options.n_ctx, options.n_seq_max = sequences * longest, sequences
        options.n_batch = options.n_ubatch = CALL
        options.n_threads = options.n_threads_batch = threads
        if exact:
            options.type_k = options.type_v = 0     # GGML_TYPE_F32
            options.flash_attn_type = 0
        self.context = api.llama_init_from_model(model, options)
        if not self.context:
            raise RuntimeError("llama.cpp cannot create a context")
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        self.batch = batch = api.llama_batch_init(CALL, 0, 1)
        fields = batch.token, batch.pos, batch.n_seq_id, batch.logits
        self.tokens, self.positions, counts, self.wanted = (np.ctypeslib.as_array(a, (CALL,)) for a in fields)
        counts[:] = 1

    def clear(self) -> None:
        """Forget all sequences."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def logits(self, rows: Sequence[tuple[int, int, Sequence[int]]], *, every: bool = False) -> np.ndarray:
        """Compute (sequence, position, tokens) each: the logits after the last token of each row, or after every token.

        The result is [rows or tokens, V].
        """
        found = []
        listed = [(row, position + i, token, every or i == len(tokens) - 1)
                  for row, position, tokens in rows for i, token in enumerate(tokens)]
        for first in range(0, len(listed), CALL):
            part = listed[first : first + CALL]
            for i, (row, position, token, wanted) in enumerate(part):
                self.tokens[i], self.positions[i], self.wanted[i] = token, position, wanted
                self.batch.seq_id[i][0] = row
            self.batch.n_tokens = len(part)
            if status := self.api.llama_decode(self.context, self.batch):
                raise RuntimeError(f"llama_decode failed with {status}")
            for i in np.flatnonzero(self.wanted[: len(part)]):
                pointer = self.api.llama_get_logits_ith(self.context, int(i))
                found.append(np.ctypeslib.as_array(pointer, (self.vocab_size,)).copy())
        return np.array(found)

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """Return this number of most likely tokens after each prompt; an end token ends nothing."""
        self.clear()
        texts = [list(prompt) for prompt in prompts]
        best = self.logits([(i, 0, text) for i, text in enumerate(texts)]).argmax(axis=1)
        while True:
            for text, token in zip(texts, best.tolist(), strict=True):
                text.append(token)
            if len(texts[0]) == len(prompts[0]) + tokens:
                return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]
            best = self.logits([(i, len(text) - 1, text[-1:]) for i, text in enumerate(texts)]).argmax(axis=1)
