"""Make the golden scores of a reranker: a small random Qwen3 with a tokenizer, and pairs of texts.

    python -m tests.golden.make.reranker

The folder decoders/reranker has the files that sentence-transformers saves for a `CrossEncoder` of a language model and
expected.json: for each instruction of `INSTRUCTIONS` and each of `LENGTHS` as the most tokens of a pair, the logits of
"yes" and "no" after each of `PAIRS`. They are computed in float64 as the model card of Qwen3-Reranker does it: the
start, the body and the end of the text are tokenized apart, and the body is truncated. The script stops unless
sentence-transformers' `predict`, which applies the chat template to a whole pair, gives the same.
"""

import json

import numpy as np
import torch
import transformers as hf
from sentence_transformers import CrossEncoder

from tests.tools.paths import DECODERS

from .scaffold import float64_throughout

FOLDER = DECODERS / "reranker"
START = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
         'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
BODY = "<Instruct>: {}\n<Query>: {}\n<Document>: {}"
INSTRUCTIONS = ("Given a web search query, retrieve relevant passages that answer the query", "Find cats.")
LENGTHS = (8192, 130)
PAIRS = (
    ("Which cats purr?", "Cheetahs purr, and lions roar."), ("Which cats purr?", ""), ("Which cats purr?", "yes"),
    ("Which cats purr?", "Cheetahs purr, and lions roar." * 6), ("", "A document without a query."),
    ("多少?", "答案是 42。"), ("a {query} of {document}", "with <|im_end|> {instruction}\n<Query>: inside"),
)

def scores(model: torch.nn.Module, tokenizer: hf.PreTrainedTokenizerFast, instruction: str, longest: int) -> list:
    """Return the logits of yes and no after each pair."""
    start, end = (tokenizer.encode(text, add_special_tokens=False) for text in (START, END))
    answers = tokenizer.convert_tokens_to_ids(["yes", "no"])
    found = []
    for pair in PAIRS:
        body = tokenizer(BODY.format(instruction, *pair), truncation="longest_first", return_attention_mask=False,
                         max_length=longest - len(start) - len(end))["input_ids"]
        with torch.inference_mode(), float64_throughout(type(model), angles=False):
            logits = model(torch.tensor([start + body + end])).logits[0, -1]
        found.append(logits[answers].tolist())
    return found


def main() -> None:
    """Write expected.json."""
    tokenizer = hf.PreTrainedTokenizerFast.from_pretrained(FOLDER)
    model = hf.Qwen3ForCausalLM.from_pretrained(FOLDER).double().eval()
    expected = [{"instruction": instruction, "max_length": longest,
                 "logits": scores(model, tokenizer, instruction, longest)}
                for instruction in INSTRUCTIONS for longest in LENGTHS]  # fmt: skip
    again = CrossEncoder(str(FOLDER), device="cpu").predict(list(PAIRS))
    difference = np.abs(again - np.subtract(*np.array(expected[0]["logits"]).T)).max()
    if difference > 1e-4:
        raise SystemExit(f"sentence-transformers gives other scores: {again}, {difference}")
    (FOLDER / "expected.json").write_text(json.dumps({"pairs": PAIRS, "scores": expected}, ensure_ascii=False, indent=1)
                                          + "\n", encoding="utf-8")  # fmt: skip
    print(np.array(expected[0]["logits"]), difference)


if __name__ == "__main__":
    main()
