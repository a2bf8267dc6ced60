"""Test packing: from arrays and lists to a batch, and back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine.base.errors import InputError
from engine.encoding.packing import pack, pack_rows
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig

SIZES = {"hidden_size": 4, "num_layers": 1, "num_heads": 1, "head_width": 4, "ffn_size": 4}
BERT = ModelConfig("bert", **SIZES, vocab_size=30, max_positions=6, token_types=2)
ROBERTA = ModelConfig(
    "roberta", **SIZES, vocab_size=30, max_positions=8, token_types=1, position_offset=2, pad_token_id=1
)
BARE = ModelConfig("bert", **SIZES, embedding_norm=False)


def test_array_without_mask():
    batch, layout = pack(BERT, np.array([[5, 0, 7], [8, 9, 0]]))
    assert (batch.sequences, batch.tokens) == (2, 6)
    assert batch.cu_seqlens.tolist() == [0, 3, 6]
    assert batch.input_ids.tolist() == [5, 0, 7, 8, 9, 0]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1, 2]
    assert batch.token_type_ids.tolist() == [0] * 6
    assert batch.inputs_embeds is None
    assert {a.dtype for a in (batch.cu_seqlens, batch.input_ids, batch.position_ids, batch.token_type_ids)} == {
        np.dtype(np.int32)
    }
    tokens = np.arange(12.0).reshape(6, 2)
    np.testing.assert_array_equal(layout.unpack(tokens), tokens.reshape(2, 3, 2))


def test_the_lists_of_a_tokenizer():
    """Lists with masks, as transformers' tokenizers return them, with and without padding."""
    ids, mask = [[5, 6, 7], [8, 9, 0]], [[1, 1, 1], [1, 1, 0]]
    batch, layout = pack(BERT, ids, mask, [[0, 1, 1], [0, 0, 0]])
    expected, _ = pack(BERT, np.array(ids), np.array(mask), np.array([[0, 1, 1], [0, 0, 0]]))
    assert batch.input_ids.tolist() == expected.input_ids.tolist() == [5, 6, 7, 8, 9]
    assert batch.cu_seqlens.tolist() == expected.cu_seqlens.tolist()
    rows = layout.unpack(batch.input_ids[:, None])
    assert [row[:, 0].tolist() for row in rows] == ids
    ragged, layout = pack(BERT, [[5, 6, 7], [8, 9], []], [[1, 1, 1], (1, 1), []])
    assert ragged.input_ids.tolist() == [5, 6, 7, 8, 9]
    assert [len(row) for row in layout.unpack(ragged.input_ids[:, None])] == [3, 2, 0]
    assert pack(BERT, [[5, 6]], [np.array([False, True])])[0].input_ids.tolist() == [6]


@pytest.mark.parametrize("config", [BERT, ROBERTA])
@pytest.mark.parametrize("ids", [[[5, 6, 7], [], [1, 9, 1, 2]], [], [[1] * 7, [5] * 7], [[5, 30]], [[-1]]])
def test_the_rows_of_a_tokenizer_are_packed_as_lists_are(config, ids):
    def packed(function, rows, types):
        try:
            batch, form = function(config, rows, token_type_ids=types)
        except InputError as error:
            return str(error)
        arrays = batch.cu_seqlens, batch.input_ids, batch.position_ids, batch.token_type_ids, form.starts
        return [(array.dtype, array.tolist()) for array in arrays]

    for types in (None, [[i % 2 for i in range(len(row))] for row in ids]):
        found = packed(pack_rows, [np.array(row, np.int32) for row in ids],
                       None if types is None else [np.array(row, np.int32) for row in types])
        assert found == packed(pack, ids, types)


def test_masked_array():
    mask = [[0, 1, 1], [1, 0, 1], [0, 0, 0]]
    batch, layout = pack(
        BERT, np.array([[-1, 5, 6], [7, 99, 8], [0, 0, 0]]), np.array(mask), np.array([[7, 0, 1], [1, 9, 0], [0, 0, 0]])
    )
    assert batch.cu_seqlens.tolist() == [0, 2, 4, 4]
    assert batch.input_ids.tolist() == [5, 6, 7, 8]
    assert batch.position_ids.tolist() == [1, 2, 0, 2]
    assert batch.token_type_ids.tolist() == [0, 1, 1, 0]
    assert layout.unpack(np.array([[1.0], [2.0], [3.0], [4.0]]))[..., 0].tolist() == [[0, 1, 2], [3, 0, 4], [0, 0, 0]]


def test_list_of_sequences():
    batch, layout = pack(
        BERT, [[5, 6], [], np.array([7], np.uint8), (8, 9, 10)], token_type_ids=[[0, 1], [], [1], [0, 0, 1]]
    )
    assert batch.cu_seqlens.tolist() == [0, 2, 2, 3, 6]
    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert batch.position_ids.tolist() == [0, 1, 0, 0, 1, 2]
    assert batch.token_type_ids.tolist() == [0, 1, 1, 0, 0, 1]
    assert [rows.tolist() for rows in layout.unpack(np.arange(6.0)[:, None])] == [
        [[0], [1]],
        [],
        [[2]],
        [[3], [4], [5]],
    ]


