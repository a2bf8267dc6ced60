"""`Generator`: from inputs to results, on every backend that runs decoders; files, streams, scores and refusals."""

import os
import pickle
import signal
import time
from dataclasses import replace

import numpy as np
import pytest

from engine import (
    Engine,
    Generator,
    InputError,
    Model,
    TimedOut,
    Transformer,
    UnsupportedError,
    WeightsError,
    load_model,
    save,
)
from engine.backends import get_backend
from engine.base.errors import Cancelled
from engine.files.npz import read_npz
from engine.generation.results import Token
from engine.interface.stream import Piece
from engine.model.text_config import TextConfig

from ..tools.children import read_child
from ..tools.decoders import make_weights, row
from ..tools.encoders import load_encoder, save_encoder
from ..tools.generators import ENCODER, SOURCES, ids_of, language_model, translator
from ..tools.interrupts import interruptible
from ..tools.threads import together
from ..tools.tiny_text import VOCABULARY, tiny_text


def test_greedy_search_takes_the_best_token_of_the_whole_prefix(backend):
    generator = Generator(language_model(), backend=backend, threads=2)
    results = generator.generate(SOURCES, max_new_tokens=9)
    for prompt, result in zip(SOURCES, results, strict=True):
        tokens, request = list(prompt), generator._decoder.open()
        for _ in range(9):
            tokens.append(int(generator._decoder.step([row(request, None, tokens)]).logits.argmax()))
        assert result.ids == tokens[len(prompt) :]
        scored, = generator.score([tokens])
        assert abs(scored.log_probabilities[len(prompt) - 1 :].mean() - result.score) < 1e-4


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "seed": 7},
                                      {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}])
@pytest.mark.parametrize("model", [translator, language_model])
def test_a_result_does_not_depend_on_its_batch(model, settings):
    get_backend("cython")
    built = model()
    results = Generator(built, threads=2).generate(SOURCES, **settings)
    alone = Generator(built, threads=1, max_rows=1)
    assert [alone.generate([source], **settings)[0] for source in SOURCES] == results
    other = Generator(built, threads=3, max_rows=5, max_batch_tokens=20)
    assert other.generate(SOURCES[::-1], **settings)[::-1] == results


