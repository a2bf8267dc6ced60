"""Make the golden files of ModernBERT: what transformers computes in float64 with eager attention.

    python -m tests.golden.make.modernbert

The script writes three folders in tests/golden, which hold what scaffold.py says:

    modernbert_new/     the config that transformers 5 writes; names without `model.`; layer_types that no single
                        global_attn_every_n_layers describes; bfloat16
    modernbert_old/     the config and the names of answerdotai/ModernBERT-base on the hub, with the head of a masked
                        language model; float32
    modernbert_biases/  an old config that transformers 5 has loaded and saved again, so that its config.json holds
                        global_attn_every_n_layers beside layer_types; biases everywhere; the head of a classifier;
                        an odd local_attention; norm_eps 0.01; float16
"""

from transformers import AutoModelForMaskedLM

from .scaffold import Golden, open_model, save_expected, write_models

HOLES = (0, 5, 6, 7, 40, 41, 77, 100, 119)
"""Columns where the attention_mask of the sequence with holes, of 120 tokens, is 0; the last is ordinary padding."""

MODELS = (Golden("modernbert_new"), Golden("modernbert_old", new_names=True), Golden("modernbert_biases"))


def expect(golden: Golden) -> None:
    """Write the expected.npz of a model; the one in the form of the hub has to be whole with its head."""
    if golden.name == "modernbert_old":
        open_model(golden.folder, AutoModelForMaskedLM)
    save_expected(golden, holes=HOLES, step=lambda length: 1 if length <= 66 else 8)


if __name__ == "__main__":
    write_models(MODELS, expect)