def test_roberta_counts_what_is_not_padding():
    """The padding token's id decides, not the mask, as in transformers' create_position_ids_from_input_ids."""
    expected = [[2, 3, 4, 1], [1, 1, 2, 3], [2, 1, 3, 1]]
    ids = np.array([[5, 6, 7, 1], [1, 1, 8, 9], [5, 1, 6, 1]])
    assert pack(ROBERTA, ids)[0].position_ids.reshape(3, 4).tolist() == expected
    assert pack(ROBERTA, list(ids))[0].position_ids.reshape(3, 4).tolist() == expected
    mask = np.array([[0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    assert pack(ROBERTA, ids, mask)[0].position_ids.tolist() == [3, 4, 2, 3, 2, 1, 3, 1]


def test_rotary_positions_count_from_the_first_real_token():
    rotary = replace(BERT, position_table=False, attention_kinds=(AttentionKind(rotary_theta=10000.0),))
    ids, mask = np.full((3, 4), 5), np.array([[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]])
    assert pack(rotary, ids, mask)[0].position_ids.tolist() == [0, 1, 0, 1, 0, 1, 2, 3]
    assert pack(BERT, ids, mask)[0].position_ids.tolist() == [2, 3, 1, 2, 0, 1, 2, 3]


def test_roberta_counts_embeddings_from_its_offset():
    batch, _ = pack(ROBERTA, inputs_embeds=np.zeros((2, 3, 4), np.float32))
    assert batch.position_ids.tolist() == [2, 3, 4, 2, 3, 4]


def test_given_positions():
    assert pack(BERT, np.array([[5, 6]]), position_ids=np.array([[5, 0]]))[0].position_ids.tolist() == [5, 0]
    assert pack(BERT, [[5], [6, 7]], position_ids=[[3], [1, 4]])[0].position_ids.tolist() == [3, 1, 4]


def test_embeddings():
    embeds = np.arange(24.0).reshape(2, 3, 4)
    batch, _ = pack(BARE, inputs_embeds=embeds, attention_mask=np.array([[True, True, False], [False, True, True]]))
    assert batch.input_ids is None
    assert batch.inputs_embeds.dtype == np.float32
    np.testing.assert_array_equal(batch.inputs_embeds, embeds.reshape(6, 4)[[0, 1, 4, 5]])
    ragged, _ = pack(BARE, inputs_embeds=[embeds[0], embeds[1, :1], embeds[1, :0]])
    np.testing.assert_array_equal(ragged.inputs_embeds, embeds.reshape(6, 4)[:4])
    assert ragged.cu_seqlens.tolist() == [0, 3, 4, 4]


@pytest.mark.parametrize("config", [BERT, ROBERTA])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_empty_arrays(config, shape):
    batch, layout = pack(config, np.zeros(shape, int), np.ones(shape, int))
    assert (batch.sequences, batch.tokens) == (shape[0], 0)
    assert layout.unpack(np.zeros((0, 4))).shape == (*shape, 4)


def test_empty_lists():
    batch, layout = pack(ROBERTA, [])
    assert (batch.sequences, batch.tokens, layout.unpack(np.zeros((0, 4)))) == (0, 0, [])
    batch, layout = pack(ROBERTA, [[], []])
    assert (batch.sequences, batch.tokens, len(layout.unpack(np.zeros((0, 4))))) == (2, 0, 2)


@given(st.data(), st.integers(0, 4), st.integers(0, 6))
def test_unpack_undoes_pack(data, sequences, length):
    ids = data.draw(arrays(np.int64, (sequences, length), elements=st.integers(0, 29)))
    mask = data.draw(arrays(bool, (sequences, length)))
    batch, layout = pack(BERT, ids, mask)
    np.testing.assert_array_equal(layout.unpack(batch.input_ids[:, None])[..., 0], np.where(mask, ids, 0))
    np.testing.assert_array_equal(batch.cu_seqlens, np.concatenate(([0], mask.sum(1).cumsum())))
    alone = [pack(BERT, ids[b : b + 1], mask[b : b + 1])[0] for b in range(sequences)]
    assert batch.position_ids.tolist() == [p for one in alone for p in one.position_ids.tolist()]


ONE = np.array([[5, 6, 7]])


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        (BERT, {}, "either input_ids or inputs_embeds; got neither"),
        (BERT, {"input_ids": ONE, "inputs_embeds": np.zeros((1, 3, 4))}, "got both"),
        (BARE, {"input_ids": ONE}, "no word table"),
        (
            BERT,
            {"input_ids": np.array([[5, 30], [-1, 31]])},
            r"token 1 of sequence 0 has token id 30; this model's are 0 to 29",
        ),
        (BERT, {"input_ids": [[1, 2], [], [3, -4]]}, r"token 1 of sequence 2 has token id -4"),
        (
            BERT,
            {"input_ids": np.array([[99, 5], [5, 31]]), "attention_mask": np.array([[0, 1], [1, 1]])},
            "token 1 of sequence 1 has token id 31",
        ),
        (BERT, {"input_ids": [[2**40]]}, f"has token id {2**40}"),
        (BERT, {"input_ids": ONE.astype(float)}, r"input_ids must be an integer array \[B,T\].* not float64 \[1, 3\]"),
        (BERT, {"input_ids": [[1.5]]}, r"input_ids\[0\] must be an integer array \[T\].* not float64"),
        (BERT, {"input_ids": ONE > 5}, "not bool"),
        (BERT, {"input_ids": ONE[0]}, r"not int64 \[3\]"),
        (
            BERT,
            {"input_ids": [5, 6, 7]},
            r"input_ids\[0\] must be .* as one of the sequences of a list, not the number 5",
        ),
        (BERT, {"input_ids": [[[5]]]}, r"not int64 \[1, 1\]"),
        (BERT, {"input_ids": [[[5], [6, 7]]]}, r"input_ids\[0\] must be .* \[T\], not \[\[5"),
        (BERT, {"input_ids": "a sentence"}, "must be an integer array"),
        (BERT, {"input_ids": np.zeros((2, 7), int)}, "sequence 0 is too long: token 6 .* the 6 tokens"),
        (BERT, {"input_ids": [[1], [1] * 9]}, "sequence 1 is too long"),
        (ROBERTA, {"input_ids": np.full((1, 7), 5)}, "sequence 0 is too long: token 6 .* the 6 tokens"),
        (
            BERT,
            {"input_ids": ONE, "attention_mask": np.ones((3, 1), int)},
            r"attention_mask must have .*\[1, 3\], not \[3, 1\]",
        ),
        (BERT, {"input_ids": ONE, "attention_mask": np.array([[1, 0, 2]])}, "values from 0 to 2"),
        (BERT, {"input_ids": ONE, "attention_mask": np.array([[-1, 0, 1]])}, "values from -1 to 1"),
        (BERT, {"input_ids": ONE, "attention_mask": [[1, 0], [1]]}, r"an array \[B,T\] with 1 or True.* not \[\[1"),
        (BERT, {"input_ids": ONE, "attention_mask": np.zeros((1, 3))}, r"not float64: a float.*astype\(bool\)"),
        (BERT, {"input_ids": [[5]], "attention_mask": [[1.0]]}, "not float64"),
        (BERT, {"input_ids": [[5], [6, 7]], "attention_mask": [[1], [1]]}, r"of 1, 2; .*shapes \[1\], \[1\]"),
        (BERT, {"input_ids": [[5]], "attention_mask": [[[1]]]}, r"its rows have the shapes \[1, 1\]"),
        (BERT, {"input_ids": [[5]], "attention_mask": [[2]]}, "values from 2 to 2"),
        (BERT, {"input_ids": [[5]], "attention_mask": np.ones((1, 1), int)}, "a list of sequences.*not ndarray"),
        (BERT, {"input_ids": ONE, "attention_mask": np.ma.ones((1, 3), int)}, r"MaskedArray.*filled\(0\)"),
        (BERT, {"input_ids": np.ma.ones((1, 3), int)}, "input_ids must be .*not a MaskedArray"),
        (BERT, {"input_ids": ONE, "token_type_ids": np.array([[0, 1, 2]])}, "token 2 of sequence 0 has token type 2"),
        (
            BARE,
            {"inputs_embeds": np.zeros((1, 1, 4)), "token_type_ids": np.array([[0]])},
            "token type 0; this model has none",
        ),
        (BERT, {"input_ids": ONE, "token_type_ids": [[0, 0, 0]]}, r"token_type_ids must be an array \[B,T\]"),
        (BERT, {"input_ids": [[5]], "token_type_ids": np.array([[0]])}, "token_type_ids must be a list"),
        (
            BERT,
            {"input_ids": [[5], [6]], "token_type_ids": [[0, 0], []]},
            "lengths of the tokens, 2 sequences of 1, 1, not 2 sequences of 2, 0",
        ),
        (
            BERT,
            {"input_ids": ONE, "position_ids": np.array([[0, 6, 1]])},
            "token 1 of sequence 0 has position id 6; this model's are 0 to 5",
        ),
        (BERT, {"input_ids": ONE, "position_ids": np.array([[0, 1]])}, r"shape of the tokens, \(1, 3\), not \(1, 2\)"),
        (
            BARE,
            {"inputs_embeds": np.zeros((1, 1, 4)), "position_ids": np.array([[0]])},
            "position id 0; this model has none",
        ),
        (BERT, {"inputs_embeds": np.zeros((1, 3, 5))}, r"float array \[B,T,4\].* not float64 \[1, 3, 5\]"),
        (BERT, {"inputs_embeds": np.zeros((1, 3, 4), int)}, "not int64"),
        (BERT, {"inputs_embeds": [np.zeros((3, 5))]}, r"inputs_embeds\[0\] must be a float array \[T,4\]"),
    ],
)
def test_bad_input(config, arguments, message):
    with pytest.raises(InputError, match=message):
        pack(config, **arguments)
