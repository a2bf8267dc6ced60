"""Make bge_m3: a tiny XLM-RoBERTa with the two linear maps of BGE-M3, and the vectors, weights and scores of texts.

    python -m tests.golden.make.bge_m3

The folder has config.json, model.safetensors, and colbert_linear.pt and sparse_linear.pt in float16, as BAAI/bge-m3 has
them. The formulas are those of the paper (Chen et al. 2024, arXiv 2402.03216, section 3.2) in the form in which
FlagEmbedding's BGEM3FlagModel computes them. expected.npz has for the role "query" or "document" of
tests/tools/m3_folders.py:

    ROLE dense [n, D]       the normalised vector of the first token
    ROLE vectors [N, D]     the ColBERT vectors of all texts, and ROLE sizes [n]: how many each text has
    ROLE ids, ROLE weights  the lexical weights of all texts, by increasing ids, and ROLE counts [n]

and scores [n, m] of queries and documents: colbert, lexical.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from torch.nn.functional import normalize

from tests.tools import m3_folders as folders

from .heads import SIZES, open_tokenizer
from .quiet import one_quiet_thread

SPECIAL = ("cls_token_id", "eos_token_id", "pad_token_id", "unk_token_id")


def make_model() -> tuple[hf.XLMRobertaModel, torch.nn.Linear, torch.nn.Linear]:
    """Return an encoder and its two maps, with random weights that differ much."""
    torch.manual_seed(3)
    config = hf.XLMRobertaConfig(**SIZES | {"type_vocab_size": 1}, initializer_range=0.3, attn_implementation="eager",
                                 bos_token_id=2, eos_token_id=3)
    model = hf.XLMRobertaModel(config)
    with torch.no_grad():       # biases are zero at first, and a mistake with them would not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    colbert, sparse = (torch.nn.Linear(config.hidden_size, size) for size in (config.hidden_size, 1))
    torch.nn.init.constant_(sparse.bias, 0.3)       # about two thirds of the tokens have a weight
    return model.eval(), colbert.half(), sparse.half()


def expected(some: tuple[str, ...], model: hf.XLMRobertaModel, colbert: torch.nn.Linear, sparse: torch.nn.Linear
             ) -> tuple[np.ndarray, list[torch.Tensor], list[dict[int, float]]]:
    """Return the dense vectors of texts, their ColBERT vectors and their lexical weights, from one padded batch."""
    tokenizer = open_tokenizer("unigram", eos_token="</s>", bos_token="<s>")
    batch = tokenizer(list(some), padding=True, truncation=True, max_length=folders.LIMIT, return_tensors="pt")
    unused = {getattr(tokenizer, name) for name in SPECIAL}
    with torch.inference_mode():
        hidden = model(**batch).last_hidden_state
        vectors = normalize(colbert(hidden[:, 1:]), dim=-1)
        numbers = torch.relu(sparse(hidden)).squeeze(-1)
        dense = normalize(hidden[:, 0], dim=-1).numpy()
    rows, weights = [], []
    for i, mask in enumerate(batch["attention_mask"]):
        rows.append(vectors[i, : int(mask.sum()) - 1])
        found: dict[int, float] = {}
        for number, token in zip(numbers[i].tolist(), batch["input_ids"][i].tolist(), strict=True):
            if token not in unused and number > found.get(token, 0.0):
                found[token] = number
        weights.append(dict(sorted(found.items())))
    return dense, rows, weights


def main() -> None:
    one_quiet_thread()
    shutil.rmtree(folders.GOLDEN, ignore_errors=True)
    folders.GOLDEN.mkdir()
    model, colbert, sparse = make_model()
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(Path(place, file), folders.GOLDEN / file)
    for name, linear in (("colbert_linear", colbert), ("sparse_linear", sparse)):
        torch.save(linear.state_dict(), folders.GOLDEN / f"{name}.pt")
        linear.float()
    found: dict[str, np.ndarray] = {}
    rows, weights = {}, {}
    for role, some in (("query", folders.QUERIES), ("document", folders.DOCUMENTS)):
        found[f"{role} dense"], rows[role], weights[role] = expected(some, model, colbert, sparse)
        found[f"{role} vectors"] = torch.cat(rows[role]).numpy()
        found[f"{role} sizes"] = np.array([len(row) for row in rows[role]])
        found[f"{role} ids"] = np.array([token for row in weights[role] for token in row], np.int32)
        found[f"{role} weights"] = np.array([number for row in weights[role] for number in row.values()], np.float32)
        found[f"{role} counts"] = np.array([len(row) for row in weights[role]])
    found["colbert"] = np.array([[(q @ d.T).max(dim=1).values.mean() for d in rows["document"]] for q in rows["query"]])
    found["lexical"] = np.array([[sum(number * d.get(token, 0.0) for token, number in q.items())
                                  for d in weights["document"]] for q in weights["query"]], np.float32)
    np.savez_compressed(folders.GOLDEN / "expected.npz", **found)


if __name__ == "__main__":
    main()
