"""What other libraries call the arguments of `encode`.

`same` names our argument, with pairs (their value, ours). `instead` says what to do, and accepts the values behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import FOLDER, LIMIT, PADDING, OtherName, instead, register, same

ENCODE: Mapping[str, OtherName] = {
    "inputs": same("sentences"),
    "input": same("sentences"),
    "documents": same("sentences"),
    "texts": same("sentences"),
    "text": same("sentences"),
    "normalize": same("normalize_embeddings"),
    "dimensions": same("truncate_dim"),
    "output_dimension": same("truncate_dim"),
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

register({"encode": ENCODE})