def test_the_backends_agree(backend):
    expected = Generator(translator(), backend="reference").generate(SOURCES, num_beams=4)
    results = Generator(translator(), backend=backend, threads=2).generate(SOURCES, num_beams=4)
    assert ids_of(results) == ids_of(expected)
    assert np.allclose([one.score for one in results], [one.score for one in expected], atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits(precision):
    generator = Generator(translator(), precision=precision)
    assert generator.precision == precision
    assert len(generator.generate(SOURCES)) == 5


@pytest.mark.parametrize("model", [translator, language_model])
def test_a_model_is_saved_and_loaded_bit_for_bit(model, tmp_path):
    built = model(tiny_text(max_seq_length=40))
    save(built, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz", kind="generate")
    assert loaded.generation == built.generation
    assert loaded.parts.keys() == built.parts.keys()
    for name, part in built.parts.items():
        assert loaded.parts[name].config == part.config
        assert loaded.parts[name].text == part.text
        assert all(np.array_equal(array, loaded.parts[name].weights[key]) for key, array in part.weights.items())
    generator = Generator.load(tmp_path / "model.npz")
    assert ids_of(generator.generate(SOURCES)) == ids_of(Generator(built).generate(SOURCES))
    again = pickle.loads(pickle.dumps(generator))
    assert ids_of(again.generate(SOURCES)) == ids_of(generator.generate(SOURCES))


def test_equal_arrays_are_written_once(tmp_path):
    save(translator(tied=True), tmp_path / "model.npz")
    arrays = read_npz(tmp_path / "model.npz")
    assert "encoder.embeddings.word" in arrays
    assert "decoder.embeddings.word" not in arrays
    loaded = load_model(tmp_path / "model.npz", kind="generate")
    assert np.array_equal(loaded.decoder.weights["embeddings.word"], arrays["encoder.embeddings.word"])


def test_files_of_the_other_kind_are_refused_by_name(tmp_path):
    save(language_model(), tmp_path / "generates.npz")
    save_encoder(Transformer(ENCODER, make_weights(ENCODER)), tmp_path / "encodes.npz")
    with pytest.raises(UnsupportedError, match="load it with Generator"):
        Engine.load(tmp_path / "generates.npz")
    with pytest.raises(UnsupportedError, match="load it with Generator"):
        load_encoder(tmp_path / "generates.npz")
    with pytest.raises(UnsupportedError, match="load it with Engine"):
        Generator.load(tmp_path / "encodes.npz")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")      # it may hold a model of either kind
    with pytest.raises(WeightsError, match="cut short"):
        Engine.load(tmp_path / "model.gguf")


def test_halves_that_do_not_fit_are_refused():
    model = translator()
    with pytest.raises(WeightsError, match="reads vectors of width 38"):
        Generator(replace(model, encoder=None))
    with pytest.raises(WeightsError, match="no logits"):
        Generator(Model(decoder=Transformer(ENCODER, make_weights(ENCODER))))
    with pytest.raises(InputError, match="takes a Model"):
        Generator(model.decoder)


def test_texts_become_texts():
    text = tiny_text()
    generator = Generator(translator(text))
    words = ["the cat sat", "a dog"]
    sources = [[2, *(VOCABULARY[word] for word in one.split()), 3] for one in words]
    results = generator.generate(words, suppress_tokens=list(range(17, 50)))
    assert results == generator.generate(sources, suppress_tokens=list(range(17, 50)))
    assert generator.translate(words, suppress_tokens=list(range(17, 50))) == [result.text for result in results]
    names = {number: word for word, number in VOCABULARY.items()}
    assert results[0].text == " ".join(names[i] for i in results[0].ids if i > 3)
    several = generator.translate(words, num_beams=2, num_return_sequences=2)
    assert [len(texts) for texts in several] == [2, 2]
    assert generator.translate(words[0], num_beams=2, num_return_sequences=2) == several[0]
    assert generator.translate(words[0], suppress_tokens=list(range(17, 50)), logprobs=False) == results[0].text
    with pytest.raises(InputError, match="translate returns texts, without log probabilities; leave logprobs out"):
        generator.translate(words, logprobs=0)


def test_one_text_gives_one_result():
    generator = Generator(translator(tiny_text()))
    assert generator.generate("the cat") == generator.generate(["the cat"])[0]
    assert generator.generate("the cat", prompts=[2, 5]) == generator.generate(["the cat"], prompts=[[2, 5]])[0]
    several = {"num_beams": 2, "num_return_sequences": 2}
    assert generator.generate("the cat", **several) == generator.generate(["the cat"], **several)[0]
    assert [*generator.results("the cat")] == generator.generate(["the cat"])
    for target in ("a dog", [5, 6]):
        assert generator.score("the cat", target).total == generator.score(["the cat"], [target])[0].total
    language = Generator(language_model(tiny_text()))
    assert language.score("the cat").total == language.score(["the cat"])[0].total
    with pytest.raises(InputError, match="a target must be one text or a flat sequence"):
        generator.score("the cat", ["a dog"])


def test_special_tokens_of_prompts():
    generator = Generator(language_model(tiny_text()))      # the tokenizer adds [CLS] and [SEP]
    plain = {"add_special_tokens": False}
    assert generator.generate("the cat", **plain) == generator.generate([[4, 5]])[0]
    assert generator.generate("[CLS] the cat", **plain) == generator.generate([[2, 4, 5]])[0]
    assert [*generator.results(["the cat"], **plain)] == generator.generate([[4, 5]])
    assert [*generator.stream("the cat", **plain)] == [*generator.stream([4, 5])]
    assert generator.score("the cat sat", **plain).total == generator.score([[4, 5, 6]])[0].total
    assert generator.score("the cat", "sat", **plain).total == generator.score([[4, 5]], [[6]])[0].total
    for call in (generator.generate, generator.stream, generator.score):
        with pytest.warns(UserWarning, match=r"an input begins with \[CLS\], and the tokenizer adds another") as found:
            call("[CLS] the cat")
        assert found[0].filename == __file__
    assert generator.generate("the [CLS] [CLS] cat").ids
    with pytest.raises(InputError, match="add_special_tokens must be True or False"):
        generator.generate("the cat", add_special_tokens=None)


@pytest.mark.parametrize("settings", [{}, {"num_beams": 2}, {"do_sample": True, "seed": 3},
                                      {"forced_bos_token_id": 5}, {"forced_bos_token_id": 5, "num_beams": 2}])
def test_a_stream_gives_the_result_piece_by_piece(settings):
    generator = Generator(translator(tiny_text()))
    settings |= {"suppress_tokens": list(range(17, 50)), "no_repeat_ngram_size": 2}
    result, = generator.generate([SOURCES[0]], **settings)
    pieces = list(generator.stream(SOURCES[0], **settings))
    assert [piece.id for piece in pieces] == result.ids
    assert "".join(piece.text for piece in pieces) == result.text
    plain = list(Generator(translator()).stream(SOURCES[0], **settings))
    assert [piece.id for piece in plain] == result.ids
    assert {piece.text for piece in plain} == {None}


def bytes_text():
    """Return a tokenizer whose 50 tokens are bytes: of the characters \u00e9 and \u20ac, a wrong one, and letters."""
    tokenizers = pytest.importorskip("tokenizers")
    tokens = ["\u00c3", "\u00a9", "\u00e2", "\u0124", "\u00ac", "\u00ff", *map(chr, range(ord("A"), ord("A") + 44))]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, []))
    made.decoder = tokenizers.decoders.ByteLevel()
    return TextConfig(made.to_str().encode())


