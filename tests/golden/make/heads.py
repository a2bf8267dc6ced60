"""Make the golden models of heads: tiny models of each family, trained until their labels differ, and their answers.

    python -m tests.golden.make.heads [NAME ...]

A folder of tests/golden/heads has config.json and, in expected.json, the tokenizer, the task and whether the model is a
cross-encoder; its model is made from them. The script writes model.safetensors, and into expected.json what the
pipelines of transformers, or the CrossEncoder of sentence-transformers, return for the texts of
tests/tools/head_texts.py. tests/golden/heads/tokenizers has one tokenizer for each kind of vocabulary. transformers 5
has no pipeline for questions; heads_answers.py, which needs transformers 4, writes those answers.
"""

import copy
import functools
import inspect
import json
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from sentence_transformers import CrossEncoder

from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread

LIMIT = 96
"""The most tokens of a text."""
VOCAB = 320
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40, "max_position_embeddings": 104, "pad_token_id": 0}
STEPS = {"eurobert_bos": 300, "t5_tag": 200}
"""The steps of the training where they are not 60; tags need half of them and answers twice as many."""


@dataclass(frozen=True)
class Golden:
    """One golden model, as its config.json and the settings in its expected.json describe it."""

    name: str

    @property
    def folder(self) -> Path:
        return HEADS / self.name

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What expected.json says of the model: its tokenizer, its task, and whether it is a cross-encoder."""
        values = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        return {name: values[name] for name in ("tokenizer", "task", "pairs")}

    @cached_property
    def config(self) -> Any:
        """The config of transformers."""
        return hf.AutoConfig.from_pretrained(self.folder, attn_implementation="eager")


MODELS = tuple(sorted(path.parent.name for path in HEADS.glob("*/expected.json")
                      if not path.parent.name.endswith("_pieces")))
"""The folders in tests/golden/heads, beside those of embedders.py."""


# Tokenizers


def open_tokenizer(name: str, **options: Any) -> Any:
    """Return a tokenizer of transformers; a vocabulary of pieces has other special tokens than one of words."""
    names = ("pad", "unk", "cls", "sep", "mask")
    tokens = [f"[{token.upper()}]" for token in names] if name == "wordpiece" else [
        "<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    inputs = ["input_ids", *["token_type_ids"] * (name == "wordpiece"), "attention_mask"]
    return hf.PreTrainedTokenizerFast(
        model_input_names=inputs,
        tokenizer_file=str(HEADS / "tokenizers" / f"{name}.json"), model_max_length=LIMIT,
        **{f"{key}_token": token for key, token in zip(names, tokens, strict=True)}, **options)


# Training


def batch_of(golden: Golden, tokenizer: Any, rng: random.Random) -> dict[str, Any]:
    """Return a batch with labels that a small model can learn."""
    rows = [texts.sentence(rng.randrange(10**6), rng.randrange(3, 24)) for _ in range(24)]
    second = [texts.sentence(rng.randrange(10**6), rng.randrange(3, 12)) for _ in rows] if (
        golden.settings["pairs"] or golden.settings["task"] == "answer") else None
    batch = tokenizer(rows, second, padding=True, truncation=True, return_tensors="pt", return_offsets_mapping=True)
    offsets = batch.pop("offset_mapping")
    if golden.settings["task"] == "classify":
        good = torch.tensor([sum(word in row for word in texts.GOOD) - sum(word in row for word in texts.BAD)
                             for row in rows])
        if golden.settings["pairs"]:
            good = torch.tensor([len(set(row.split()) & set(other.split())) - 2 for row, other in
                                 zip(rows, second or rows, strict=True)])
        n = golden.config.num_labels
        if golden.config.problem_type == "multi_label_classification":
            batch["labels"] = torch.stack([good > 0, good < 0, good == 0], 1).float()
        else:
            batch["labels"] = good.float() if n == 1 else torch.where(good > 0, 1, torch.where(good < 0, 0, 2))
    elif golden.config.architectures == ["ElectraForPreTraining"]:
        hidden = (torch.rand(batch["input_ids"].shape) < 0.3) & batch["attention_mask"].bool()
        batch["labels"] = hidden.long()
        batch["input_ids"][hidden] = torch.randint(5, VOCAB, batch["input_ids"].shape)[hidden]
    elif golden.settings["task"] == "tag":
        labels = torch.zeros(batch["input_ids"].shape, dtype=torch.long)
        for i, row in enumerate(rows):
            for t, (start, end) in enumerate(offsets[i].tolist()):
                labels[i, t] = _tag(row, start, end)
        batch["labels"] = labels
    elif golden.settings["task"] == "answer":
        starts, ends = [], []
        for i, text in enumerate(second or []):
            inside = [t for t, number in enumerate(batch.sequence_ids(i)) if number == 1]
            named = [t for t in inside if _tag(text, *offsets[i][t].tolist()) in (1, 2)]
            starts.append(named[0] if named else 0)
            ends.append(min(named[0] + 2, inside[-1]) if named else 0)
        batch["start_positions"], batch["end_positions"] = torch.tensor(starts), torch.tensor(ends)
    else:
        batch["labels"] = batch["input_ids"].clone()
        hidden = torch.rand(batch["labels"].shape) < 0.2
        if golden.config.model_type == "esm":      # whose rule for masks counts those at padding, too
            hidden &= batch["attention_mask"].bool()
        batch["input_ids"][hidden] = tokenizer.mask_token_id
    return dict(batch)


def _tag(text: str, start: int, end: int) -> int:
    if start == end:
        return 0
    while start < end and text[start] == " ":
        start += 1
    word = text[text.rfind(" ", 0, start + 1) + 1 :].split(" ")[0]
    first = start == 0 or text[start - 1] == " "
    return (1 if first else 2) if word in texts.PEOPLE else (3 if first else 4) if word in texts.PLACES else (
        5 if word in texts.GOOD + texts.BAD else 0)


def train(golden: Golden, tokenizer: Any) -> Any:
    """Return a trained model."""
    rng = random.Random(0)
    torch.manual_seed(0)
    config = copy.deepcopy(golden.config)
    dtype, config.dtype = config.dtype, None
    model = getattr(hf, config.architectures[0])(config)
    with torch.no_grad():       # biases are zero at first, and a mistake with them would not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    accepted = set(inspect.signature(model.forward).parameters)
    steps = STEPS.get(golden.name, 60)
    for _ in range({"answer": 2 * steps, "tag": steps // 2}.get(golden.settings["task"], steps)):
        batch = {name: value for name, value in batch_of(golden, tokenizer, rng).items() if name in accepted
                 or name == "labels"}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"    loss {loss.item():.3f}")
    return model.eval().to(dtype)


# What is expected


def plain(value: Any) -> Any:
    """Return results as JSON has them: floats rounded to 6 digits."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.6g}")
    return int(value) if isinstance(value, np.integer) else value


