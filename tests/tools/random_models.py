"""Random encoders of every combination of options, for several test modules."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ACTIVATIONS, LINEAR_MAPS, NORM_PLACES, ModelConfig

POSITIONS = 330
WORDS = 40

RELATIVE = st.builds(RelativePositions, limit=st.sampled_from([9, 60, POSITIONS]), buckets=st.sampled_from([0, 6, 14]),
                     terms=st.sampled_from([("c2p",), ("p2c",), ("c2p", "p2c")]), norm=st.booleans(),
                     own_maps=st.booleans())


@st.composite
def configs(draw, most_layers=3):
    """A small ModelConfig with sizes that fit no vector, and any combination of options."""
    heads = draw(st.sampled_from([1, 2, 3, 4, 6]))
    kv_heads = draw(st.sampled_from([g for g in (1, 2, 3, 4, 6) if heads % g == 0]))
    layers = draw(st.integers(1, most_layers))
    rotates = draw(st.booleans())
    theta = st.sampled_from([None, 10000.0, 500.0]) if rotates else st.none()
    kinds = draw(st.lists(st.builds(AttentionKind, window=st.sampled_from([None, 0, 1, 7, 64]), rotary_theta=theta,
                                    rotary_scale=st.sampled_from([1.0, 3.5]), rotary_interleaved=st.booleans(),
                                    causal=st.booleans(), rotary_factor=st.sampled_from([1.0, 1.3])),
                          min_size=1, max_size=3))
    bias = draw(st.sampled_from([None, "alibi", "buckets"]))
    table = {} if bias != "buckets" else {"bias_buckets": draw(st.sampled_from([4, 6, 32])),
                                          "bias_max_distance": draw(st.sampled_from([9, 20, 128])),
                                          "bias_in_layers": draw(st.booleans())}
    half = draw(st.integers(1, 20))
    turned = draw(st.sampled_from([None, half])) if rotates and half > 1 and half % 2 == 0 else None
    kinds = [kind if kind.rotary_theta is None else replace(kind, rotary_width=turned) for kind in kinds]
    if rotates and draw(st.booleans()):
        angles = tuple(float(angle) for angle in np.geomspace(1.0, 0.003, half if turned is None else half // 2))
        kinds = [kind if kind.rotary_theta is None else replace(kind, rotary_frequencies=angles) for kind in kinds]
    relative, head_norm = draw(st.one_of(st.none(), RELATIVE)), draw(st.booleans())
    return ModelConfig(
        family="random", hidden_size=draw(st.integers(1, 70)), num_layers=layers, num_heads=heads,
        num_kv_heads=kv_heads, head_width=half * (1 + rotates),
        ffn_size=draw(st.integers(1, 100)), vocab_size=draw(st.sampled_from([WORDS, WORDS, 0])),
        position_offset=draw(st.sampled_from([0, 2])),
        max_positions=POSITIONS if rotates else draw(st.sampled_from([0, POSITIONS])),
        position_table=draw(st.booleans()), token_types=draw(st.integers(0, 2)), embedding_norm=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-5])), activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])), norm_place=draw(st.sampled_from(NORM_PLACES)),
        norm_bias=draw(st.booleans()), first_attention_norm=draw(st.booleans()), gated=draw(st.booleans()),
        biases=tuple(draw(st.lists(st.sampled_from(LINEAR_MAPS), unique=True))), attention_kinds=tuple(kinds),
        head_norm=head_norm, joint_norm=not head_norm and draw(st.booleans()), attention_bias=bias, **table,
        attention_scale=draw(st.sampled_from([None, 1.0, 0.3])), relative=relative,
        attention_softcap=draw(st.sampled_from([0.0, 2.0])) if relative is None else 0.0,
        embedding_width=draw(st.sampled_from([0, 1, 16, 33])),
        final_norm=draw(st.sampled_from([None, True, False])),
        embedding_scale=draw(st.sampled_from([1.0, 5.5])),
        weight_sets=draw(st.sampled_from([(), (0, 0, 1)[:layers], (0, 1, 0)[:layers]])),
        layer_kinds=tuple(draw(st.lists(st.integers(0, len(kinds) - 1), min_size=layers, max_size=layers))))


LENGTHS = st.lists(st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 66, 129, 200, 300]), min_size=1, max_size=4)
