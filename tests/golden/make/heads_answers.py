"""Write the answers of the golden models of heads.py to questions, with the pipeline that transformers had until 4.57.

    python -m tests.golden.make.heads_answers [NAME ...]

It adds "answers", "three", "impossible" and "parts" to the expected.json of each model with a head of answers.
"""

import inspect
import json
import sys
from functools import partial

import torch
import transformers as hf

from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread

LIMIT = 96
TOKENS = {"wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}
PIECES = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")


def rounded(answers):
    """Return answers as JSON has them, in a list."""
    answers = answers if isinstance(answers, list) else [answers]
    return [answer | {"score": float(f"{answer['score']:.6g}")} for answer in answers]


def _without_types(forward, *args, token_type_ids=None, **inputs):
    return forward(*args, **inputs)


def main() -> None:
    one_quiet_thread()
    for path in sorted(HEADS.glob("*_answer")):
        if sys.argv[1:] and path.name not in sys.argv[1:]:
            continue
        expected = json.loads((path / "expected.json").read_text(encoding="utf-8"))
        tokens = TOKENS.get(expected["tokenizer"], PIECES)
        tokenizer = hf.PreTrainedTokenizerFast(
            tokenizer_file=str(HEADS / "tokenizers" / f"{expected['tokenizer']}.json"), model_max_length=LIMIT,
            add_prefix_space=True,
            **dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), tokens, strict=True)))
        model = hf.AutoModelForQuestionAnswering.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
        accepted = inspect.signature(model.forward).parameters
        if expected["tokenizer"] == "wordpiece" and "token_type_ids" in accepted:
            tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
        else:
            forward = model.forward         # the pipeline passes token types to every model
            model.forward = partial(_without_types, forward)
        pipe = hf.pipeline("question-answering", model=model.eval(), tokenizer=tokenizer)
        asked = [{"question": question, "context": context} for question, context in texts.PAIRS
                 if question and context and len(question) < 200]
        for name, options in (
                ("answers", {}), ("three", {"top_k": 3}), ("impossible", {"handle_impossible_answer": True}),
                ("parts", {"align_to_words": False, "max_answer_len": 4, "max_seq_len": 48, "doc_stride": 12})):
            expected[name] = [rounded(pipe(one, **options)) for one in asked]
        text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
        (path / "expected.json").write_text(text + "\n", encoding="utf-8")
        print(path.name, [answer[0]["answer"] for answer in expected["answers"]][:4])


if __name__ == "__main__":
    main()
