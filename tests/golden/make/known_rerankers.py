"""Make the golden scores of two kinds of published rerankers: a tiny Gemma and Qwen2 that rank, and pairs of texts.

    python -m tests.golden.make.known_rerankers

The folders bge_gemma and mxbai_qwen2 have config.json, model.safetensors and a tokenizer, as bge-reranker-v2-gemma and
mxbai-rerank-base-v2 have them, and expected.json with the logits of the answers after each pair of reranker.py. They
are computed in float64. The pieces of a prompt are tokenized apart and joined, as the code of each model does it.
"""

import json

import torch
import transformers as hf

from tests.tools.paths import DECODERS

from .reranker import PAIRS
from .scaffold import float64_throughout

YES_OR_NO = ("Given a query A and a passage B, determine whether the passage contains an answer to the query by "
             "providing a prediction of either 'Yes' or 'No'.")
RELEVANCE = ("You are a search relevance expert who evaluates how well documents match search queries. For each "
             "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
             "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:")
SYSTEM = ("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
          "<|im_start|>user\n")


def gemma_pieces(query: str, document: str) -> list[str]:
    return ["<bos>", f"A: {query}", "\n", f"B: {document}", "\n", YES_OR_NO]


def qwen_pieces(query: str, document: str) -> list[str]:
    return [SYSTEM, f"query: {query}", "\n", f"document: {document}", "\n", RELEVANCE,
            "<|im_end|>\n<|im_start|>assistant\n"]


KINDS = {"bge_gemma": (gemma_pieces, ["Yes"], "bge-reranker-v2-gemma"),
         "mxbai_qwen2": (qwen_pieces, ["1", "0"], "mxbai-rerank-v2")}
"""By folder: the pieces of a prompt, its answers, and the name of the template that the engine has for it."""


def main() -> None:
    """Write expected.json into the folders."""
    for name, (pieces, answers, template) in KINDS.items():
        folder = DECODERS / name
        tokenizer = hf.PreTrainedTokenizerFast.from_pretrained(folder)
        model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
        ids = [tokenizer.encode(answer, add_special_tokens=False) for answer in answers]
        assert all(len(own) == 1 for own in ids), ids
        logits = []
        for pair in PAIRS:
            tokens = [token for piece in pieces(*pair) for token in tokenizer.encode(piece, add_special_tokens=False)]
            with torch.inference_mode(), float64_throughout(type(model), angles=False):
                found = model(torch.tensor([tokens])).logits[0, -1]
            logits.append(found[[own[0] for own in ids]].tolist())
        expected = {"template": template, "pairs": PAIRS, "logits": logits}
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n",
                                              encoding="utf-8")
        print(name, logits)


if __name__ == "__main__":
    main()
