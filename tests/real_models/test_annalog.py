"""The real model of annalog (MIT), a Transformer of 3 + 3 layers that makes molecules: the results of its own code.

golden/make/annalog.py ran that code under torch.
"""

import os
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import Generator
from engine.files.torch_checkpoint import read_checkpoint
from engine.loading.torch_modules import read_pytorch_seq2seq
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import row
from ..tools.paths import DECODERS, ROOT

FOLDER = Path(os.environ.get("ENGINE_ANNALOG", ROOT / "models/annalog"))
FILE = FOLDER / "ckpt_and_vocab" / "Lev_extended.pt"
START, END = 2, 3
LONGEST = 102
SETTINGS = GenerationConfig(decoder_start_token_id=START, eos_token_id=END, max_length=LONGEST)


@cache
def model():
    if not FILE.exists():
        pytest.skip(f"no annalog at {FOLDER}: pip install --no-deps --target models annalog==1.0.6. ENGINE_ANNALOG "
                    "points to another place")
    return replace(read_pytorch_seq2seq(read_checkpoint(FILE), num_heads=8), generation=SETTINGS)


@cache
def golden():
    return dict(np.load(DECODERS / "annalog.npz"))


def ids(row_of_ids):
    return row_of_ids[row_of_ids >= 0].tolist()


def sources():
    return [[START, *ids(one), END] for one in golden()["sources"]]


def test_the_architecture_is_the_paper_s():
    config = model().decoder.config
    assert (config.num_layers, config.hidden_size, config.num_heads, config.ffn_size) == (3, 256, 8, 512)
    assert (config.norm_place, config.activation, config.embedding_scale) == ("post", "relu", 16.0)


def test_greedy_results_of_a_thousand_molecules():
    generator = Generator(model())
    results = generator.generate(sources())
    expected = [ids(one) for one in golden()["greedy"]]
    assert len(results) == 1000
    found = [result.ids if result.ended else [] for result in results]
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b] == []


class OwnSearch:
    """The package's own beam search of one molecule. `results` are (ids, sum of log probabilities), best first.

    Each step keeps the `width` best continuations of all beams. Those that end leave, and nothing takes their places.
    The search stops when it has `width` results, or at the greatest length. The package gives the beams that stay the
    first totals of the list from which it has not removed the ended ones, which is a slip, but decides its results.
    """

    def __init__(self, request, width):
        self.request, self.width = request, width
        self.beams, self.parents, self.found, self.steps = [([START], 0.0)], [None], [], 0

    @property
    def results(self):
        return sorted(self.found, key=lambda result: -result[1])[: self.width]

    @property
    def done(self):
        return self.steps == LONGEST - 1 or len(self.found) >= self.width or not self.beams

    def rows(self):
        return [row(self.request, parent, tokens if parent is None else tokens[-1:])
                for (tokens, _), parent in zip(self.beams, self.parents, strict=True)]

    def advance(self, hypotheses, logits):
        beams = self.beams
        x = logits - logits.max(axis=1, keepdims=True)
        log_p = np.log(np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) + np.float32(1e-10)).astype(np.float64)
        totals = log_p + np.array([total for _, total in beams])[:, None]
        best = np.argsort(-totals, axis=None, kind="stable")[: self.width]
        kept = [(beam, token, totals[beam, token]) for beam, token in
                zip(*(x.tolist() for x in np.unravel_index(best, totals.shape)), strict=True)]
        self.found += [(beams[beam][0][1:], total) for beam, token, total in kept if token == END]
        self.parents = [int(hypotheses[beam]) for beam, token, _ in kept if token != END]
        live = [[*beams[beam][0], token] for beam, token, _ in kept if token != END]
        self.beams = list(zip(live, (total for _, _, total in kept), strict=False))
        self.steps += 1


def search(stepper, molecules, width):
    """Return the results of each molecule; the molecules are searched together."""
    searches = [OwnSearch(stepper.open(stepper.packed(np.array(source, np.int64))), width) for source in molecules]
    live = searches
    while live:
        rows = [one.rows() for one in live]
        scores = stepper.step([row for part in rows for row in part])
        ends = np.cumsum([len(part) for part in rows])[:-1]
        for one, *answer in zip(live, np.split(scores.hypotheses, ends), np.split(scores.logits, ends), strict=True):
            one.advance(*answer)
        live = [one for one in live if not one.done]
    for one in searches:
        stepper.close(one.request)
    return [one.results for one in searches]


def test_a_thousand_beam_searches_of_its_own():
    stepper, expected = Generator(model())._model._stepper, golden()
    assert expected["beams"].shape == (1000, 5, 100)
    for first in range(0, 1000, 50):
        part = slice(first, first + 50)
        found = search(stepper, sources()[part], 5)
        for results, lists, scores in zip(found, expected["beams"][part], expected["scores"][part], strict=True):
            assert [tokens for tokens, _ in results] == [ids(one) for one, score in zip(lists, scores, strict=True)
                                                         if score < 0]  # fmt: skip
            assert np.allclose([total for _, total in results], scores[: len(results)], atol=1e-4)


def test_the_example_reads_and_writes_molecules():
    pytest.importorskip("tokenizers")
    model()     # skips without the files
    example = runpy.run_path(str(ROOT / "examples" / "similar_molecules.py"))
    generator = example["load"](FOLDER)
    molecules = ["CC(=O)Oc1ccccc1C(=O)O", "CN1CCC[C@H]1c1cccnc1"]       # the first and the fifth of the inputs
    results = generator.generate(molecules)
    assert [result.ids for result in results] == [ids(golden()["greedy"][i]) for i in (0, 4)]
    assert generator.translate(molecules) == [result.text for result in results]
    assert example["known"](generator) > {"Br", "[C@H]", "%10", "c", "("}
