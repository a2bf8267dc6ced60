"""Make the golden files of the tokenizers that the engine builds from vocabulary files.

    python -m tests.golden.make.tokenizers            write the folders of `MODELS`
    python -m tests.golden.make.tokenizers --compare  print where this version of transformers gives other ids

Each folder tokenizers/NAME has the files that an older model folder has, with a small vocabulary that is trained here,
and expected.json: `TEXTS` and `PAIRS`, each with the ids that the fast tokenizer of transformers 4 gives. The files
called tokenizer.json of the hub come from the same code. Version 5 converts some classes in another way: run --compare
with it. The folders of `OF_VERSION_5` have its ids; new_tokenizers.py writes them.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

from tests.tools.paths import TOKENIZERS

CORPUS = [
    "The quick brown fox jumps over the lazy dog while the cat sleeps in the warm sun.",
    "A model reads a sentence and turns it into a vector of numbers.",
    "Two sentences with the same meaning should have vectors that lie close together.",
    "In 1984 the price was 1,234.50 dollars; today it's 9,999, or even more!",
    "She said: \"I don't know whether we'll find what we're looking for.\"",
    "Computers, libraries, kernels, threads, caches and memory: all of them matter.",
    "Die Straße führt über die große Brücke zum Fluss, und der Müller grüßt die Köchin.",
    "Ein schöner Tag beginnt früh; wir hören die Vögel und trinken heißen Tee.",
    "Grüße aus München! Äpfel, Öl und Übermut kosten heute nur 3,50 Euro.",
    "Le garçon a mangé une crêpe à la fête, où l'été était déjà très chaud.",
    "El niño pequeño comió una manzana mañana por la mañana.",
    "我们今天去北京看长城。天气很好,大家都很高兴。",
    "这个模型可以把句子变成向量。机器学习很有意思。",
    "今日は天気がいいですね。カタカナとひらがなを読みます。",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "मैं आज बाज़ार जा रहा हूँ।",
    "ذهب الولد إلى المدرسة صباحا.",
    "Emoji: 😀 😃 🎉 🚀 👍 and more 😀😀.",
    "fast faster fastest; slow slower slowest; quick quickly quickness",
    "reading writes written writing reader writer readers writers",
]

TEXTS = [
    "", " ", "   \t\n ", "a", "The cat sleeps.", "the CAT sleeps in THE sun!!!", "  leading and trailing  ",
    "many     spaces   here", "tabs\tand\nnew\r\nlines\r", "no\u00a0break\u2009thin\u3000wide\u202fnarrow\u205fmath",
    "zero\u200bwidth\u200djoin\u2060er\ufeffbom", "soft\u00adhyphen", "bell\x07 nul\x00 del\x7f esc\x1b[0m c1\x85next",
    "\ufffd replacement", "Grüße aus München, Straße! ÄÖÜ äöü ß ẞ", "Gru\u0308ße decomposed e\u0301",
    "crêpe garçon niño ñandú", "İstanbul ıI ſ ŉ", "北京的天气很好。", "我们 go to 长城 today",
    "ｆｕｌｌ ｗｉｄｔｈ １２３！",
    "ﬁne ﬂow oﬃce ① ② ½ ㍿ ™", "ｶﾀｶﾅ カタカナ ひらがな", "가나다 한국어", "Быстрая лиса", "मैं बाज़ार", "ذهب الولد",
    "ﷺ", "😀 🎉🚀", "👨\u200d👩\u200d👧\u200d👦 🇩🇪 👍🏽", "1,234, 9, 10,000.50, 1984,", "9, a, 9,9 ,9",
    "``quoted'' ''twice``",
    "it's don't we'll I'M they'VE", "e-mail: a.b@c-d.org; https://x.y/z?q=1&r=2#s", "under_score CamelCase snake-case",
    "...!!!???---***", "$5 + €6 < £7 = ¥8 ~ ^ | `", "supercalifragilistic" * 3, "x" * 150, "ab" * 60,
    "[CLS] the cat [SEP] [MASK] [PAD] [UNK]", "<s> the cat </s> <mask> <pad> <unk>", "a<mask>b a [MASK] b[MASK]c",
    "[cls] [Mask] <S> <MASK>", "<extra_id_0> x <extra_id_99>", "▁ lower one eighth ▁block",
    "a\u0301\u0302\u0303 z\u0335",
    "𝒜𝓑 𝟙𝟚 𠀀𠀁", "\u0e01\u0e33 ไทย", "unbelievably quickness faster readers", "##ing ing ##", "a ▁b c▁ d",
    "The cat sleeps.\u2028Next\u2029one", "brand_new <ent> NewWord newword",
]
PAIRS = [("the cat", "sleeps in the sun"), ("", "北京"), ("Grüße", " "), ("a b ", " c d")]
# transformers takes an empty second text for none.

BRACKETS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
RULES = "FF01\t21\nFF21\t41\n9\t20\nA\t20\nA0\t20\n3000\t20\nFB01\t66 69\n2460\t31\n200B\t\n"
"""A small table of characters to replace, in hexadecimal, in place of the full one of 240 kB."""


def wordpiece(folder: Path, special: list[str], **options: Any) -> None:
    """Train a vocab.txt."""
    trained = BertWordPieceTokenizer(**options)
    trained.train_from_iterator(CORPUS, vocab_size=700, min_frequency=1, special_tokens=special, show_progress=False)
    words = sorted(trained.get_vocab(), key=trained.get_vocab().get)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def byte_level(folder: Path, special: tuple[str, ...] = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")) -> None:
    """Train a vocab.json and a merges.txt."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(CORPUS, vocab_size=420, min_frequency=2, show_progress=False,
                                special_tokens=list(special))  # fmt: skip
    trained.save_model(str(folder))