class Events:
    """The ticket of a model that gives these tokens, and then ends, perhaps with an error; it counts those it gave."""

    def __init__(self, ids, end):
        self.given, self._left, self._end = 0, [Token(0, number) for number in ids], end

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        if self._left:
            return self._left.pop(0)
        if self._end is not None:
            end, self._end = self._end, None
            raise end
        raise StopIteration

    def cancel(self):
        self._left.clear()


def stream_of(ids, end=None, text=None):
    """Return a stream of these ids, and its events."""
    generator, events = Generator(language_model(text or bytes_text())), Events(ids, end)
    generator._model.queue.submit = lambda *_, **__: events
    return generator.stream([1]), events


C3, A9, E2, X82, AC, FF, A, B = range(8)


@pytest.mark.parametrize(("ids", "pieces"), [
    ([A, C3, A9, E2, X82, AC], ["A", "", "\u00e9", "", "", "\u20ac"]),
    ([C3, C3, A9, FF, A, C3], ["", "\ufffd", "\u00e9", "\ufffd", "A", "\ufffd"]),
    ([A, E2, X82], ["A", "", "\ufffd"]),
    ([E2, B], ["", "\ufffdB"]),
])
def test_a_stream_waits_for_all_bytes_of_a_character(ids, pieces):
    stream, _ = stream_of(ids)
    found = list(stream)
    assert [piece.id for piece in found] == ids
    assert [piece.text for piece in found] == pieces


def test_a_stream_looks_ahead_only_where_text_waits():
    stream, events = stream_of([A, C3, A9, B])
    given = []
    for piece in stream:
        given.append((piece.text, events.given))
    assert given == [("A", 1), ("", 3), ("\u00e9", 3), ("B", 4)]


@pytest.mark.parametrize(("end", "expected"), [(TimedOut(), TimedOut), (Cancelled(), None)])
def test_a_stream_that_ends_early_has_given_all_its_tokens(end, expected):
    stream, _ = stream_of([A, E2], end)
    assert [next(stream), next(stream)] == [Piece(A, "A"), Piece(E2, "\ufffd")]
    with pytest.raises(expected or StopIteration):
        next(stream)
    assert list(stream) == []


