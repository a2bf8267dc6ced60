"""Make sample_rates.json: the texts that transformers writes of WAV files at 8, 44.1 and 48 kHz, mono and stereo.

    pip install -r tests/golden/make/requirements-models.txt
    ENGINE_WHISPER=... ENGINE_SPEECH=... python -m tests.golden.make.sample_rates

The environment variables are those of tests/tools/whisper.py, and tests/tools/sample_rates.py makes the WAV files. For
transformers, the module `wave` of Python reads them, NumPy takes the mean of the channels, and
scipy.signal.resample makes 16 kHz of them by a Fourier transform in float64. WhisperFeatureExtractor and
WhisperForConditionalGeneration.generate do the rest, in float32, with the weights of two models: the real Whisper
tiny.en for recordings of speech, and the random model `listening` of tests/tools/speech.py for tones.

sample_rates.json holds rows [recording or seed, rate, channels, text] under the names speech and tones. The script
stops unless the logit of each token that is chosen is above all others by `MARGIN`, and unless one channel alone or
another rate would give another text of the tones.
"""

import io
import json
import wave
from itertools import product

import numpy as np
import torch
import transformers as hf
from scipy.signal import resample
from tokenizers import Tokenizer

from engine import Model, load_model
from tests.tools.paths import SPEECH
from tests.tools.sample_rates import RATES, RECORDINGS, SEEDS, speech, tones
from tests.tools.speech import listening
from tests.tools.whisper import FOLDER

MARGIN = 0.05
PARTS = {"self_attn_layer_norm": "attention.norm", "encoder_attn_layer_norm": "cross.norm", "encoder_attn": "cross",
         "self_attn": "attention", "q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output",
         "fc1": "ffn.up", "fc2": "ffn.down", "final_layer_norm": "ffn.norm", "layer_norm": "final_norm",
         "embed_tokens": "embeddings.word", "embed_positions": "embeddings.position"}  # fmt: skip
"""A module of transformers' Whisper, and the name of the engine for it."""


def own_name(name: str) -> str:
    """Return the engine's name of a parameter of an encoder or a decoder of transformers."""
    *modules, kind = name.split(".")
    found = ".".join(PARTS.get(module, module) for module in modules)
    return found if found.startswith("embeddings") else f"{found}.{kind}"


def transformers_model(model: Model) -> hf.WhisperForConditionalGeneration:
    """Return transformers' model with the weights and the settings of one of ours."""
    encoder, decoder, stem, settings = model.encoder, model.decoder, model.encoder.stem, model.generation
    own = decoder.config
    config = hf.WhisperConfig(
        vocab_size=own.vocab_size, d_model=own.hidden_size, encoder_layers=encoder.config.num_layers,
        decoder_layers=own.num_layers, encoder_attention_heads=encoder.config.num_heads,
        decoder_attention_heads=own.num_heads, encoder_ffn_dim=encoder.config.ffn_size, decoder_ffn_dim=own.ffn_size,
        num_mel_bins=stem.weight.shape[1], max_source_positions=len(stem.positions),
        max_target_positions=own.max_positions, pad_token_id=settings.eos_token_id[0],
        eos_token_id=settings.eos_token_id[0], bos_token_id=settings.eos_token_id[0],
        decoder_start_token_id=settings.decoder_start_token_id)  # fmt: skip
    found = hf.WhisperForConditionalGeneration(config).eval()
    stems = {"conv1.weight": stem.weight, "conv1.bias": stem.bias, "conv2.weight": stem.weight2,
             "conv2.bias": stem.bias2, "embed_positions.weight": stem.positions}  # fmt: skip
    with torch.no_grad():
        for part, weights in ((found.model.encoder, encoder.weights), (found.model.decoder, decoder.weights)):
            for name, parameter in part.named_parameters():
                given = stems.get(name) if part is found.model.encoder else None
                given = weights[own_name(name)] if given is None else given
                assert parameter.shape == given.shape, name
                parameter.copy_(torch.from_numpy(np.array(given, np.float32)))
    tokens = special_tokens(model)
    found.generation_config = hf.GenerationConfig(
        decoder_start_token_id=settings.decoder_start_token_id, eos_token_id=settings.eos_token_id[0],
        pad_token_id=settings.eos_token_id[0], suppress_tokens=list(settings.suppress_tokens) or None,
        begin_suppress_tokens=list(settings.begin_suppress_tokens) or None, is_multilingual=False,
        no_repeat_ngram_size=settings.no_repeat_ngram_size, return_timestamps=False,
        no_timestamps_token_id=tokens["<|notimestamps|>"], max_new_tokens=settings.max_new_tokens or 200)  # fmt: skip
    return found


def special_tokens(model: Model) -> dict[str, int]:
    """Return the ids of the added tokens."""
    tokens = json.loads(model.decoder.text.tokenizer_json)["added_tokens"]
    return {token["content"]: token["id"] for token in tokens}


def samples_of(data: bytes, channel: int | None = None, rate: int | None = None) -> np.ndarray:
    """Return the samples of a WAV file at 16 kHz; channel: only this one; rate: in place of what the file says."""
    with wave.open(io.BytesIO(data)) as file:
        flat = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
        rate = rate or file.getframerate()
    samples = flat / 2**15
    samples = samples.mean(axis=1) if channel is None else samples[:, channel]
    return resample(samples, round(len(samples) * 16000 / rate))


class Writer:
    """Writes texts with one model."""

    def __init__(self, model: Model):
        self.model = transformers_model(model)
        self.extract = hf.WhisperFeatureExtractor(feature_size=self.model.config.num_mel_bins)
        self.tokenizer = Tokenizer.from_str(model.decoder.text.tokenizer_json.decode())

    def text(self, samples: np.ndarray, margin: float = 0.0) -> str:
        """Return the text of samples; stops if a token is chosen with less than the margin."""
        features = self.extract(samples, sampling_rate=16000, return_tensors="pt").input_features
        with torch.inference_mode():
            found = self.model.generate(features, return_dict_in_generate=True, output_scores=True)
        [ids], scores = found.sequences, torch.stack(found.scores)[:, 0]
        best = scores.topk(2).values
        smallest = float((best[:, 0] - best[:, 1]).min())
        if smallest < margin:
            raise SystemExit(f"a token is chosen by a logit of {smallest:.4f} only")
        return self.tokenizer.decode(ids.tolist(), skip_special_tokens=True)


def main() -> None:
    """Write the file."""
    rows: dict[str, list] = {"speech": [], "tones": []}
    for kind, model, names, make in (("speech", load_model(FOLDER, kind="generate"), RECORDINGS, speech),
                                     ("tones", listening(), SEEDS, tones)):
        writer = Writer(model)
        for name in names:
            for rate, channels in product(RATES, (1, 2)):
                data = make(name, rate, channels)
                text = writer.text(samples_of(data), MARGIN)
                print(name, rate, channels, text)
                rows[kind].append([name, rate, channels, text])
                if kind == "tones":
                    wrong = [samples_of(data, rate=rate * 11 // 10)]
                    wrong += [samples_of(data, channel) for channel in range(channels) if channels > 1]
                    assert all(writer.text(samples) != text for samples in wrong), "a mistake would not show"
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    (SPEECH / "sample_rates.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
