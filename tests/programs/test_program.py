"""Programs: the closed set of operations, what is refused, and what the engine derives from a program."""

from dataclasses import fields, replace
from typing import get_args

import numpy as np
import pytest

from engine.backends.peak import forward_flops, visible_pairs, weight_bytes
from engine.base.errors import InputError, WeightsError
from engine.cli.describe import outline
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import LINEAR_MAPS, ModelConfig
from engine.programs import operations as p
from engine.programs import program_of, step_program
from engine.programs.program import Program

BERT = ModelConfig("test", hidden_size=24, num_layers=2, num_heads=3, head_width=8, ffn_size=40, vocab_size=50,
                   max_positions=70, token_types=2)
MODERN = replace(BERT, position_table=False, norm_place="pre", norm_bias=False, first_attention_norm=False, biases=(),
                 gated=True, token_types=0, layer_kinds=(0, 1),
                 attention_kinds=(AttentionKind(None, 160000.0), AttentionKind(7, 10000.0)))
DEBERTA = replace(BERT, position_table=False, token_types=0, relative=RelativePositions(20, 8))
PLAIN = p.Linear("x", (p.LinearPart("w", None, "y", 8),))


def test_the_set_of_operations_is_closed():
    found = {operation.__name__: [f.name for f in fields(operation)] for operation in get_args(p.Operation)}
    assert found == {
        "Embed": ["out", "width", "word", "position", "token_type", "layer", "scale"],
        "Norm": ["x", "out", "weight", "bias", "eps", "kind", "layer", "residual"],
        "Linear": ["x", "parts", "activation", "gate", "residual", "layer", "scale"],
        "Heads": ["buffers", "rotary", "layer", "norms", "eps", "joint"],
        "Attend": ["q", "k", "v", "out", "scale", "window", "layer", "bias", "observed", "relative",
                   "keys", "softcap"],
        "Pick": ["x", "out", "layer"],
        "Store": ["x", "layer", "array", "top", "softcap"],
    }


@pytest.mark.parametrize(("operations", "problem"), [
    ([p.Store("x")], "reads 'x', which nothing has written"),
    ([p.Norm("x", "x", "w", None, 1e-5, "batch")], "no norm is called 'batch'"),
    ([p.Norm("x", "x", "w", "b", 1e-5, "rms")], "RMSNorm has no bias"),
    ([p.Norm("x", "x", "w", "b", 1e-5, residual="x")], "the residual of a norm has its width and is not its result"),
    ([p.Linear("x", (p.LinearPart("w", None, "y", 9),)), p.Norm("x", "z", "w", "b", 1e-5, residual="y")],
     "has its width"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "x", 8),))], "a result is the input or the residual"),
    ([PLAIN, p.Linear("x", (p.LinearPart("w", None, "y", 8),), residual="y")], "a result is the input or the residual"),
    ([p.Linear("x", (p.LinearPart("w", None, "y", 8),), residual="x", activation="relu")], "exclude each other"),
    ([p.Linear("x", (p.LinearPart("w", None, "y", 9),), residual="x")], "a residual needs one part of its own width"),
    ([replace(PLAIN, gate=True, activation="relu")], "a gate needs an activation and two parts"),
    ([replace(PLAIN, parts=PLAIN.parts * 2)], "two parts write one buffer"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "y", 8, 3),))], "no multiple of its heads"),
    ([PLAIN, p.Heads(("y",), p.Rotary(1e4, 8, 9))], "cannot be rotated"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "y", 8, 2),)), p.Heads(("y",), norms=("a", "b"))],
     "as many as buffers"),
    ([PLAIN, p.Attend("y", "y", "y", "c", 1.0)], "must be heads"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "y", 8, 2),)),
      p.Attend("y", "y", "y", "c", 1.0, observed=(p.ObservedHead(2),))],
     "the number of an observed head is not below 2"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "y", 8, 2),)),
      p.Attend("y", "y", "y", "c", 1.0, relative=p.Relative(p.Table("r", 8), 8, None, None, None, 0.0, 4))],
     "need a map of keys or of queries"),
    ([p.Pick("x", "p"), PLAIN], "reads 'x'"),
    ([p.Pick("x", "p"), p.Norm("p", "x", "w", "b", 1e-5)], "writes 'x', a buffer of all tokens, for picked ones"),
    ([p.Pick("x", "p"), p.Heads(("p",))], "cannot be rotated"),
    ([p.Pick("x", "p"), p.Embed("y", 8)], "needs all tokens, and comes after some were picked"),
    ([replace(PLAIN, parts=(p.LinearPart("w", None, "y", 8, 2),)), p.Pick("y", "p")], "heads cannot be picked"),
], ids=str)  # fmt: skip
def test_a_program_that_cannot_run_is_refused(operations, problem):
    with pytest.raises(ValueError, match=problem):
        Program((p.Embed("x", 8), *operations)) if operations != [p.Store("x")] else Program(tuple(operations))


