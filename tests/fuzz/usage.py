"""Use a model as callers do, rightly and wrongly: any answer or `EngineError` will do, and nothing else."""

import random
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from engine import Engine, Transformer
from engine.base.errors import EngineError
from engine.cli.describe import outline
from engine.model.precision import LOADABLE
from engine.programs import program_of
from tests.tools.model_files import same

from ..tools.encoders import engine_of, load_encoder, save_encoder

TEXTS: tuple[Any, ...] = (
    "the cat sat", "", " ", "a" * 300, "a b " * 200, "Äé中\u0301\u200d", "[CLS] a [SEP]", "\0", "\ud800", ("a", "cat"),
    ("a" * 500, "t" * 500), ["the", ""], 3, None, b"cat", ("a",), "<0x61>▁Ġ", "(a+)+$", "\ufdfa" * 20,
)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "prompt": ("", "query: ", "\ud800", 3), "prompt_name": ("query", "x", 3, None), "batch_size": (1, 0, 2**70, "a"),
    "output_value": ("token_embeddings", None, "x"), "normalize_embeddings": (True, "x"), "truncate_dim": (1, 99, 0),
    "timeout": (100.0, 0, -1, float("nan"), "x"), "precision": ("float32", "int8", 3), "convert_to_numpy": (False,),
    "show_progress_bar": (False, None), "device": ("cpu", "cuda"), "convert_to_tensor": (True,), "pool": (3,),
}
"""Options of `encode`, with right and wrong values."""

_LAYERS: tuple[Any, ...] = (True, False, [0], (0, 0), [-1], [99], [], "all", 10**400, [[0], [1, 2]], np.ones(2), {0: 1},
                            [(0, 0)], (0, 1), [(0, 9)], ["a"], [True], None, [0.5], range(2))
_IDS: tuple[Any, ...] = (
    [[0, 1, 2], []], [[3]], [], [[0, 99]], [[-1]], [[2**40]], [list(range(16))], [[0] * 17], [[0.5]], ["a"], [[[1]]],
    None, 7, np.arange(6).reshape(2, 3), np.zeros((0, 3), int), np.zeros((2, 0), np.int32), np.ones((1, 3), np.uint8),
)


def use_heads(rng: random.Random, engine: Engine) -> None:
    """Run the heads of a model with any arguments."""
    texts: Any = rng.choice((rng.choices(TEXTS, k=rng.randrange(4)), rng.choice(TEXTS)))
    calls = {"classify": (lambda: engine.classify(texts, top_k=rng.choice((1, None, 2, 0, "x"))),
                          lambda: engine.predict(texts), lambda: engine.rank("a cat", texts)),
             "tag": (lambda: engine.tag(texts, aggregation_strategy=rng.choice(("none", "simple", "max", 3))),
                     lambda: engine.tag(texts, aggregation_strategy="first", stride=rng.choice((0, 2, 99, "x")))),
             "answer": (lambda: engine.answer("a cat", texts, top_k=rng.choice((1, 3))),
                        lambda: engine.answer(texts, "the cat sat on a mat", max_seq_len=rng.choice((12, 3, "x")))),
             "fill_mask": (lambda: engine.fill_mask(texts), lambda: engine.encode_sparse(texts),
                           lambda: engine.fill_mask("the [CLS]", targets=texts)),
             "encode_tokens": (lambda: engine.encode_tokens(texts, task=rng.choice(("query", "document", None, 3))),
                               lambda: engine.similarity(engine.encode_query(texts), engine.encode_document(texts)),
                               lambda: engine.encode_tokens(texts, prompt="\ud800", normalize_embeddings=True)),
             "encode_sparse": (lambda: engine.encode_sparse(texts, max_active_dims=rng.choice((None, 1, 0))),)}
    for task in engine.heads:
        with suppress(EngineError):
            rng.choice(calls[task])()


def use(rng: random.Random, model: Transformer, place: Path) -> None:
    """Run a model in one of the ways above; sometimes also write it and read it again, which may change nothing.

    Raises the `EngineError` that the model gives, but none of a wrong argument.
    """
    backend = rng.choice(("auto", "auto", "reference"))
    engine = engine_of(model, threads=1, backend=backend,
                       precision=rng.choice((None, None, None, *LOADABLE, "float16")))
    # Finite weights can still be so large that their products are not, of which the reference alone warns.
    with np.errstate(all="ignore") if backend == "reference" else nullcontext():
        engine.forward([[0, 1, 2], []])
        with suppress(EngineError):
            engine.forward(**_arguments(rng, model))
        if engine.text is not None:
            use_heads(rng, engine)
            engine.encode(["the cat sat", "", ("a" * 30, "t")])
            with suppress(EngineError):
                texts = rng.choice((rng.choices(TEXTS, k=rng.randrange(4)), rng.choice(TEXTS)))
                engine.encode(texts, **{name: rng.choice(OPTIONS[name]) for name in rng.sample(list(OPTIONS), k=2)})
            with suppress(EngineError):
                rng.choice((engine.encode_query, engine.encode_document, engine.tokenize))(rng.choices(TEXTS, k=2))
    outline(program_of(model.config))
    if rng.random() < 0.2:
        save_encoder(model, place / "saved.npz")
        read = load_encoder(place / "saved.npz")
        if not same(read, model):
            raise AssertionError("a model that was written and read again is another one")


def _arguments(rng: random.Random, model: Transformer) -> dict[str, Any]:
    ids = rng.choice(_IDS)
    given: dict[str, Any] = {"input_ids": ids}
    for name in ("attention_mask", "token_type_ids", "position_ids"):
        if rng.random() < 0.3:
            given[name] = rng.choice((ids, [[1, 0, 1], []], [[1, 1, 1], []], rng.choice(_IDS)))
    if rng.random() < 0.2:
        given[rng.choice(("output_hidden_states", "output_attentions", "output_entropies"))] = rng.choice(_LAYERS)
    if rng.random() < 0.2:
        width = rng.choice((model.config.hidden_size, 3))
        rows = np.full((rng.choice((0, 1, 3)), width), rng.choice((0.5, 1e30, float("nan"))), np.float32)
        with np.errstate(invalid="ignore"):
            numbers = rows.astype(int)
        given |= {"input_ids": None, "inputs_embeds": rng.choice((rows[None], [rows, rows], rows, numbers))}
    return given
