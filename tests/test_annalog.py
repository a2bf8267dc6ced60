"""The real model of annalog (MIT), a Transformer of 3 + 3 layers that makes molecules: the results of its own code.

golden/make_annalog.py ran that code under torch.
"""

import os
import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import Generator
from engine.families.pytorch_seq2seq import read_state_dict
from engine.generation.settings import GenerationConfig
from engine.model import Model
from engine.sequences import SequenceModel
from engine.weights.checkpoint import read_checkpoint

from .decoders import row

ROOT = Path(__file__).parents[1]
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
    encoder, decoder = read_state_dict(read_checkpoint(FILE), num_heads=8)
    return SequenceModel(Model(*decoder), Model(*encoder), SETTINGS)


@cache
def golden():
    return dict(np.load(ROOT / "tests" / "golden" / "annalog.npz"))


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


def beam_search(stepper, source, width):
    """Return the results of the package's own search: (ids, sum of log probabilities), best first.

    Each step keeps the `width` best continuations of all beams. Those that end leave, and nothing takes their places.
    The search stops when it has `width` results, or at the greatest length. The package gives the beams that stay the
    first totals of the list from which it has not removed the ended ones, which is a slip, but decides its results.
    """
    request = stepper.open(np.array(source, np.int64))
    beams, results, parents = [([START], 0.0)], [], [None]
    for _ in range(LONGEST - 1):
        rows = [row(request, parent, tokens if parent is None else tokens[-1:])
                for (tokens, _), parent in zip(beams, parents, strict=True)]
        scores = stepper.step(rows)
        x = scores.logits - scores.logits.max(axis=1, keepdims=True)
        log_p = np.log(np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) + np.float32(1e-10)).astype(np.float64)
        totals = log_p + np.array([total for _, total in beams])[:, None]
        best = np.argsort(-totals, axis=None, kind="stable")[:width]
        kept = [(beam, token, totals[beam, token]) for beam, token in
                zip(*(x.tolist() for x in np.unravel_index(best, totals.shape)), strict=True)]
        results += [(beams[beam][0][1:], total) for beam, token, total in kept if token == END]
        parents = [int(scores.hypotheses[beam]) for beam, token, _ in kept if token != END]
        live = [[*beams[beam][0], token] for beam, token, _ in kept if token != END]
        beams = list(zip(live, (total for _, _, total in kept), strict=False))
        if len(results) >= width or not beams:
            break
    stepper.close(request)
    return sorted(results, key=lambda result: -result[1])[:width]


def test_beams_of_its_own_search():
    stepper = Generator(model())._stepper()
    for source, expected, scores in zip(sources(), golden()["beams"], golden()["scores"], strict=False):
        found = beam_search(stepper, source, 5)
        wanted = [ids(one) for one, score in zip(expected, scores, strict=True) if score < 0]
        assert [tokens for tokens, _ in found] == wanted
        assert np.allclose([total for _, total in found], scores[: len(found)], atol=1e-4)


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
