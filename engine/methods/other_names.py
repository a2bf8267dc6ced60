"""What other libraries call the arguments of methods; what they call options stands beside these, in `Options`.

`same` names our argument, with pairs (their value, ours). `instead` says what to do, and accepts the values after that.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import (
    BATCHES,
    CPU,
    FOLDER,
    LACKS,
    LIMIT,
    PADDING,
    POSITIONAL,
    OtherName,
    instead,
    register,
    same,
)
from .table import METHODS

_ENCODE: Mapping[str, OtherName] = {
    "inputs": same("sentences"),
    "input": same("sentences"),
    "documents": same("sentences"),
    "texts": same("sentences"),
    "text": same("sentences"),
    "task_type": instead("call encode_query or encode_document for a prompt"),
    "processing_kwargs": instead(FOLDER, {}),
    "parallel": instead("threads= of load says how many CPUs work", 0),
    "num_workers": instead("threads= of load says how many CPUs work", 0),
    "encoding_format": instead("the vectors are a NumPy array", "float"),
    **{name: instead(LIMIT) for name in ("max_length", "max_seq_length")},
    "padding": instead(PADDING, True, False),
    "return_tensors": instead("the results are NumPy arrays", "np"),
    "return_dense": instead("encode returns one vector for each text", True),
    "return_sparse": instead("encode_sparse(sentences) returns the sparse vectors", False),
    "return_colbert_vecs": instead("encode_tokens(sentences) returns the vectors of tokens", False),
}
"""What methods share that return vectors of texts."""
_ONE_SCORE = "a pair has one score here, and a softmax needs several"

RANK: Mapping[str, OtherName] = {
    "prompt": instead("instruction=... says what counts as an answer"),
    "prompt_name": instead("instruction=... says what counts as an answer"),
    "batch_size": instead(BATCHES),
    "num_workers": instead("threads= of load says how many CPUs work", 0),
    "parallel": instead("threads= of load says how many CPUs work", 0),
    "activation_fn": instead("logits=True leaves the logistic function out"),
    "activation_fct": instead("logits=True leaves the logistic function out"),
    "apply_softmax": instead(_ONE_SCORE, False),
    "convert_to_numpy": instead("predict gives a NumPy array, and rank a list", True),
    "convert_to_tensor": instead("predict gives a NumPy array, and rank a list", False),
}

PIPELINE: Mapping[str, OtherName] = {
    **{name: same("texts") for name in ("inputs", "sentences", "text", "args")},
    "padding": instead(PADDING, True, False),
    **{name: instead(LIMIT) for name in ("max_length", "max_seq_length")},
    "tokenizer_kwargs": instead(LIMIT, {}, {"truncation": True}),
    "num_workers": instead("threads= of load says how many CPUs work", 0),
    "return_tensors": instead("the results are dictionaries", False),
}
"""What the pipelines of transformers have."""

POSITIONAL |= {
    "predict": 'a pair is one argument: predict(("a query", "a document")), or predict([pair, ...])',
    "rank": 'rank("a query", ["a document", ...])',
    "answer": 'answer("a question", "the text to read")',
}

_ROWS: Mapping[str, Mapping[str, OtherName]] = {
    "encode": _ENCODE,
    "encode_sparse": {
        **_ENCODE,
        "convert_to_tensor": instead("the result is SparseVectors, whose parts are NumPy arrays", True, False),
        "convert_to_sparse_tensor": instead("the result is SparseVectors, whose parts are NumPy arrays", True),
        "return_dense": instead("encode(sentences) returns one vector for each text", False),
        "return_sparse": instead("encode_sparse returns the sparse vectors", True),
        "save_to_cpu": instead("everything is on the CPU", True, False)},
    "encode_tokens": {
        **_ENCODE,
        "convert_to_numpy": instead("the result is a list of NumPy arrays", True, False),
        "return_dense": instead("encode(sentences) returns one vector for each text", False),
        "return_colbert_vecs": instead("encode_tokens returns the vectors of tokens", True),
        "convert_to_tensor": instead("the result is a list of NumPy arrays; pass each to torch.from_numpy", False),
        "output_value": instead(LACKS, "token_embeddings"),
        "device": instead(CPU, "cpu"),
        "pool": instead("one engine uses all CPUs that the process may use"),
        "chunk_size": instead("one engine uses all CPUs that the process may use"),
        "token_pooling": instead(LACKS)},
    "classify": PIPELINE,
    "tag": {**PIPELINE,
            "offset_mapping": instead("the tokenizer gives the offsets"),
            "delimiter": instead("words are joined by spaces", " ")},
    "fill_mask": PIPELINE,
    "answer": {**{name: row for name, row in PIPELINE.items() if row.ours is None},
               "max_question_len": instead("a question may be as long as the window lets it")},
    "predict": {**RANK, "sentences": same("pairs"), "inputs": same("pairs")},
    "rank": {**RANK, "docs": same("documents"), "passages": same("documents"), "texts": same("documents")},
}
register({name: {**_ROWS.get(name, {}), **method.options.other_names()} for name, method in METHODS.items()})