def test_one_name_for_two_shapes_is_refused():
    both = Program((p.Embed("x", 8), PLAIN, p.Linear("y", (p.LinearPart("w", None, "x", 4),))))
    with pytest.raises(ValueError, match="w is used as"):
        _ = both.parameters


def test_a_table_that_makes_logits_is_a_table():
    tied = replace(BERT, attention_kinds=(AttentionKind(causal=True),), logits="tied", logits_scale=0.5)
    assert step_program(tied).parameters["embeddings.word"] == p.Parameter((50, 24), "table")
    assert outline(step_program(tied))[-1][1] == "p = picked rows of x; logits = word (0.5 p); store logits"


def test_parameters_of_a_modernbert():
    shapes = {name: parameter.shape for name, parameter in program_of(MODERN).parameters.items()}
    assert "layers.0.attention.norm.weight" not in shapes
    assert not any(name.endswith(".bias") or "position" in name for name in shapes)
    assert shapes["layers.1.ffn.gate.weight"] == shapes["layers.1.ffn.up.weight"] == (40, 24)
    assert shapes["final_norm.weight"] == (24,)
    assert program_of(MODERN).parameters["layers.0.attention.output.weight"].heads == 3


def test_heads_of_queries_and_keys_may_have_norms():
    plain = replace(BERT, num_kv_heads=1, head_norm=True)
    shapes = {name: parameter.shape for name, parameter in program_of(plain).parameters.items()}
    assert shapes["layers.1.attention.query_norm.weight"] == shapes["layers.1.attention.key_norm.weight"] == (8,)
    heads = [operation for operation in program_of(plain).operations if isinstance(operation, p.Heads)]
    assert [operation.rotary for operation in heads] == [None, None]
    both = program_of(replace(MODERN, head_norm=True)).operations
    assert [len(operation.norms) for operation in both if isinstance(operation, p.Heads)] == [2, 2]


def test_biases_by_distance():
    T5 = replace(BERT, attention_bias="buckets", bias_buckets=32, bias_max_distance=128, attention_scale=1.0)
    assert program_of(T5).parameters["distance_bias.weight"] == p.Parameter((32, 3), "small")
    own = program_of(replace(T5, bias_in_layers=True)).parameters
    assert [name for name in own if "bias.weight" in name] == [f"layers.{i}.attention.distance_bias.weight"
                                                               for i in (0, 1)]
    attends = [operation for operation in program_of(T5).operations if isinstance(operation, p.Attend)]
    assert attends[0].bias == attends[1].bias == p.DistanceBias(p.Table("distance_bias.weight", 32), 128)
    assert attends[0].scale == 1.0
    alibi = program_of(replace(BERT, attention_bias="alibi"))
    assert alibi.parameters == program_of(BERT).parameters
    assert "attend(q, k, v, ALiBi)" in outline(alibi)[1][1]
    assert "attend(q, k, v, bias of 32 buckets to distance 128, for all layers)" in outline(program_of(T5))[1][1]


@pytest.mark.parametrize(("changes", "problem"), [
    ({"attention_scale": 0.0}, "attention_scale must be None or a float"),
    ({"attention_scale": 1}, "attention_scale must be None or a float"),
    ({"attention_bias": "rotary"}, "attention_bias must be one of None, alibi, buckets"),
    ({"attention_bias": "buckets"}, "bias_buckets must be even and at least 4, not 0"),
    ({"attention_bias": "buckets", "bias_buckets": 7, "bias_max_distance": 9}, "even and at least 4, not 7"),
    ({"attention_bias": "buckets", "bias_buckets": 32, "bias_max_distance": 8}, "bias_max_distance must be above 8"),
    ({"attention_bias": "alibi", "bias_buckets": 32}, "need attention_bias 'buckets'"),
    ({"bias_in_layers": True}, "need attention_bias 'buckets'"),
    ({"attention_bias": "alibi", "num_heads": 2000}, "at most 1024 heads"),
], ids=str)  # fmt: skip
def test_an_impossible_bias_is_refused(changes, problem):
    with pytest.raises(WeightsError, match=problem):
        replace(BERT, **changes)


@pytest.mark.parametrize("own", [False, True])
def test_parameters_of_relative_positions(own):
    parameters = program_of(replace(DEBERTA, relative=RelativePositions(20, 8, own_maps=own))).parameters
    assert parameters["embeddings.relative"] == p.Parameter((16, 24), "small")
    assert parameters["embeddings.relative_norm.bias"].shape == (24,)
    maps = ("key.weight", "key.bias", "query.weight", "query.bias")
    assert [name for name in parameters if "1.attention.relative" in name] == [
        f"layers.1.attention.relative_{name}" for name in maps if own]


