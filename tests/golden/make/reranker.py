"""Make the golden folder of a reranker: a small random Qwen3 with a tokenizer, and the scores of pairs of texts.

    python -m tests.golden.make.reranker

The folder reranker has the files that sentence-transformers saves for a `CrossEncoder` of a language model
(config.json, model.safetensors, the tokenizer with its chat template, modules.json and 1_LogitScore), and
expected.json: for each instruction of `INSTRUCTIONS` and each of `LENGTHS` as the most tokens of a pair, the logits of
"yes" and "no" after each of `PAIRS`. They are computed in float64 as the model card of Qwen3-Reranker does it: the
start, the body and the end of the text are tokenized apart, and the body is truncated. The script stops unless
sentence-transformers' `predict`, which applies the chat template to a whole pair, gives the same.
"""

import json
import shutil
import tempfile

import numpy as np
import torch
import transformers as hf
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.tools.paths import DECODERS

from .generating import randomize
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
# Jinja removes one newline at the end of a template.
CHAT = """<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer \
can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: INSTRUCTION
<Query>: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<Document>: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|im_end|>
<|im_start|>assistant
<think>

</think>


"""
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
         r"|\s+")  # fmt: skip
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]


def make_tokenizer() -> hf.PreTrainedTokenizerFast:
    """Return a small tokenizer with the steps of Qwen3's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)  # fmt: skip
    texts = [START, END, BODY, *INSTRUCTIONS, "yes no yes no", *(text for pair in PAIRS for text in pair)]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[2])
    fast.chat_template = CHAT.replace("INSTRUCTION", INSTRUCTIONS[0])
    return fast


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
    """Write the folder."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    config = hf.Qwen3Config(vocab_size=len(tokenizer) + 7, hidden_size=16, intermediate_size=22, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, head_dim=6, max_position_embeddings=1024,
                            tie_word_embeddings=True, bos_token_id=None, eos_token_id=2)  # fmt: skip
    model = hf.Qwen3ForCausalLM(config)
    with torch.no_grad():
        randomize(model)
    shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        tokenizer.save_pretrained(plain)
        yes, no = tokenizer.convert_tokens_to_ids(["yes", "no"])
        encoder = CrossEncoder(modules=[Transformer(plain, transformer_task="text-generation"), LogitScore(yes, no)],
                               activation_fn=torch.nn.Identity(), device="cpu")  # fmt: skip
        encoder.save_pretrained(str(FOLDER))
    model = model.double().eval()
    expected = [{"instruction": instruction, "max_length": longest,
                 "logits": scores(model, tokenizer, instruction, longest)}
                for instruction in INSTRUCTIONS for longest in LENGTHS]  # fmt: skip
    again = CrossEncoder(str(FOLDER), device="cpu").predict(list(PAIRS))
    difference = np.abs(again - np.subtract(*np.array(expected[0]["logits"]).T)).max()
    if difference > 1e-4:
        raise SystemExit(f"sentence-transformers gives other scores: {again}, {difference}")
    (FOLDER / "expected.json").write_text(json.dumps({"pairs": PAIRS, "scores": expected}, ensure_ascii=False, indent=1)
                                          + "\n", encoding="utf-8")  # fmt: skip
    (FOLDER / "README.md").unlink(missing_ok=True)
    print(np.array(expected[0]["logits"]), difference)


if __name__ == "__main__":
    main()