def gpt2(folder: Path) -> None:
    """Write GPT-2's tokenizer, which puts nothing around a text."""
    byte_level(folder, ("<|endoftext|>",))


def spm(folder: Path, name: str, rules: str = RULES, **options: Any) -> None:
    """Train a model of SentencePiece, by default a Unigram model of 600 pieces."""
    with tempfile.TemporaryDirectory() as place:
        if rules:
            Path(place, "rules.tsv").write_text(rules, encoding="utf-8")
            options["normalization_rule_tsv"] = f"{place}/rules.tsv"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_prefix=f"{place}/m", character_coverage=1.0, num_threads=1,
            minloglevel=2, **{"vocab_size": 600, "hard_vocab_limit": False} | options)
        shutil.copy(f"{place}/m.model", folder / name)


def settings(folder: Path, **files: Any) -> None:
    """Write JSON files."""
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def bert_uncased(folder: Path) -> None:
    """Write an old folder: no settings at all."""
    wordpiece(folder, BRACKETS, lowercase=True)


def bert_cased(folder: Path) -> None:
    """Write settings of 2020: flags, special_tokens_map.json and added_tokens.json."""
    wordpiece(folder, BRACKETS, lowercase=False)
    size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    settings(folder, tokenizer_config={"do_lower_case": False, "strip_accents": False, "tokenize_chinese_chars": False},
             special_tokens_map={"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
                                 "mask_token": "[MASK]"},
             added_tokens={"<ent>": size, "NewWord": size + 1})  # fmt: skip


def bert_decoder(folder: Path) -> None:
    """Write settings of 2024: added_tokens_decoder."""
    wordpiece(folder, BRACKETS, lowercase=True, strip_accents=False)
    size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    decoder = {str(i): {"content": token, **plain} for i, token in enumerate(BRACKETS)}
    decoder[str(size)] = {"content": "<ent>", **plain, "lstrip": True}
    decoder[str(size + 1)] = {"content": "newword", **plain, "normalized": True, "special": False}
    settings(folder, tokenizer_config={"do_lower_case": True, "strip_accents": False, "model_max_length": 512,
                                       "tokenizer_class": "BertTokenizer", "added_tokens_decoder": decoder})


