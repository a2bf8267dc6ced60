"""What torch calls the arguments of operations."""

from __future__ import annotations

from ..base.other_names import instead, register, same

register({
    "attention": {"is_causal": same("causal"),
                  "attn_mask": instead("it is called mask if it is bool, and bias if it is added to the scores"),
                  "dropout_p": instead("there is no dropout", 0.0),
                  "enable_gqa": instead("k and v may have fewer heads than q in any case", True, False)},
    "softmax": {"dim": same("axis")},
})
