"""Arguments that claim to be huge are refused before anything of their size is allocated."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine import ops
from engine.base.errors import InputError
from engine.encoding.packing import pack
from engine.model.attention import AttentionKind

from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.tiny_models import D, P, random_model

HUGE = 2**28


def huge(number: Any, *shape: int) -> np.ndarray:
    return np.broadcast_to(number, shape or (1, HUGE))


ONE = np.int64(1)
BERT = random_model().config
ROBERTA = replace(BERT, position_offset=2, pad_token_id=1)
ROTARY = replace(BERT, position_table=False, attention_kinds=(AttentionKind(rotary_theta=1e4),))

CASES = {
    "an array": (BERT, {"input_ids": huge(ONE)}, "sequence 0 is too long: token 16"),
    "a list": (BERT, {"input_ids": [[1], huge(ONE, HUGE)]}, "sequence 1 is too long: token 16"),
    "embeddings": (BERT, {"inputs_embeds": huge(np.float32(1), 1, HUGE, D)}, "sequence 0 is too long: token 16"),
    "a mask": (BERT, {"input_ids": huge(ONE), "attention_mask": huge(True)}, "sequence 0 is too long: token 16"),
    "rotary positions": (ROTARY, {"input_ids": huge(ONE), "attention_mask": huge(True)}, "too long: token 16"),
    "counted positions": (ROBERTA, {"input_ids": huge(np.int64(2))}, "too long: token 14"),
    "token types": (BERT, {"input_ids": [[1]], "token_type_ids": huge(ONE)}, "token_type_ids must be a list"),
    "token types of a list": (BERT, {"input_ids": [[1]], "token_type_ids": [huge(ONE, HUGE)]}, "must have the lengths"),
    "positions": (BERT, {"input_ids": np.ones((1, 1), int), "position_ids": huge(ONE)}, "position_ids must have the"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_huge_argument(case):
    config, arguments, message = CASES[case]
    result = outcome(lambda: pack(config, **arguments), memory=100_000_000)
    assert result.startswith("EngineError")
    assert message in result


def test_an_engine_refuses_a_huge_array():
    engine = engine_of(random_model(), threads=1)
    assert "too long" in outcome(lambda: engine.forward(huge(ONE)), memory=100_000_000)


def test_padding_beyond_the_limit_is_allowed():
    ids = np.full((2, 3 * P), 5)
    mask = np.zeros((2, 3 * P), int)
    mask[:, :P] = 1
    batch, _ = pack(BERT, ids, mask)
    assert batch.position_ids.tolist() == [*range(P), *range(P)]
    mask[1, P] = 1
    with pytest.raises(InputError, match="sequence 1 is too long: token 16 "):
        pack(BERT, ids, mask)
    mask[:] = 0
    mask[:, -P:] = 1
    assert pack(ROTARY, ids, mask)[0].position_ids.tolist() == [*range(P), *range(P)]
    mask[0, 0] = 1
    with pytest.raises(InputError, match="sequence 0 is too long"):
        pack(ROTARY, ids, mask)
    padded = np.where(np.arange(3 * P) < P - 2, 5, 1)[None]
    assert pack(ROBERTA, padded)[0].position_ids.max() == P - 1
    padded[0, -1] = 5
    with pytest.raises(InputError, match="sequence 0 is too long: token 47 "):
        pack(ROBERTA, padded)


def test_embeddings_that_float32_cannot_hold():
    for embeds in (np.full((1, 2, D), 1e300), [np.full((2, D), -1e300)]):
        with pytest.raises(InputError, match="inputs_embeds must have numbers that float32 can hold"):
            pack(BERT, inputs_embeds=embeds)


@pytest.mark.parametrize("heads", [2**2000, 10**400, 2**17])
def test_too_many_heads(heads):
    assert "num_heads must be at most 65,536" in outcome(ops.alibi_slopes, heads)


def test_operations_refuse_numbers_that_no_float_holds():
    x = np.ones((1, 1, 2, 4), np.float32)
    with pytest.raises(InputError, match="base must be a finite number"):
        ops.rotary(x, base=10**400)
    for positions in ([np.inf, 0.0], [0.0, np.nan]):
        with pytest.raises(InputError, match="positions must be finite"):
            ops.rotary(x, positions=positions)


@pytest.mark.parametrize("mask", [None, huge(np.bool_(False), 2**16, 2**15)], ids=["real", "padding"])
def test_more_tokens_than_a_batch_can_count(mask):
    free = replace(BERT, max_positions=0, position_table=False)
    with pytest.raises(InputError, match=r"at most 2,147,483,647 tokens in one call, .*; split the batch"):
        pack(free, huge(ONE, 2**16, 2**15), mask)
    with pytest.raises(InputError, match=r"at most 2,147,483,647 tokens .* not 2,147,483,648"):
        pack(free, [huge(ONE, 2**30)] * 2)