def expected(golden: Golden, folder: Path, model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return what the other library gives for the texts."""
    if golden.settings["pairs"]:
        return _expected_pairs(folder)
    if golden.settings["task"] == "answer":
        return {}
    short = {"truncation": True, "max_length": LIMIT}
    if golden.settings["task"] == "classify":
        pipe = hf.pipeline("text-classification", model=model, tokenizer=tokenizer)
        logits = []
        for text in texts.TEXTS:
            with torch.inference_mode():
                logits.append(model(**tokenizer(text, return_tensors="pt", **short)).logits[0].numpy())
        return {"logits": logits, "best": [pipe([text], **short)[0] for text in texts.TEXTS],
                "all": [pipe([text], top_k=None, **short)[0] for text in texts.TEXTS]}
    if golden.settings["task"] == "tag":
        if isinstance(model, hf.ElectraForPreTraining):
            tell_replaced(model)
        pipe = hf.pipeline("token-classification", model=model, tokenizer=tokenizer)
        found = {strategy: [pipe(text, aggregation_strategy=strategy) for text in texts.TEXTS[:-2]]
                 for strategy in ("none", "simple", "first", "average", "max")}
        found["stride"] = [pipe(text, aggregation_strategy="first", stride=16) for text in texts.WINDOWED]
        found["all_labels"] = [pipe(text, ignore_labels=[]) for text in texts.TEXTS[:4]]
        found["words"] = [pipe([words], is_split_into_words=True, aggregation_strategy="simple")[0]
                          for words in texts.WORDS]
        return found
    pipe = hf.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    masked = [text.replace("{}", tokenizer.mask_token) for text in texts.MASKED]
    return {"words": [pipe(text) for text in masked], "three": [pipe(text, top_k=3) for text in masked],
            "targets": [pipe(text, targets=["a", "e", "i"]) for text in masked]}


def tell_replaced(model: Any) -> None:
    """Make ELECTRA's discriminator, which gives a token x, a model of two labels with logits [0, x]."""
    one = model.forward

    @functools.wraps(one)
    def two(*args: Any, **options: Any) -> dict[str, Any]:
        x = one(*args, **options).logits
        return {"logits": torch.stack([torch.zeros_like(x), x], -1)}

    model.forward, model.config.id2label = two, {0: "O", 1: "REPLACED"}


def _expected_pairs(folder: Path) -> dict[str, Any]:
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    pairs = [list(pair) for pair in texts.PAIRS]
    found: dict[str, Any] = {"scores": model.predict(pairs), "softmax": model.predict(pairs, apply_softmax=True),
                             "logits": model.predict(pairs, activation_fn=torch.nn.Identity())}
    if model.num_labels == 1:
        found["rank"] = model.rank(texts.PAIRS[0][0], [second for _, second in texts.PAIRS], return_documents=False)
    return found


def save(golden: Golden) -> None:
    """Write model.safetensors and expected.json; config.json stays as it is."""
    tokenizer = open_tokenizer(golden.settings["tokenizer"])
    if golden.config.pad_token_id == tokenizer.sep_token_id:      # as models without a token of their own have it
        tokenizer.pad_token = "</s>"
    model = train(golden, tokenizer)
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
        shutil.copy(golden.folder / "config.json", place)
        tokenizer.save_pretrained(place)
        kind = type(model)
        model = kind.from_pretrained(place, dtype=torch.float32, attn_implementation="eager").eval()
        found = plain(expected(golden, Path(place), model, tokenizer))
        shutil.copy(Path(place, "model.safetensors"), golden.folder)
    text = json.dumps(golden.settings | found, ensure_ascii=False, separators=(",", ":"))
    (golden.folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    one_quiet_thread()
    for name in sys.argv[1:] or MODELS:
        print(name, flush=True)
        save(Golden(name))


if __name__ == "__main__":
    main()