def test_a_stream_gives_nothing_after_it_was_cancelled():
    stream, events = stream_of([C3, A9, A, B])
    assert (next(stream), events.given) == (Piece(C3, ""), 2)
    stream.cancel()
    assert list(stream) == []


def test_a_stream_has_the_text_of_the_result_with_wrong_bytes():
    text, cut = bytes_text(), 0
    generator = Generator(language_model(text))
    for seed in range(40):
        options = {"do_sample": True, "seed": seed, "max_new_tokens": 6, "suppress_tokens": list(range(8, 50))}
        [result] = generator.generate([[1]], **options)
        pieces = list(generator.stream([1], **options))
        assert [piece.id for piece in pieces] == result.ids
        assert "".join(piece.text for piece in pieces) == result.text
        cut += result.ids[-1] in (C3, E2)
    assert cut > 3


def test_a_stream_that_is_left_frees_its_rows():
    generator = Generator(language_model())
    stream = generator.stream(SOURCES[0])
    next(stream)
    stream.close()
    assert generator.statistics().cache_tokens == 0


def test_scores_of_targets():
    generator = Generator(translator())
    results = generator.generate(SOURCES, max_new_tokens=5, suppress_tokens=3)
    scores = generator.score(SOURCES, [result.ids for result in results])
    assert [len(scored.log_probabilities) for scored in scores] == [5] * 5
    free = generator.generate(SOURCES, max_new_tokens=4)
    for result, scored in zip(free, generator.score(SOURCES, [result.ids + [3] * result.ended for result in free]),
                              strict=True):
        assert abs(scored.total / len(scored.log_probabilities) - result.score) < 1e-4
    language = Generator(language_model())
    assert len(language.score([[7]])[0].log_probabilities) == 0
    whole, = language.score([[7, 8, 9, 10]])
    part, = language.score([[7, 8]], [[9, 10]])
    assert np.array_equal(whole.log_probabilities[1:], part.log_probabilities)


def test_prompts_come_before_the_results():
    generator = Generator(translator())
    plain = generator.generate(SOURCES, max_new_tokens=6)
    prompts = [[2, *result.ids[:2]] for result in plain]
    continued = generator.generate(SOURCES, prompts=prompts, max_new_tokens=4)
    for before, after in zip(plain, continued, strict=True):
        if len(before.ids) >= 2:
            assert before.ids[2:] == after.ids[: len(before.ids) - 2]


def test_threads_may_share_a_generator():
    generator = Generator(translator(), threads=2)
    expected = ids_of(generator.generate(SOURCES, num_beams=2))
    assert together([lambda: ids_of(generator.generate(SOURCES, num_beams=2))] * 4) == [expected] * 4


def test_a_call_that_takes_too_long_is_stopped_and_frees_its_rows():
    generator = Generator(language_model())
    with pytest.raises(TimedOut):
        generator.generate(SOURCES, timeout=1e-9)
    assert generator.statistics().cache_tokens == 0


def test_results_come_in_order_as_soon_as_they_are_there():
    generator = Generator(language_model(), threads=1)
    expected = generator.generate(SOURCES, max_length=10)       # the prompts differ in length, so their ends differ
    assert generator.generate((ids for ids in SOURCES), max_length=10) == expected      # any iterable, as for `encode`
    results = generator.results(SOURCES, max_length=10)
    assert next(results) == expected[0]
    assert generator.statistics().cache_tokens > 0
    results.close()
    assert generator.statistics().cache_tokens == 0
    assert list(generator.results(SOURCES, max_length=10)) == expected


