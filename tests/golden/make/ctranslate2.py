"""Make the golden files of CTranslate2 with its own package (pip install ctranslate2==4.8.5 numpy; no torch).

    python -m tests.golden.make.ctranslate2

Each file ctranslate2/TYPE.bin is the model.bin of a tiny Transformer with random weights, converted to TYPE by the
package; the file float32.bin has the weights as they were. Each folder ctranslate2/NAME of `MODELS` is another model
in float32, with config.json and a vocabulary, and expected.json: sources, targets, and the log probability of each
target's tokens and of its end, as CTranslate2's own engine computes them in float32.
"""

import json
import shutil
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation

from tests.tools.paths import CTRANSLATE2

TYPES = ("float32", "float16", "int16", "int8")
D, F, V, P = 8, 12, 11, 5


WORDS = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(V - 3))]
MODELS = {
    "pre": {"activation": Activation.GELU},
    "post": {"pre_norm": False, "activation": Activation.SWISH, "layernorm_embedding": True},
    "plain": {"activation": Activation.GELUTanh, "no_final_norm": True},
}
"""Arguments of `TransformerSpec.from_config`."""


def spec_of(layers: tuple[int, int] = (1, 1), no_final_norm: bool = False, **options) -> TransformerSpec:
    """Return a Transformer whose word table is used three times."""
    spec = TransformerSpec.from_config(layers, num_heads=2, no_final_norm=no_final_norm, **options)
    rng = np.random.default_rng(0)

    def array(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    words, positions = array(V, D), array(P, D)
    for side in (spec.encoder, spec.decoder):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = words
        side.position_encodings.encodings = positions
        for norm in ("layer_norm", "layernorm_embedding"):
            if hasattr(side, norm):
                getattr(side, norm).gamma, getattr(side, norm).beta = array(D), array(D)
        side.scale_embeddings = True
        for layer in side.layer:
            attentions = [(layer.self_attention, (3 * D, D))]
            if hasattr(layer, "attention"):
                attentions.append((layer.attention, (D, 2 * D, D)))
            for attention, rows in attentions:
                for linear, count in zip(attention.linear, rows, strict=True):
                    linear.weight, linear.bias = array(count, D), array(count)
                attention.layer_norm.gamma, attention.layer_norm.beta = array(D), array(D)
            layer.ffn.linear_0.weight, layer.ffn.linear_0.bias = array(F, D), array(F)
            layer.ffn.linear_1.weight, layer.ffn.linear_1.bias = array(D, F), array(D)
            layer.ffn.layer_norm.gamma, layer.ffn.layer_norm.beta = array(D), array(D)
    spec.decoder.projection.weight, spec.decoder.projection.bias = words, array(V)
    return spec


def main() -> None:
    """Write the files."""
    CTRANSLATE2.mkdir(exist_ok=True)
    for kind in TYPES:
        spec = spec_of()
        spec.register_source_vocabulary([str(i) for i in range(V)])
        spec.register_target_vocabulary([str(i) for i in range(V)])
        spec.validate()
        spec.optimize(quantization=kind)
        with tempfile.TemporaryDirectory() as place:
            spec.save(place)
            shutil.copy(Path(place, "model.bin"), CTRANSLATE2 / f"{kind}.bin")
    for name, options in MODELS.items():
        spec = spec_of((2, 1), **options)
        spec.register_source_vocabulary(WORDS)
        spec.register_target_vocabulary(WORDS)
        spec.config.decoder_start_token = "</s>"
        spec.validate()
        spec.optimize(quantization="float32")
        folder = CTRANSLATE2 / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        spec.save(str(folder))
        rng = np.random.default_rng(1)
        pairs = [[rng.choice(WORDS[3:], size).tolist() for size in sizes] for sizes in ((1, 1), (3, 4), (5, 2))]
        translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
        scores = translator.score_batch([source for source, _ in pairs], [target for _, target in pairs])
        rows = [[source, target, score.log_probs] for (source, target), score in zip(pairs, scores, strict=True)]
        (folder / "expected.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