def mpnet(folder: Path) -> None:
    """Write MPNet's tokenizer: WordPiece with the special tokens of RoBERTa."""
    wordpiece(folder, ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"], lowercase=True)


def xlm_roberta(folder: Path) -> None:
    """Write XLM-RoBERTa's tokenizer, with the normalizer of the real one."""
    spm(folder, "sentencepiece.bpe.model", "", normalization_rule_name="nmt_nfkc")


def camembert(folder: Path) -> None:
    """Write CamemBERT's tokenizer."""
    spm(folder, "sentencepiece.bpe.model")


def albert(folder: Path) -> None:
    """Write ALBERT's tokenizer."""
    spm(folder, "spiece.model", pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]"],
        user_defined_symbols=["[MASK]", "9,"])  # fmt: skip


def t5(folder: Path) -> None:
    """Write T5's tokenizer."""
    spm(folder, "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def deberta_v2(folder: Path) -> None:
    """Write DeBERTa's tokenizer, whose [MASK] is not in the SentencePiece model."""
    spm(folder, "spm.model", pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
        eos_piece="[SEP]", unk_piece="[UNK]")  # fmt: skip
    size = sentencepiece.SentencePieceProcessor(str(folder / "spm.model")).get_piece_size()
    settings(folder, added_tokens={"[MASK]": size}, tokenizer_config={"do_lower_case": False, "vocab_type": "spm"})


def esm(folder: Path) -> None:
    """Write ESM's tokenizer, whose settings name the class."""
    acids = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
    lines = ["<cls>", "<pad>", "<eos>", "<unk>", *acids, "<null_1>", "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    settings(folder, tokenizer_config={"tokenizer_class": "EsmTokenizer", "model_max_length": 1024})


def esm_without_end(folder: Path) -> None:
    """Write a tokenizer as the Nucleotide Transformers have it: words of several letters, and no end token."""
    words = sorted({word[:3] for line in CORPUS for word in line.split()})
    lines = ["<unk>", "<pad>", "<mask>", "<cls>", "<eos>", "<bos>", *words, *"ACGTN"]
    (folder / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    settings(folder, tokenizer_config={
        "tokenizer_class": "EsmTokenizer", "model_max_length": 1000, "cls_token": "<cls>", "eos_token": None,
        "mask_token": "<mask>", "pad_token": "<pad>", "unk_token": "<unk>"})


def byt5(folder: Path) -> None:
    """Write the settings of ByT5's tokenizer, which has no vocabulary."""
    sentinels = [f"<extra_id_{i}>" for i in range(125)]
    settings(folder, tokenizer_config={"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125,
                                       "additional_special_tokens": sentinels})


def deberta(folder: Path) -> None:
    """Write the tokenizer of DeBERTa v1: BPE over bytes with the special tokens of BERT."""
    byte_level(folder, ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"))


def big_bird(folder: Path) -> None:
    """Write BigBird's tokenizer."""
    spm(folder, "spiece.model", pad_id=0, eos_id=1, unk_id=4, bos_id=2,
        user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"])  # fmt: skip


def pegasus(folder: Path) -> None:
    """Write Pegasus' tokenizer, with the normalizer of the real one."""
    spm(folder, "spiece.model", "", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_name="nmt_nfkc")


def blenderbot(folder: Path) -> None:
    """Write Blenderbot's tokenizer, which puts a space in front of a text."""
    byte_level(folder)
    settings(folder, tokenizer_config={"add_prefix_space": True, "model_max_length": 128})


def llama(folder: Path) -> None:
    """Write the tokenizer of Llama 1 and 2: BPE of SentencePiece, with bytes for unknown characters."""
    spm(folder, "tokenizer.model", "", model_type="bpe", vocab_size=800, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
        user_defined_symbols=["<ent>"], hard_vocab_limit=True)  # fmt: skip
    settings(folder, tokenizer_config={"tokenizer_class": "LlamaTokenizer", "add_eos_token": True})


def mistral(folder: Path) -> None:
    """Write the same kind of tokenizer as later models have it: legacy is false, and pad is added."""
    llama(folder)
    settings(folder, tokenizer_config={"tokenizer_class": "LlamaTokenizer", "legacy": False, "pad_token": "<pad>",
                                       "add_bos_token": True, "bos_token": "<s>"})  # fmt: skip


MODELS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "albert": ("albert", "AlbertTokenizerFast", albert),
    "bart": ("bart", "BartTokenizerFast", byte_level),
    "bert_cased": ("bert", "BertTokenizerFast", bert_cased),
    "bert_decoder": ("bert", "BertTokenizerFast", bert_decoder),
    "bert_uncased": ("bert", "BertTokenizerFast", bert_uncased),
    "big_bird": ("big_bird", "BigBirdTokenizerFast", big_bird),
    "blenderbot": ("blenderbot", "BlenderbotTokenizerFast", blenderbot),
    "byt5": ("t5", "ByT5Tokenizer", byt5),
    "camembert": ("camembert", "CamembertTokenizerFast", camembert),
    "deberta": ("deberta", "DebertaTokenizerFast", deberta),
    "deberta_v2": ("deberta-v2", "DebertaV2TokenizerFast", deberta_v2),
    "esm": ("esm", "EsmTokenizer", esm),
    "esm_without_end": ("esm", "EsmTokenizer", esm_without_end),
    "gpt2": ("gpt2", "GPT2TokenizerFast", gpt2),
    "llama": ("llama", "LlamaTokenizerFast", llama),
    "mistral": ("mistral", "LlamaTokenizerFast", mistral),
    "mpnet": ("mpnet", "MPNetTokenizerFast", mpnet),
    "pegasus": ("pegasus", "PegasusTokenizerFast", pegasus),
    "roberta": ("roberta", "RobertaTokenizerFast", byte_level),
    "t5": ("t5", "T5TokenizerFast", t5),
    "xlm_roberta": ("xlm-roberta", "XLMRobertaTokenizerFast", xlm_roberta),
}
"""By folder: model_type, the class of transformers, and the function that writes the files."""
OF_VERSION_5 = ("albert",)
"""The folders with the ids of version 5. Version 4 makes a token of the white space at the end of a text for ALBERT,
which SentencePiece, and with it the model's training, did not see."""


def ids_of(folder: Path, kind: str) -> list[list[int] | None]:
    """Return the ids of all texts and pairs; None for a pair that the class refuses."""
    # Version 4 without "Fast" is another implementation, and version 5 has one class only.
    name = kind if hasattr(transformers, kind) else kind.removesuffix("Fast")
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, place, dirs_exist_ok=True)
        Path(place, "expected.json").unlink(missing_ok=True)
        tokenizer = getattr(transformers, name).from_pretrained(place)
        found: list[list[int] | None] = [tokenizer(text)["input_ids"] for text in TEXTS]
        for pair in PAIRS:
            try:
                found.append(tokenizer(*pair)["input_ids"])
            except ValueError as error:
                if "Cannot tokenize multiple sequences" not in str(error):
                    raise
                found.append(None)
        return found


def compare() -> None:
    """Print the texts for which this version of transformers gives other ids than the golden files."""
    for name, (_, kind, _) in MODELS.items():
        expected = [ids for _, ids in json.loads((TOKENIZERS / name / "expected.json").read_text(encoding="utf-8"))]
        try:
            found = ids_of(TOKENIZERS / name, kind)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        compared = zip([*TEXTS, *PAIRS], expected, found, strict=True)
        other = [(text, one, two) for text, one, two in compared if one != two]
        print(f"{name}: {len(other)} of {len(found)} differ")
        for text, one, two in other:
            print(f"    {text!r}: golden {one}, here {two}")


def main(names: list[str]) -> None:
    """Write the folders named, or all."""
    for name in names or [name for name in MODELS if name not in OF_VERSION_5]:
        model_type, kind, write = MODELS[name]
        folder = TOKENIZERS / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder)
        settings(folder, config={"model_type": model_type})
        lines = [json.dumps([text, ids], ensure_ascii=False)
                 for text, ids in zip([*TEXTS, *PAIRS], ids_of(folder, kind), strict=True)]
        (folder / "expected.json").write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")


if __name__ == "__main__":
    compare() if sys.argv[1:] == ["--compare"] else main(sys.argv[1:])