def test_flops_and_bytes():
    T = 30
    maps = 2 * 24 * (4 * 24 + 2 * 40)
    assert forward_flops(BERT, [T, 1]) == 2 * (maps * (T + 1) + 4 * 24 * (T * T + 1))
    assert visible_pairs(p.Attend("q", "k", "v", "c", 1.0, (2, 2)), 5) == 3 + 4 + 5 + 4 + 3
    seen = sum(min(t + 7, T - 1) - max(t - 7, 0) + 1 for t in range(T))
    relative = 2 * 2 * 24 * (30 * 16 + 5 * 9)
    assert forward_flops(DEBERTA, [T, 5]) == 2 * (maps * (T + 5) + 4 * 24 * (T * T + 25) + relative)
    gated = 2 * 24 * (4 * 24 + 3 * 40)
    assert forward_flops(MODERN, [T]) == 2 * gated * T + 4 * 24 * (T * T + seen)
    assert weight_bytes(BERT, "int8") == 2 * (4 * 24 * 24 + 2 * 24 * 40 + 4 * (3 * 24 + 6 * 24 + 40))


lowering = pytest.importorskip("engine.backends.cpu.lowering", reason="the compiled kernels are not built")


def compiled(config, precision="float32", threads=2, recorder=None):
    from engine.backends.cpu.packer import Packer
    from engine.backends.cython_cpu import isa
    from engine.weights.parameters import expected_shapes

    weights = {name: np.ones(shape, np.float32) for name, shape in expected_shapes(config).items()}
    product = isa.load("baseline").product(precision)
    return lowering.lower(program_of(config), product, Packer(product, weights), threads)


def test_biases_that_would_take_more_than_a_gigabyte_are_refused():
    weights = {"distance_bias.weight": np.zeros((32, 1024), np.float32)}
    bias = p.DistanceBias(p.Table("distance_bias.weight", 32), 128)
    packer = lowering.Packer(None, weights, 2**17 + 1)
    with pytest.raises(InputError, match="smaller max_batch_tokens"):
        packer.bias(bias, 1024)
    assert lowering.Packer(None, weights, 4).bias(bias, 1024).shape == (1024, 7)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("config", [BERT, MODERN, DEBERTA], ids=["BERT", "ModernBERT", "DeBERTa"])
def test_the_workspace_is_what_was_allocated(config, precision, monkeypatch):
    taken = []
    monkeypatch.setattr(lowering, "allocate", lambda n: taken.append(n) or np.zeros(n, np.float32))
    executor = compiled(config, precision, threads=3)
    initial = executor.workspace_bytes(0)
    assert sum(taken) * 4 == initial + 4, "one float stands for the tokens of a pass until the first pass"
    N = 70
    ids = np.zeros(N, np.int32)
    executor.forward(np.array([[0, N, 0]]), np.array([[1, N]]), False, ids, None, np.arange(N, dtype=np.int32), ids,
                     [np.empty((N, 24), np.float32)])
    assert taken[-1] * 4 == executor.workspace_bytes(N) - initial


class Recorder:
    """Stands in for the native executor: it logs each instruction, with a bar before it where the team has to meet."""

    def __init__(self, *args, **options):
        self.log = []

    def start(self):
        pass

    def __getattr__(self, kind):
        return lambda *args, needs_barrier, **options: self.log.append("|" * needs_barrier + kind)


@pytest.mark.parametrize(("config", "precision", "layer", "meetings"), [
    (BERT, "float32", "|multiply |attend |multiply |norm |multiply |multiply |norm", 7),
    (BERT, "int8", "|multiply |attend |convert |multiply |norm |multiply |convert |multiply |norm", 9),
    (MODERN, "float32", "norm |multiply |heads heads |attend |multiply |norm |multiply |multiply |norm", 8),
], ids=["BERT", "BERT in int8", "ModernBERT"])  # fmt: skip
def test_threads_meet_where_one_reads_what_another_wrote(config, precision, layer, meetings, monkeypatch):
    monkeypatch.setattr(lowering, "Executor", Recorder)
    log = " ".join(compiled(config, precision).log)
    assert layer in log
    assert layer.removeprefix("norm ").count("|") == meetings


def test_threads_meet_before_one_overwrites_what_another_reads():
    meetings = lowering._Meetings()
    assert not meetings.add({"x": "all"}, {"y": "panels"})
    assert meetings.add({}, {"x": "rows"})
    assert not meetings.add({"x": "rows"}, {"z": "rows"})
    assert not meetings.add({}, {"x": "rows"}), "each thread has read and writes its own rows"


def test_every_linear_map_may_lack_its_bias():
    for name in LINEAR_MAPS:
        config = replace(BERT, gated=True, biases=tuple(other for other in LINEAR_MAPS if other != name))
        missing = [p for p in program_of(config).parameters if p.endswith(f"{name}.bias")]
        assert missing == []
