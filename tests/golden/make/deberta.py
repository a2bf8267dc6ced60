"""Make the golden files of DeBERTa v2 and v3: what transformers computes in float64.

    python -m tests.golden.make.deberta [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.
"""

import torch

from .scaffold import Golden, save_expected, save_model, write_models

MODELS = (
    Golden("deberta_v3", "DebertaV2ForSequenceClassification", torch.float16, wrong=(
        {"max_relative_positions": 323}, {"position_buckets": 0, "max_relative_positions": 32})),
    Golden("deberta_p2c"),
    Golden("deberta_c2p", wrong=(
        {"max_relative_positions": 23}, {"position_buckets": 0, "max_relative_positions": 8})),
    Golden("deberta_own", wrong=(
        {"max_relative_positions": 13}, {"position_buckets": 0, "max_relative_positions": 12})),
)  # fmt: skip


def save(golden: Golden) -> None:
    """Write a model whose numbers follow in the generator on the ones that its class begins with."""
    torch.manual_seed(0)
    save_model(golden, golden.type(golden.config))


def expect(golden: Golden) -> None:
    """Write the expected.npz of a model."""
    save_expected(golden, lengths=(1, 2, 16, 17, 18, 66, 129, 300))


if __name__ == "__main__":
    write_models(MODELS, expect, save)
