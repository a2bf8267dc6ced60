"""Make the golden models of heads: tiny models of each family, trained until their labels differ, and their answers.

    python -m tests.golden.make.heads [NAME ...]

Each folder of tests/golden/heads has config.json, model.safetensors in bfloat16 or float32, and expected.json with what
the pipelines of transformers, or the CrossEncoder of sentence-transformers, return for the texts of
tests/tools/head_texts.py. tests/golden/heads/tokenizers has one tokenizer for each kind of vocabulary. transformers 5
has no pipeline for questions; heads_answers.py, which needs transformers 4, writes those answers.
"""

import inspect
import json
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers as hf
from sentence_transformers import CrossEncoder
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread

LIMIT = 96
"""The most tokens of a text."""
VOCAB = 320
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "FEEL")
CLASSES = ("dull", "lively", "neither")
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
         "intermediate_size": 40, "max_position_embeddings": 104, "pad_token_id": 0}
KINDS = {"classify": "SequenceClassification", "tag": "TokenClassification", "answer": "QuestionAnswering",
         "fill_mask": "MaskedLM"}


@dataclass(frozen=True)
class Golden:
    """One golden model."""

    family: str
    """What the names of the family's classes in transformers begin with."""
    task: str
    tokenizer: str
    config: dict[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    pairs: bool = False
    """Whether it is a cross-encoder."""
    dtype: torch.dtype = torch.bfloat16
    steps: int = 60
    """The steps of its training; tags need half of them and answers twice as many."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What config.json says besides."""
    pad: str | None = None
    """Another token that fills a batch: that which ends a text, as models without one of their own have it."""


def _family(name: str, family: str, tokenizer: str, config: dict[str, Any] | None = None,
            tasks: tuple[str, ...] = tuple(KINDS)) -> dict[str, Golden]:
    return {f"{name}_{task}": Golden(family, task, tokenizer, config or {}) for task in tasks}


DISTIL = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40}
NO_ANSWERS = ("classify", "tag", "fill_mask")
MODERN = {"global_attn_every_n_layers": 2, "local_attention": 16, "cls_token_id": 2, "sep_token_id": 3,
          "bos_token_id": 2, "eos_token_id": 3}
QWEN3 = {"num_key_value_heads": 3, "head_dim": 8}
BART = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "bos_token_id": 2,
        "eos_token_id": 3, "decoder_start_token_id": 3, "forced_eos_token_id": 3}
ESM = {"mask_token_id": 4, "position_embedding_type": "rotary", "token_dropout": True, "layer_norm_eps": 1e-5}
EURO = {"num_key_value_heads": 3, "head_dim": 8, "bos_token_id": 2, "eos_token_id": 3, "mask_token_id": 4}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16, "share_att_key": True,
           "norm_rel_ebd": "layer_norm", "position_biased_input": False, "type_vocab_size": 0, "pooler_hidden_size": 24}
