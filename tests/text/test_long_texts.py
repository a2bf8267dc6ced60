"""Long texts are cut before they are tokenized: the same tokens, in little memory."""

import random

import numpy as np
import pytest

from engine.base.errors import InputError
from engine.model.text_config import TextConfig
from engine.text import sentences as text_module
from engine.text.tokenizer import Tokenizer

from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.tiny_models import D, random_model
from ..tools.tiny_text import ids, tiny_text

tokenizers = pytest.importorskip("tokenizers")
models, normalizers, pre_tokenizers = tokenizers.models, tokenizers.normalizers, tokenizers.pre_tokenizers

CORPUS = ["the cat sat on a mat, and the dog ran far away", "Größe und Weiß; naïve café 東京タワー 你好世界",
          "12 3.14 foo_bar()"]
MILLION = 1_000_000


def trained(kind: str) -> tokenizers.Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|one two three four five six|>"]
    if kind == "wordpiece":
        tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    elif kind == "bpe":
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False,
                                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer = tokenizers.Tokenizer(models.Unigram())
        replace = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), replace])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = tokenizers.trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="[UNK]",
                                                     show_progress=False)
    tokenizer.train_from_iterator(CORPUS * 20, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def a_text(rng: random.Random, characters: int) -> str:
    pieces = [*" ".join(CORPUS).split(), "  ", "\n", "\t\u200b", "e\u0301" * 5, "x" * 150, "日本語" * 30, "!?...",
              "<|one two three four five six|>", "<|one two three", "[UNK]", " ... ", "ﷺ"]
    text = ""
    while len(text) < characters:
        text += rng.choice(pieces) + rng.choice([" ", " ", " ", "", "  "])
    return text


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_cut_does_not_change_the_tokens(kind, direction, monkeypatch):
    tokenizer = trained(kind)
    tokenizer.enable_truncation(5, direction=direction)
    data = tokenizer.to_str().encode()
    rng = random.Random(0)
    cut = 0
    for limit in (16, 17, 40):
        own = Tokenizer(TextConfig(data, max_seq_length=limit), None, 1)
        sentences = [a_text(rng, rng.choice([10, 400, 1000, 5000])) for _ in range(40)]
        # Short, because without the cut `tokenizers` pairs each piece of one text with each piece of the other.
        sentences += [(a_text(rng, rng.choice([10, 500])), a_text(rng, rng.choice([10, 600]))) for _ in range(40)]
        found = own(sentences)
        cut += sum(own._cut(sentence) != sentence for sentence in sentences)
        with monkeypatch.context() as patch:
            patch.setattr(Tokenizer, "_cut", lambda self, sentence, stop: sentence)
            whole = own(sentences)
        for i, sentence in enumerate(sentences):
            assert found.input_ids[i].tolist() == whole.input_ids[i].tolist(), sentence
            assert found.token_type_ids[i].tolist() == whole.token_type_ids[i].tolist(), sentence
    assert cut > 50


def test_a_batch_of_long_texts():
    sentences = ["the cat " * 5000, "dog", ("the " * 9000, "cat")]
    for threads in (1, 2):
        tokens = Tokenizer(tiny_text(max_seq_length=8), None, threads)(sentences).input_ids
        assert tokens[0].tolist() == ids("[CLS] the cat the cat the cat [SEP]")
        assert tokens[2].tolist() == ids("[CLS] the the the the [SEP] cat [SEP]")


def encoded(sentence, **options) -> str:
    engine = engine_of(random_model(tiny_text(max_seq_length=16)), threads=1, backend="reference")
    short = sentence[:2000] if isinstance(sentence, str) else (sentence[0][:2000], sentence[1][:2000])
    expected = engine.encode([short], **options)
    options["truncation"] = True
    return outcome(lambda: bool(np.array_equal(engine.encode([sentence], **options), expected)), memory=200_000_000)


def test_a_text_of_100_mb_takes_little_memory():
    text = "the cat sat on a mat " * (5 * MILLION)
    assert encoded(text) == "ok: True"
    assert encoded(text, prompt="query: ") == "ok: True"
    assert encoded(("the", text)) == "ok: True"


@pytest.mark.parametrize("letter", ["a", " "])
def test_a_text_of_few_tokens_is_refused(letter):
    assert "has too few tokens in its first 262,144 characters" in encoded(letter * 100 * MILLION)


def test_a_text_of_few_tokens_is_read_whole_below_the_limit():
    tokens = Tokenizer(tiny_text(max_seq_length=16), None, 1)([" " * 200_000 + "cat"]).input_ids
    assert tokens[0].tolist() == ids("[CLS] cat [SEP]")


def test_a_pair_whose_longer_text_is_not_known():
    texts = ("the cat " * MILLION, "dog " * MILLION)
    odd, even = (Tokenizer(tiny_text(max_seq_length=limit), None, 1) for limit in (16, 17))
    with pytest.raises(InputError, match="we cannot tell which has more tokens"):
        odd([texts])
    assert len(even([texts]).input_ids[0]) == 17
    assert len(odd([(texts[0], "dog " * 5000)]).input_ids[0]) == 16


def test_half_a_surrogate_in_a_long_text(monkeypatch):
    monkeypatch.setattr(text_module, "SLICE_CHARACTERS", 10)
    engine = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    with pytest.raises(InputError, match="sentence 0 is not valid Unicode"):
        engine.encode(["a" * 25 + "\udc00"])
    assert engine.encode(["a" * 25]).shape == (1, D)


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_long_pairs_have_the_tokens_that_tokenizers_gives(kind, direction, monkeypatch):
    tokenizer, rng = trained(kind), random.Random(1)
    tokenizer.enable_truncation(5, direction=direction)
    data = tokenizer.to_str().encode()
    monkeypatch.setattr(Tokenizer, "_is_long_pair", lambda self, sentence: not isinstance(sentence, str))
    for limit in (3, 4, 5, 16, 17, 40):
        own = Tokenizer(TextConfig(data, max_seq_length=limit), None, 1)
        tokenizer.enable_truncation(limit, direction=direction)
        # Few and short, because `tokenizers` pairs each piece of one text with each piece of the other, and the pieces
        # are as many as the limit is low. With bytes, they are three times as many.
        most = 24 if kind == "bpe" and limit < 16 else 60
        pairs = [tuple(a_text(rng, rng.randrange(most))[:most] for _ in "ab") for _ in range(20)]
        pairs += [(text, text) for text, _ in pairs[:10]] + [("", "the"), ("the", ""), ("", "")]
        tokens, expected = own(pairs), [tokenizer.encode(*pair) for pair in pairs]
        assert [row.tolist() for row in tokens.input_ids] == [encoding.ids for encoding in expected]
        assert [row.tolist() for row in tokens.token_type_ids] == [encoding.type_ids for encoding in expected]


@pytest.mark.parametrize("direction", ["right", "left"])
@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_pairs_whose_first_text_alone_is_cut(kind, direction):
    tokenizer, rng = trained(kind), random.Random(2)
    tokenizer.enable_truncation(40, direction=direction)
    own = Tokenizer(TextConfig(tokenizer.to_str().encode(), max_seq_length=40), None, 1)
    tokenizer.enable_truncation(40, strategy="only_first", direction=direction)
    firsts = ["", "the", *(a_text(rng, most) for most in (9, 40, 90, 200, 900, 3000))]
    seconds = own.second_texts(["", "a cat", "the cat sat on a mat", "Größe"])
    tokens = own.with_each(firsts, seconds)
    expected = [tokenizer.encode(first, second) for first in firsts for second in seconds.texts]
    assert [row.tolist() for row in tokens.input_ids] == [encoding.ids for encoding in expected]
    assert [row.tolist() for row in tokens.token_type_ids] == [encoding.type_ids for encoding in expected]
    with pytest.raises(InputError, match="has at least 40 tokens, and the model reads 37 of two texts together"):
        own.second_texts(["a", "the cat " * 100])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pair_of_long_words_takes_little_memory(threads):
    """`tokenizers` pairs each piece of one text with each of the other, here 50 million times."""
    own = Tokenizer(TextConfig(trained("unigram").to_str().encode(), max_seq_length=16), None, threads)
    pair = ("x" * 50_000, "y" * 50_000)
    assert outcome(lambda: len(own([pair, "the cat"]).input_ids[0]), seconds=60) == "ok: 16"


def test_a_long_pair_whose_special_tokens_cannot_be_found():
    tokenizer = tokenizers.Tokenizer(models.BPE({"x": 0, "y": 1}, []))  # no sample has a token
    own = Tokenizer(TextConfig(tokenizer.to_str().encode(), max_seq_length=16), None, 1)
    with pytest.raises(InputError, match="a pair of 2,000 and 2,000 characters is too long for this model's tokenizer"):
        own([("x" * 2000, "y" * 2000)])
    assert own([("x" * 6, "y" * 20)]).input_ids[0].tolist() == [0] * 6 + [1] * 10
    with pytest.raises(InputError, match="does not show where the texts of a pair stand"):
        own.second_texts(["x"])
