"""Times of words: the shortest path and the median against plain definitions, and words with their marks."""

import statistics
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from engine import InputError, UnsupportedError, load_model, save
from engine.interface.transcriber import Transcriber
from engine.speech.alignment import TokensOfWord, median_filter, shortest_path, split_words, token_times

from ..tools.speech import recording, timed


def all_paths(n: int, m: int) -> list[list[tuple[int, int]]]:
    """Return every path from [0,0] to [n-1,m-1]."""
    if n == 1 and m == 1:
        return [[(0, 0)]]
    before = [(n - 1, m - 1), (n - 1, m), (n, m - 1)]
    return [[*path, (n - 1, m - 1)] for i, j in before if i > 0 and j > 0 for path in all_paths(i, j)]


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (2, 2), (3, 5), (5, 3), (4, 6)])
def test_the_path_with_the_least_sum(shape):
    costs = np.random.default_rng(sum(shape)).normal(size=shape)
    best = min(all_paths(*shape), key=lambda path: sum(costs[i, j] for i, j in path))
    rows, columns = shortest_path(costs)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == best


def test_equal_sums_stay_in_the_row():
    rows, columns = shortest_path(np.zeros((3, 4)))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_of_two_ways_with_equal_sums_the_path_comes_along_its_row():
    rows, columns = shortest_path(np.array([[0.0, -1.0], [-1.0, 0.0]]))
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("length", [1, 3, 4, 7, 20])
def test_the_median_of_seven(length):
    x = np.random.default_rng(0).normal(size=(2, length))
    found = median_filter(x)
    if length <= 3:
        assert (found == x).all()
        return
    for row, out in zip(x.tolist(), found.tolist(), strict=True):
        mirrored = [*row[3:0:-1], *row, *row[-2:-5:-1]]
        assert out == [statistics.median(mirrored[i : i + 7]) for i in range(length)]


def test_the_times_of_tokens():
    """Four tokens are heard for 10, 20, 5 and 15 positions; the sound ends before the weights do."""
    weights = np.full((2, 7, 80), 0.001)
    starts = [0, 10, 30, 35, 50]
    for token, (start, end) in enumerate(pairwise(starts)):
        weights[:, 2 + token, start:end] = 1.0 / (end - start)
    weights[:, 6, 49] = weights[:, 5, 49] = 1      # the end token follows the last one
    weights[:, :, 50:] = 50                        # silence, which must not count
    found = token_times(weights, 2, 50)
    assert len(found) == 4
    assert np.abs(found - starts[:-1]).max() <= 2
    assert (np.diff(found) >= 0).all()


def test_what_a_token_hears_in_silence_does_not_count():
    """Weights that go from the sound to the silence behind it, more of one token than of another, change no time."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(60), (3, 9)).astype(np.float32)
    moved = weights.copy()
    moved[:, :, :40] *= rng.uniform(0.01, 1, 9)[:, None]
    moved[:, :, 40:] += 0.5
    np.testing.assert_array_equal(token_times(moved, 2, 40), token_times(weights, 2, 40))


def decode(ids: list[int]) -> str:
    """Return a text of bytes, as a byte-level tokenizer does."""
    return bytes(ids).decode("utf-8", errors="replace")


def words_of(text: str, spaced: bool = True) -> list[tuple[str, str]]:
    """Return each word with the text of its own tokens; each byte is a token."""
    ids = [*text.encode()]
    return [(word.text, decode(ids[word.first : word.end])) for word in split_words(ids, decode, spaced)]


def test_words_and_marks():
    assert words_of(" One two") == [(" One", " One"), (" two", " two")]
    assert words_of(" No, you!") == [(" No,", " No"), (" you!", " you")]
    assert words_of("\u00e9t\u00e9 \u00e0") == [("\u00e9t\u00e9", "\u00e9t\u00e9"), (" \u00e0", " \u00e0")]
    assert words_of("\u4f60\u597d\u3002", spaced=False) == [("\u4f60", "\u4f60"), ("\u597d\u3002", "\u597d")]
    assert words_of("") == []
    texts = [" I", "'m", ".", " (", "so", ")", ' "', " He", "llo", '"', " ", "-"]

    def joined(ids):
        return "".join(texts[i] for i in ids)

    assert split_words(range(10), joined, True) == [
        TokensOfWord(" I'm.", 0, 2), TokensOfWord(" (so)", 3, 5), TokensOfWord(' " Hello"', 7, 9)]
    assert split_words([6], joined, True) == [TokensOfWord(' "', 0, 1)]
    assert split_words([10, 11], joined, True) == [TokensOfWord(" ", 0, 1), TokensOfWord("-", 1, 2)]


def model_with_heads(several: bool = False):
    model = timed(several)
    return replace(model, generation=model.generation.changed(alignment_heads=[[0, 1], [1, 2]]))


def test_words_of_a_random_model(tmp_path):
    """Every segment has its text as words, and batches, beams and backends change nothing."""
    save(model_with_heads(), tmp_path / "m.npz")
    assert load_model(tmp_path / "m.npz", kind="generate").generation.alignment_heads == ((0, 1), (1, 2))
    transcriber = Transcriber.load(tmp_path / "m.npz", backend="cython")
    sounds = [recording(65), recording(2, 1), recording(33, 2)]
    found = transcriber.transcribe(sounds, timestamps="word")
    assert found == [transcriber.transcribe([sound], timestamps="word")[0] for sound in sounds]
    plain = transcriber.transcribe(sounds, timestamps=True)
    for one, other in zip(found, plain, strict=True):
        assert one.text == other.text
        for segment, same in zip(one.segments, other.segments, strict=True):
            assert (segment.start, segment.end, segment.text) == (same.start, same.end, same.text)
            assert same.words == ()
            assert "".join(word.text for word in segment.words) == segment.text
            assert all(word.start <= word.end for word in segment.words)
    assert {word.start for segment in found[0].segments for word in segment.words} != {0.0}
    exact = Transcriber.load(tmp_path / "m.npz", backend="reference").transcribe(sounds[1:2], timestamps="word")
    assert [[word.text for word in s.words] for s in exact[0].segments] == [
        [word.text for word in s.words] for s in found[1].segments]
    assert transcriber._model.decoder.statistics().cache_tokens == 0
    assert not transcriber._model.decoder._sources


def test_bad_heads():
    with pytest.raises(UnsupportedError, match="name no alignment_heads"):
        Transcriber(timed(), backend="reference").transcribe([recording(1)], timestamps="word")
    with pytest.raises(InputError, match="no pair"):
        Transcriber(timed(), backend="reference").transcribe(
            [recording(1)], timestamps="word", alignment_heads=[[5, 0]])
    with pytest.raises(InputError, match="must be a list of pairs"):
        timed().generation.changed(alignment_heads=[[1, 2, 3]])
    with pytest.raises(InputError, match='must be True, False or "word"'):
        Transcriber(timed(), backend="reference").transcribe([recording(1)], timestamps="words")