MODELS: dict[str, Golden] = {
    **_family("bert", "Bert", "wordpiece"),
    **_family("roberta", "Roberta", "bytes", {"type_vocab_size": 1}),
    **_family("distilbert", "DistilBert", "wordpiece", DISTIL),
    **_family("electra", "Electra", "wordpiece", {"embedding_size": 16}),
    **_family("albert", "Albert", "unigram", {"embedding_size": 16, "num_hidden_layers": 3}),
    **_family("deberta", "DebertaV2", "unigram", DEBERTA),
    **_family("mpnet", "MPNet", "wordpiece", {"pad_token_id": 1}),
    **_family("modernbert", "ModernBert", "bytes", MODERN),
    **_family("eurobert", "EuroBert", "bytes", EURO, NO_ANSWERS),
    **_family("nomic", "NomicBert", "wordpiece", {"head_dim": 8}, NO_ANSWERS),
    **_family("jina_v3", "JinaEmbeddingsV3", "unigram", {"type_vocab_size": 1, "pad_token_id": 1}, NO_ANSWERS),
    **_family("gte", "Gte", "wordpiece", {}, NO_ANSWERS),
    **_family("qwen3", "Qwen3", "bytes", QWEN3, ("classify", "tag", "answer")),
    **_family("esm", "Esm", "unigram", ESM, ("classify", "fill_mask")),
    **_family("deberta1", "Deberta", "bytes", {
        "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False,
        "type_vocab_size": 0, "pooler_hidden_size": 24}, ("classify", "fill_mask")),
    **_family("big_bird", "BigBird", "unigram", {"attention_type": "block_sparse", "block_size": 16},
              ("classify", "fill_mask")),
    **_family("bart", "Bart", "bytes", BART, ("classify", "answer")),
    **_family("xlm_roberta", "XLMRoberta", "unigram", {"type_vocab_size": 1, "pad_token_id": 1}, NO_ANSWERS),
    **_family("camembert", "Camembert", "unigram", {"type_vocab_size": 1, "pad_token_id": 1}, ("tag", "fill_mask")),
    "llama_classify": Golden("Llama", "classify", "bytes", QWEN3),
    "mistral_classify": Golden("Mistral", "classify", "bytes", QWEN3),
    "qwen2_classify": Golden("Qwen2", "classify", "bytes", {"num_key_value_heads": 3}),
    "qwen3_pads": Golden("Qwen3", "classify", "bytes", QWEN3 | {"pad_token_id": 3}, pad="</s>"),
    "qwen3_pairs": Golden("Qwen3", "classify", "bytes", QWEN3 | {"pad_token_id": 3}, ("LABEL_0",), pairs=True,
                          pad="</s>"),
    "deberta_own_words": Golden("DebertaV2", "fill_mask", "unigram", {
        "relative_attention": True, "pos_att_type": ["c2p"], "position_biased_input": False, "legacy": False}),
    "modernbert_mean": Golden("ModernBert", "classify", "bytes", MODERN | {
        "classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True, "classifier_activation": "silu"}),
    "eurobert_bos": Golden("EuroBert", "classify", "bytes", EURO | {"classifier_pooling": "bos"}, steps=300),
    "eurobert_mean": Golden("EuroBert", "classify", "bytes", EURO | {"classifier_pooling": "mean"}),
    "t5_tag": Golden("T5", "tag", "unigram", {"d_ff": 40, "d_kv": 8, "decoder_start_token_id": 0}, steps=200),
    "bert_several": Golden("Bert", "classify", "wordpiece", {"problem_type": "multi_label_classification"}),
    "bert_untied": Golden("Bert", "fill_mask", "wordpiece", {"tie_word_embeddings": False}),
    "bert_regression": Golden("Bert", "classify", "wordpiece", {"problem_type": "regression"}, ("score",)),
    "bert_one": Golden("Bert", "classify", "wordpiece", {}, ("good",)),
    "bert_pairs": Golden("Bert", "classify", "wordpiece", {}, ("LABEL_0",), pairs=True, dtype=torch.float32),
    "bert_pairs_identity": Golden("Bert", "classify", "wordpiece", {}, ("LABEL_0",), pairs=True, extra={
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
    "bert_pairs_three": Golden("Bert", "classify", "wordpiece", {}, CLASSES, pairs=True),
    "xlm_roberta_pairs": Golden("XLMRoberta", "classify", "unigram", {"type_vocab_size": 1, "pad_token_id": 1},
                                ("LABEL_0",), pairs=True),
    "electra_pairs": Golden("Electra", "classify", "wordpiece", {"embedding_size": 16}, ("LABEL_0",), pairs=True),
    "gte_pairs": Golden("Gte", "classify", "unigram", {}, ("LABEL_0",), pairs=True),
    "deberta_pairs": Golden("DebertaV2", "classify", "unigram", DEBERTA, ("LABEL_0",), pairs=True),
    "modernbert_pairs": Golden("ModernBert", "classify", "bytes", MODERN | {"classifier_pooling": "mean"},
                               ("LABEL_0",), pairs=True, extra={
        "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh", "version": "5.0.0"}}),
}


# Tokenizers


def corpus() -> list[str]:
    return [texts.sentence(seed, 12) for seed in range(300)] + [text for text in texts.TEXTS if len(text) < 400]


def make_tokenizers() -> None:
    """Write one tokenizer for each kind of vocabulary."""
    HEADS.joinpath("tokenizers").mkdir(parents=True, exist_ok=True)
    made = {"wordpiece": _wordpiece(), "bytes": _bytes(), "unigram": _unigram()}
    for name, tokenizer in made.items():
        tokenizer.save(str(HEADS / "tokenizers" / f"{name}.json"))
        print(name, tokenizer.get_vocab_size())


def _wordpiece() -> tokenizers.Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=special,
                                                                      show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _bytes() -> tokenizers.Tokenizer:
    special = ["<pad>", "<unk>", "<s>", "</s>", AddedToken("<mask>", lstrip=True)]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=special,
                                                                initial_alphabet=alphabet, show_progress=False))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 3), ("<s>", 2), trim_offsets=True,
                                                            add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram() -> tokenizers.Tokenizer:
    special = ["<pad>", "<unk>", "<s>", "</s>", AddedToken("<mask>", lstrip=True)]
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=VOCAB, special_tokens=special,
                                                                    unk_token="<unk>", show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


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
        golden.pairs or golden.task == "answer") else None
    batch = tokenizer(rows, second, padding=True, truncation=True, return_tensors="pt", return_offsets_mapping=True)
    offsets = batch.pop("offset_mapping")
    if golden.task == "classify":
        good = torch.tensor([sum(word in row for word in texts.GOOD) - sum(word in row for word in texts.BAD)
                             for row in rows])
        if golden.pairs:
            good = torch.tensor([len(set(row.split()) & set(other.split())) - 2 for row, other in
                                 zip(rows, second or rows, strict=True)])
        n = len(golden.labels or CLASSES)
        problem = golden.config.get("problem_type")
        if problem == "multi_label_classification":
            batch["labels"] = torch.stack([good > 0, good < 0, good == 0], 1).float()
        else:
            batch["labels"] = good.float() if n == 1 else torch.where(good > 0, 1, torch.where(good < 0, 0, 2))
    elif golden.task == "tag":
        labels = torch.zeros(batch["input_ids"].shape, dtype=torch.long)
        for i, row in enumerate(rows):
            for t, (start, end) in enumerate(offsets[i].tolist()):
                labels[i, t] = _tag(row, start, end)
        batch["labels"] = labels
    elif golden.task == "answer":
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
        if golden.family == "Esm":      # whose rule for masks counts those at padding, too
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
    sizes = SIZES | DISTIL | golden.config if golden.family == "DistilBert" else SIZES | golden.config
    kind = getattr(hf, f"{golden.family}For{KINDS[golden.task]}")
    labels = golden.labels or {"classify": CLASSES, "tag": TAGS}.get(golden.task, ("LABEL_0", "LABEL_1"))
    config = kind.config_class(**sizes, id2label=dict(enumerate(labels)), attn_implementation="eager",
                               label2id={label: i for i, label in enumerate(labels)})
    model = kind(config)
    with torch.no_grad():       # biases are zero at first, and a mistake with them would not show
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    accepted = set(inspect.signature(kind.forward).parameters)
    for _ in range({"answer": 2 * golden.steps, "tag": golden.steps // 2}.get(golden.task, golden.steps)):
        batch = {name: value for name, value in batch_of(golden, tokenizer, rng).items() if name in accepted
                 or name == "labels"}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"    loss {loss.item():.3f}")
    return model.eval()


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
    if golden.pairs:
        return _expected_pairs(folder)
    if golden.task == "answer":
        return {}
    short = {"truncation": True, "max_length": LIMIT}
    if golden.task == "classify":
        pipe = hf.pipeline("text-classification", model=model, tokenizer=tokenizer)
        logits = []
        for text in texts.TEXTS:
            with torch.inference_mode():
                logits.append(model(**tokenizer(text, return_tensors="pt", **short)).logits[0].numpy())
        return {"logits": logits, "best": [pipe([text], **short)[0] for text in texts.TEXTS],
                "all": [pipe([text], top_k=None, **short)[0] for text in texts.TEXTS]}
    if golden.task == "tag":
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


def _expected_pairs(folder: Path) -> dict[str, Any]:
    model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    pairs = [list(pair) for pair in texts.PAIRS]
    found: dict[str, Any] = {"scores": model.predict(pairs), "softmax": model.predict(pairs, apply_softmax=True),
                             "logits": model.predict(pairs, activation_fn=torch.nn.Identity())}
    if model.num_labels == 1:
        found["rank"] = model.rank(texts.PAIRS[0][0], [second for _, second in texts.PAIRS], return_documents=False)
    return found


def save(name: str, golden: Golden) -> None:
    tokenizer = open_tokenizer(golden.tokenizer)
    if golden.pad is not None:
        tokenizer.pad_token = golden.pad
    model = train(golden, tokenizer)
    folder = HEADS / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        model.to(golden.dtype).save_pretrained(place)
        values = json.loads(Path(place, "config.json").read_text(encoding="utf-8")) | golden.extra
        Path(place, "config.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        tokenizer.save_pretrained(place)
        kind = type(model)
        model = kind.from_pretrained(place, dtype=torch.float32, attn_implementation="eager").eval()
        found = plain(expected(golden, Path(place), model, tokenizer))
        folder.mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(Path(place, file), folder / file)
    settings = {"tokenizer": golden.tokenizer, "task": golden.task, "pairs": golden.pairs}
    text = json.dumps(settings | found, ensure_ascii=False, separators=(",", ":"))
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    one_quiet_thread()
    if not HEADS.joinpath("tokenizers").exists():
        make_tokenizers()
    for name in sys.argv[1:] or MODELS:
        print(name, flush=True)
        save(name, MODELS[name])


if __name__ == "__main__":
    main()
