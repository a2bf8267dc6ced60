"""Run BERT with llama.cpp: write a GGUF file, and encode NumPy ids to vectors of tokens.

llama.cpp's converter is not on PyPI, so this module writes the file. The names of tensors and keys are those of the
package `gguf` (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import ctypes
import os

import numpy as np

LONGEST = 512
"""Largest number of tokens of a sequence."""
CALL = 128
"""Largest number of tokens per call with several sequences.

All sequences of a call share one square matrix of scores, so that larger calls are slower.
"""

TYPES = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0"}


class LlamaCpp:
    """llama.cpp with weights in float32, bfloat16 or Q8_0 (8 bits, a scale for each 32); the rest is in float32."""

    precisions = tuple(TYPES)

    @staticmethod
    def prepare(folder):
        for precision, name in TYPES.items():
            path = folder / f"{precision}.gguf"
            if not path.exists():
                partial = path.with_suffix(".partial")
                write_gguf(folder / "hf", partial, name)
                os.replace(partial, path)

    def __init__(self, folder, precision, threads):
        import llama_cpp

        self.api = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        path = str(folder / f"{precision}.gguf").encode()
        model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {precision}.gguf")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = LONGEST
        options.n_seq_max = CALL
        options.n_threads = options.n_threads_batch = threads
        options.embeddings, options.pooling_type = True, llama_cpp.LLAMA_POOLING_TYPE_NONE
        self.context = llama_cpp.llama_init_from_model(model, options)
        if not self.context:
            raise RuntimeError("llama.cpp cannot create a context")
        self.width = llama_cpp.llama_model_n_embd(model)
        self.batch = batch = llama_cpp.llama_batch_init(LONGEST, 0, 1)
        fields = batch.token, batch.pos, batch.n_seq_id, batch.logits
        self.tokens, self.positions, sequences, wanted = (np.ctypeslib.as_array(a, (LONGEST,)) for a in fields)
        sequences[:] = wanted[:] = 1

    def forward(self, ids, mask):
        vectors = np.zeros((*ids.shape, self.width), np.float32)
        lengths = np.full(len(ids), ids.shape[1]) if mask is None else mask.sum(1)
        first = 0
        while first < len(ids):
            rows = slice(first, first + max(1, np.searchsorted(lengths[first:].cumsum(), CALL, side="right")))
            real = np.arange(ids.shape[1]) < lengths[rows, None]
            vectors[rows][real] = self.call(ids[rows][real], lengths[rows])
            first = rows.stop
        return vectors

    def call(self, tokens, lengths):
        """Return float32 [N,D] for N tokens of packed sequences with these lengths."""
        N = self.batch.n_tokens = len(tokens)
        self.tokens[:N] = tokens
        self.positions[:N] = np.concatenate([np.arange(n) for n in lengths])
        for place, sequence in enumerate(np.repeat(np.arange(len(lengths)), lengths).tolist()):
            self.batch.seq_id[place][0] = sequence
        if self.api.llama_encode(self.context, self.batch):
            raise RuntimeError("llama_encode failed")
        found = ctypes.cast(self.api.llama_get_embeddings(self.context), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(found, (N, self.width))


def write_gguf(hf, path, name):
    """Write a Hugging Face BERT folder as GGUF: matrices in the named type, norms and biases in float32."""
    import gguf
    from safetensors.numpy import load_file
    from transformers import BertConfig

    config = BertConfig.from_pretrained(hf)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    write_vocabulary(writer, hf, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for old, array in load_file(hf / "model.safetensors").items():
        new = names.get_name(old.removeprefix("bert."), try_suffixes=(".weight", ".bias"))
        if new is None or "position_ids" in old or "pooler" in old:
            continue
        matrix = array.ndim == 2 and not old.endswith(("position_embeddings.weight", "token_type_embeddings.weight"))
        kind = gguf.GGMLQuantizationType[name if matrix else "F32"]
        writer.add_tensor(new, gguf.quants.quantize(array.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_vocabulary(writer, hf, config):
    """Write WordPiece's tokens: GGUF marks tokens that begin a word, Hugging Face marks tokens that continue one."""
    import gguf

    words = (hf / "vocab.txt").read_text().split("\n")[: config.vocab_size]
    words += [f"[PAD{i}]" for i in range(len(words), config.vocab_size)]
    special = [word.startswith("[") and word.endswith("]") for word in words]
    marked = [w if s else w[2:] if w.startswith("##") else "\u2581" + w for w, s in zip(words, special, strict=True)]
    kinds = [gguf.TokenType.CONTROL if s else gguf.TokenType.NORMAL for s in special]
    writer.add_token_type_count(config.type_vocab_size)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(marked)
    writer.add_token_types(kinds)
