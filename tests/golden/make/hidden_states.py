"""Make taps.npz: hidden states and attention weights that transformers computes in float64 with eager attention.

    python -m tests.golden.make.hidden_states

The models are golden models that other scripts beside this one have made. For each of `MODELS`, taps.npz holds

    {model}.ids         [T]
    {model}.hidden      [L+1,T,D] float32; the last is after the model's last norm, as last_hidden_state is
    {model}.attentions  [L,H,T,T] float32
"""


import numpy as np
import torch
from transformers import AutoModel, T5EncoderModel, UMT5EncoderModel

from tests.tools.paths import ENCODERS as FOLDER

MODELS = {"bert": 16, "distilbert": 16, "roberta": 16, "modernbert_old": 70, "qwen3_new": 16, "eurobert_new": 16,
          "mpnet_own": 16, "t5_own": 16, "umt5_encoder": 16, "deberta_own": 16}  # fmt: skip
"""Golden models, and a number of tokens, which is more than ModernBERT's window on one side."""
ENCODERS = {"t5_own": T5EncoderModel, "umt5_encoder": UMT5EncoderModel}
"""The classes of models of which AutoModel would also want a decoder."""


def main() -> None:
    torch.set_num_threads(1)
    arrays: dict[str, np.ndarray] = {}
    for name, length in MODELS.items():
        model = ENCODERS.get(name, AutoModel).from_pretrained(FOLDER / name, dtype=torch.float64,
                                                              attn_implementation="eager").eval()
        ids = np.random.default_rng(1).integers(5, model.config.vocab_size, length)
        with torch.inference_mode():
            out = model(torch.from_numpy(ids)[None], output_hidden_states=True, output_attentions=True)
        hidden = torch.cat(out.hidden_states).double().numpy()
        attentions = torch.cat(out.attentions).double().numpy()
        if not np.array_equal(hidden[-1], out.last_hidden_state[0].double().numpy()):
            raise SystemExit(f"{name}: the last hidden state is not last_hidden_state")
        arrays |= {f"{name}.ids": ids.astype(np.uint16), f"{name}.hidden": hidden.astype(np.float32),
                   f"{name}.attentions": attentions.astype(np.float32)}  # fmt: skip
        print(f"{name}: hidden states {hidden.shape}, attention weights {attentions.shape}")
    np.savez_compressed(FOLDER / "taps.npz", **arrays)


if __name__ == "__main__":
    main()
