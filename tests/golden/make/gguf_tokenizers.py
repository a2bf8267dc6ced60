"""Make the golden ids of small tokenizers as GGUF files hold them, in the environment of tokenizers.py.

    python -m tests.golden.make.gguf_tokenizers

tokenizers/gguf/NAME.json has the settings of a file, as llama.cpp's converter writes them for a tokenizer that is
trained here, and `TEXTS` and `MORE`, each with the ids that transformers gives.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.tools.paths import GGUF_TOKENIZERS

from .tokenizers import BRACKETS, CORPUS, TEXTS, spm, wordpiece

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens, as a GGUF file numbers them."""
MORE = [
    "a  b   c    d", "\n x\n\n y\n\n\n z \n", "12 123 1234 12345", " 1 22  333", "x=1;\r\n\r\n\ty = 'don''t'",
    "DON'T we'LL", "<start_of_turn>user\n Hi <end_of_turn>\n<start_of_turn>model\n", "a <table> b<table>c",
    "<|user|>\n Hello <|end|>\n<|assistant|>\n  ok", "<|endoftext|>\n the cat<|endoftext|> sleeps", "e\u0301 \u212b ﬁ",
]
SPECIAL = "<|endoftext|>"
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
"""How the published tokenizers of OLMo 2 and StableLM 2 split a text; they differ in DIGITS."""


def split_words(digits: str) -> pre_tokenizers.PreTokenizer:
    """Return the step that splits by `WORDS`."""
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS.replace("DIGITS", digits)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2_words(*before: pre_tokenizers.PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """Return the step that splits as GPT-2, after other steps."""
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])


