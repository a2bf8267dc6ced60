"""Make the golden files of the tokenizers that the engine builds from vocabulary files.

    python -m tests.golden.make.tokenizers            write the ids of the folders of `MODELS`
    python -m tests.golden.make.tokenizers --compare  print where this version of transformers gives other ids

Each folder tokenizers/vocabularies/NAME has the files of an older model folder, with a small vocabulary trained on
`CORPUS`, and expected.json: `TEXTS` and `PAIRS`, each with the ids that the fast tokenizer of transformers 4 gives.
The files called tokenizer.json of the hub come from the same code. Version 5 converts some classes in another way: run
--compare with it. The folders of `OF_VERSION_5` have its ids; new_tokenizers.py writes them.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import sentencepiece
import transformers
from tokenizers import BertWordPieceTokenizer

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


MODELS = {
    "albert": "AlbertTokenizerFast", "bart": "BartTokenizerFast", "bert_cased": "BertTokenizerFast",
    "bert_decoder": "BertTokenizerFast", "bert_uncased": "BertTokenizerFast", "big_bird": "BigBirdTokenizerFast",
    "blenderbot": "BlenderbotTokenizerFast", "byt5": "ByT5Tokenizer", "camembert": "CamembertTokenizerFast",
    "deberta": "DebertaTokenizerFast", "deberta_v2": "DebertaV2TokenizerFast", "esm": "EsmTokenizer",
    "esm_without_end": "EsmTokenizer", "gpt2": "GPT2TokenizerFast", "llama": "LlamaTokenizerFast",
    "mistral": "LlamaTokenizerFast", "mpnet": "MPNetTokenizerFast", "pegasus": "PegasusTokenizerFast",
    "roberta": "RobertaTokenizerFast", "t5": "T5TokenizerFast", "xlm_roberta": "XLMRobertaTokenizerFast",
}
"""The class of transformers, by folder."""
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
    for name, kind in MODELS.items():
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
    """Write expected.json into the folders named, or all."""
    for name in names or [name for name in MODELS if name not in OF_VERSION_5]:
        lines = [json.dumps([text, ids], ensure_ascii=False)
                 for text, ids in zip([*TEXTS, *PAIRS], ids_of(TOKENIZERS / name, MODELS[name]), strict=True)]
        (TOKENIZERS / name / "expected.json").write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")


if __name__ == "__main__":
    compare() if sys.argv[1:] == ["--compare"] else main(sys.argv[1:])