def test_a_wrong_input_is_named_before_any_is_computed():
    generator = Generator(language_model(), threads=1)
    generator._decoder.step = None      # nothing is computed
    for wrong, problem in (([1] * 91, "the prompt has"), ([], "at least one token"), ([-1], "at least 0"), (5, "flat")):
        with pytest.raises(InputError, match=f"input 2: .*{problem}"):
            generator.generate([*SOURCES[:2], wrong], max_new_tokens=5)
    with pytest.raises(InputError, match="line 7: a prompt must have at least one token"):
        generator.results([[1], []], places=["line 3", "line 7"])


def test_an_interrupt_stops_a_generation():
    generator = Generator(language_model(), threads=2)
    expected = ids_of(generator.generate(SOURCES))

    def generate_for_a_minute():
        begun = time.monotonic()
        while time.monotonic() < begun + 60:
            generator.generate(SOURCES * 4, max_new_tokens=60)

    with interruptible():
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            generate_for_a_minute()
    assert ids_of(generator.generate(SOURCES)) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_generator_survives_a_fork():
    generator = Generator(translator(), threads=2)
    expected = ids_of(generator.generate(SOURCES))
    assert read_child(lambda pipe: os.write(pipe, b"%d" % (ids_of(generator.generate(SOURCES)) == expected)))[0] == "1"
    assert ids_of(generator.generate(SOURCES)) == expected


@pytest.mark.parametrize(("call", "error", "problem"), [
    (lambda g: g.generate([]), None, ""),
    (lambda g: g.generate("the cat"), UnsupportedError, "without a tokenizer"),
    (lambda g: g.generate(["the cat"]), UnsupportedError, "without a tokenizer"),
    (lambda g: g.generate([[50]]), InputError, "50"),
    (lambda g: g.generate([[]]), InputError, "at least one token"),
    (lambda g: g.generate([[1]], prompts=[[1], [2]]), InputError, "1 inputs and 2 prompts"),
    (lambda g: g.generate([[1]], temprature=1.0), InputError, "no argument temprature"),
    (lambda g: g.generate([[1] * 91]), InputError, "9"),
    (lambda g: g.score([[1]]), InputError, "scores targets"),
    (lambda g: g.score([[1]], [[2], [3]]), InputError, "1 inputs and 2 targets"),
    (lambda g: g.score([[1]], [[50]]), InputError, "the id 50"),
    (lambda g: g.translate(["the cat"]), UnsupportedError, "without a tokenizer"),
    (lambda g: next(g.stream([1], num_return_sequences=2, num_beams=2)), InputError, "stream gives one result"),
])
def test_wrong_calls_are_refused(call, error, problem):
    generator = Generator(translator())
    if error is None:
        assert call(generator) == []
        return
    with pytest.raises(error, match=problem):
        call(generator)
    assert generator.statistics().cache_tokens == 0


def test_a_language_model_does_not_translate():
    generator = Generator(language_model())
    with pytest.raises(UnsupportedError, match="no encoder"):
        generator.translate(["the cat"])
    with pytest.raises(InputError, match="leave prompts out"):
        generator.generate([[1]], prompts=[[1]])


def test_a_backend_without_decoders_is_refused(monkeypatch):
    class Other:
        name = "other"

    monkeypatch.setattr("engine.backends.get_backend", lambda name: Other())
    with pytest.raises(UnsupportedError, match="this model has a decoder, and the backend other runs none"):
        Generator(language_model())


def test_a_generator_describes_itself():
    text = repr(Generator(translator(), threads=2))
    assert "2 + 2 layers of width 44" in text
    assert "float32, 2 threads" in text


def test_more_tokens_than_the_cache_has_are_not_kept():
    with pytest.raises(InputError, match="keep_tokens=64 must not be above cache_tokens=48"):
        Generator(language_model(), cache_tokens=48, keep_tokens=64)
    with pytest.raises(InputError, match="keep_tokens must be None or an int of at least 0"):
        Generator(language_model(), keep_tokens=-1)
    generator = Generator(language_model(), cache_tokens=48)
    generator.generate([[2] * 40], max_new_tokens=1)
    statistics = generator.statistics()
    assert (statistics.kept_tokens, statistics.read_tokens, statistics.times_given_way) == (32, 40, 0)