def byte_level(pre: str, splitter: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None,
               spaces: range = range(0)) -> tuple[dict[str, Any], Any]:
    """Train BPE over bytes; spaces: how many spaces each of some added tokens has."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = splitter, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, min_frequency=2, special_tokens=[SPECIAL], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in spaces])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    types = [CONTROL if text == SPECIAL else USER_DEFINED if not text.strip(" ") else NORMAL for text in tokens]
    return {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": types,
            "merges": [" ".join(pair) for pair in merges], "bos_token_id": 0, "eos_token_id": 0}, (
        lambda text: tokenizer.encode(text).ids)


def pieces(tokenizer: Any, path: Path, **more: Any) -> dict[str, Any]:
    """Return the settings of a tokenizer of SentencePiece."""
    model = sentencepiece.SentencePieceProcessor(str(path))
    count = model.get_piece_size()
    tokens = [model.id_to_piece(i) for i in range(count)]
    scores = [model.get_score(i) for i in range(count)]
    types = [UNKNOWN if model.is_unknown(i) else CONTROL if model.is_control(i) else
             BYTE if model.is_byte(i) else NORMAL for i in range(count)]
    for i, token in sorted(tokenizer.added_tokens_decoder.items()):
        if i >= len(tokens):
            tokens, scores, types = ([*own, None] for own in (tokens, scores, types))
        tokens[i], scores[i] = token.content, -1000.0
        types[i] = CONTROL if token.special else USER_DEFINED
        if not token.special:
            tokens[i] = token.content.replace("▁", " ")
    return {"model": "llama", "pre": "default", "tokens": tokens, "scores": scores, "token_type": types, **more}


def gemma(**options: Any) -> tuple[dict[str, Any], Any]:
    """Train the tokenizer of Gemma, whose runs of spaces and of line feeds are pieces."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "tokenizer.model")
        spm(Path(place), path.name, "", model_type="bpe", vocab_size=800, byte_fallback=True, split_digits=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
            add_dummy_prefix=False, hard_vocab_limit=True, pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>",
            eos_piece="<eos>", bos_piece="<bos>", control_symbols=["<start_of_turn>", "<end_of_turn>"],
            user_defined_symbols=["<mask>", "\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "<table>"])  # fmt: skip
        tokenizer = transformers.GemmaTokenizerFast(
            vocab_file=str(path), additional_special_tokens=["<start_of_turn>", "<end_of_turn>"], **options)
        own = {f"{name}_token_id": i for i, name in enumerate(("padding", "eos", "bos", "unknown"))}
        return pieces(tokenizer, path, **own, add_bos_token=True, add_space_prefix=False,
                      add_eos_token=options.get("add_eos_token", False)), lambda text: tokenizer(text)["input_ids"]


def phi3() -> tuple[dict[str, Any], Any]:
    """Train the tokenizer of Phi-3: Llama's, with control tokens that take the white space behind them."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "tokenizer.model")
        spm(Path(place), path.name, "", model_type="bpe", vocab_size=800, byte_fallback=True, split_digits=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
            hard_vocab_limit=True)  # fmt: skip
        names = [SPECIAL, "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]
        added = {0: "<unk>", 1: "<s>", 2: "</s>", **{800 + i: name for i, name in enumerate(names)}}
        tokenizer = transformers.LlamaTokenizerFast(
            vocab_file=str(path), add_prefix_space=True, add_bos_token=False, eos_token=SPECIAL, pad_token=SPECIAL,
            added_tokens_decoder={i: AddedToken(name, rstrip=name not in ("<unk>", "<s>", SPECIAL), normalized=False,
                                                special=name != "</s>") for i, name in added.items()})
        return pieces(tokenizer, path, bos_token_id=1, eos_token_id=800, unknown_token_id=0, padding_token_id=800,
                      add_bos_token=False, add_eos_token=False), lambda text: tokenizer(text)["input_ids"]


def bert(lowercase: bool) -> tuple[dict[str, Any], Any]:
    """Train WordPiece, whose tokens inside of a word have no mark in a file, and the others a space in front."""
    with tempfile.TemporaryDirectory() as place:
        wordpiece(Path(place), BRACKETS, lowercase=lowercase)
        tokenizer = transformers.BertTokenizerFast(vocab_file=f"{place}/vocab.txt", do_lower_case=lowercase)
        words = Path(place, "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens = [word if word in BRACKETS else word[2:] if word.startswith("##") else f"▁{word}" for word in words]
    roles = {f"{name}_token_id": words.index(word) for name, word in zip(
        ("padding", "unknown", "bos" if lowercase else "cls", "seperator", "mask"), BRACKETS, strict=True)}
    return {"model": "bert", "pre": "jina-v2-en", "tokens": tokens, "token_type_count": 2, **roles,
            "token_type": [CONTROL if word in BRACKETS else NORMAL for word in words],
            **({} if lowercase else {"normalizer.lowercase": False})}, lambda text: tokenizer(text)["input_ids"]


MADE = {
    "bert": ("nomic-bert", lambda: bert(True)),
    "bert_cased": ("bert", lambda: bert(False)),
    "gemma": ("gemma3", gemma),
    "gemma_embedding": ("gemma-embedding", lambda: gemma(add_eos_token=True)),
    "gpt_neox": ("gptneox", lambda: byte_level("olmo", gpt2_words(), normalizers.NFC(), range(2, 9))),
    "olmo2": ("olmo2", lambda: byte_level("dbrx", split_words(r"\p{N}{1,3}"))),
    "phi3": ("phi3", phi3),
    "stablelm2": ("stablelm", lambda: byte_level("stablelm2", split_words(r"\p{N}"), normalizers.NFC())),
    "starcoder2": ("starcoder2", lambda: byte_level("starcoder", gpt2_words(
        pre_tokenizers.Digits(individual_digits=True)))),
}
"""The tokenizers, each with an architecture of GGUF files that have it."""


def main() -> None:
    """Write all files."""
    GGUF_TOKENIZERS.mkdir(exist_ok=True)
    for name, (architecture, make) in MADE.items():
        own, ids_of = make()
        settings = {"general.architecture": architecture} | {f"tokenizer.ggml.{key}": own[key] for key in own}
        lines = [json.dumps([text, ids_of(text)], ensure_ascii=False) for text in [*TEXTS, *MORE]]
        (GGUF_TOKENIZERS / f"{name}.json").write_text(
            f'{{"settings": {json.dumps(settings, ensure_ascii=False)},\n"texts": [\n' + ",\n".join(lines) + "\n]}\n",
            encoding="utf-8")


if __name__ == "__main__":
    main()
