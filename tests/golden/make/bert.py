"""Make the golden files: what transformers and sentence-transformers compute, in float32, eager attention, one thread.

    python -m tests.golden.make.bert PATH_TO_ALL_MINILM_L6_V2

Written in tests/golden, one folder per model:

    bert/ bert_tanh/ bert_relu/ roberta/ distilbert/    a small random model as `save_pretrained` writes it, and
        expected.npz    input_ids, attention_mask, token_type_ids [B, T]; hidden [N, D], the rows where the mask is 1
    minilm/
        sentences.json  the sentences
        expected.npz    embeddings [n, D]; of the first sentences ids_{i} [T], rows_{i} (some of 0..T-1) and
                        hidden_{i} [rows, D]

The random models have awkward sizes (none is a multiple of 8) and large weights, so that a wrong tail, a transposed
matrix or a forgotten bias shows. Between them they are stored in every dtype that the engine reads.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from tests.tools.paths import ENCODERS

VOCAB = 120
LONGEST = 130
BERT = {
    "vocab_size": VOCAB, "hidden_size": 44, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 100,
    "max_position_embeddings": 140,
}  # fmt: skip

SENTENCES = [
    "A man is playing a guitar.",
    "",
    "Ça coûte 3,50 € — naïve façade, “quoted”; ﬁnally: Ærøskøbing!",
    "東京の天気は晴れです。 Привет, мир! مرحبا بالعالم 🤖🎉",
    "If a sentence runs on for long enough it is cut at the model's limit. " * 40,
    "The cat sat on the mat.",
    "   \t white   space \n everywhere  ",
    "e = mc^2; f(x) = ∫ exp(-x²) dx; 0xDEADBEEF; a_b.c@d.example",
    "pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
    "Is it raining? It was not raining an hour ago, and nobody had expected it to start before the evening.",
    "word " * 150,
    "x",
]
WITH_HIDDEN = 5
"""Number of sentences, from the first, whose token vectors are in the golden file; the others have only embeddings."""


def main(minilm: str) -> None:
    torch.set_num_threads(1)
    roberta = BERT | {"max_position_embeddings": 142, "pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    distilbert = {
        "vocab_size": VOCAB, "dim": 44, "n_layers": 3, "n_heads": 4, "hidden_dim": 100, "max_position_embeddings": 140,
    }  # fmt: skip
    one_layer = BERT | {"num_hidden_layers": 1}

    make_random("bert", BertModel(BertConfig(**BERT)), torch.bfloat16)
    make_random("bert_tanh", BertModel(BertConfig(**one_layer, hidden_act="gelu_new")), torch.float16)
    make_random("bert_relu", BertModel(BertConfig(**one_layer, hidden_act="relu")), torch.float16)
    make_random("roberta", RobertaModel(RobertaConfig(**roberta)), torch.float16)
    make_random("distilbert", DistilBertModel(DistilBertConfig(**distilbert)), torch.float32)
    make_minilm(minilm)


def make_random(name: str, model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Write a random model in `dtype`, then what transformers computes from the files as they were written."""
    folder = ENCODERS / name
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            is_gain = "LayerNorm.weight" in parameter_name or "layer_norm.weight" in parameter_name
            parameter.normal_(1.0 if is_gain else 0.0, 0.2)
    model.to(dtype).save_pretrained(folder)
    model = load(folder)

    inputs = make_inputs(model.config.pad_token_id, types=getattr(model.config, "type_vocab_size", 1))
    accepted = {key: torch.from_numpy(array) for key, array in inputs.items()}
    if isinstance(model, DistilBertModel):
        del accepted["token_type_ids"]
    with torch.inference_mode():
        hidden = model(**accepted).last_hidden_state.numpy()
    small = {key: array.astype(np.uint8) for key, array in inputs.items()}
    np.savez_compressed(folder / "expected.npz", **small, hidden=hidden[inputs["attention_mask"] == 1])


def make_inputs(pad_token_id: int, types: int) -> dict[str, np.ndarray]:
    """Six sequences: of 1, 2, 17 and 130 tokens, one padded on the left, and one with holes in its mask."""
    rng = np.random.default_rng(0)
    mask = np.zeros((6, LONGEST), np.int64)
    for row, length in zip(mask, (1, 2, 17, LONGEST), strict=False):
        row[:length] = 1
    mask[4, LONGEST - 23 :] = 1
    mask[5, :31] = 1
    ids = np.where(mask, rng.integers(2, VOCAB, mask.shape), pad_token_id)
    token_types = np.where(mask, rng.integers(0, types, mask.shape), 0)
    mask[5, [0, 7, 8, 20]] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": token_types}


def make_minilm(source: str) -> None:
    """Write token vectors and embeddings of `SENTENCES` by the real model, every sentence alone."""
    tokenizer, model = AutoTokenizer.from_pretrained(source), load(source)
    sentence_model = SentenceTransformer(source, device="cpu", model_kwargs={"attn_implementation": "eager"})
    arrays = {"embeddings": sentence_model.encode(SENTENCES, batch_size=1)}
    for i, sentence in enumerate(SENTENCES[:WITH_HIDDEN]):
        inputs = tokenizer(sentence, truncation=True, max_length=sentence_model.max_seq_length, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state[0].numpy()
        rows = np.arange(0, len(hidden), 1 if len(hidden) <= 64 else 8)
        arrays |= {f"ids_{i}": inputs["input_ids"][0].numpy(), f"rows_{i}": rows, f"hidden_{i}": hidden[rows]}

    folder = ENCODERS / "minilm"
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "expected.npz", **arrays)
    (folder / "sentences.json").write_text(json.dumps(SENTENCES, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path) -> PreTrainedModel:
    return AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


if __name__ == "__main__":
    main(sys.argv[1])
