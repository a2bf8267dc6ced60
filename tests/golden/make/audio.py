"""Make the golden features of sound with the NumPy code of transformers' WhisperFeatureExtractor.

    python -m tests.golden.make.audio

audio.npz holds recordings sound_{i} (int16 at 16 kHz, made here), and for 80 and 128 channels every 37th column of
their features, features_{i}_{channels}; long is a sound of more than 30 s, and long_features every 37th column of its
features for 80 channels. The extractor computes in float64 with NumPy, and in float32 where torch is installed; this
script calls the former.
"""

import numpy as np
from transformers import WhisperFeatureExtractor

from tests.tools.paths import SPEECH

STEP = 37


def sounds() -> list[np.ndarray]:
    """Return noise, a rising tone, silence, a short click, and a sound of 30 s."""
    rng = np.random.default_rng(0)
    seconds = np.arange(3 * 16000) / 16000
    tone = 0.5 * np.sin(2 * np.pi * (200 * seconds + 600 * seconds**2))
    click = np.zeros(1000)
    click[500] = 0.9
    long = np.tile(rng.normal(0, 0.1, 3000), 160)  # repeated, so that the file stays small
    found = [rng.normal(0, 0.2, 12345), tone, np.zeros(0), click, long, np.ones(1)]
    return [(np.clip(sound, -1, 1) * 32767).astype(np.int16) for sound in found]


def extract(samples: np.ndarray, channels: int) -> np.ndarray:
    """Return the features that the extractor makes of samples."""
    extractor = WhisperFeatureExtractor(feature_size=channels)
    [features] = extractor._np_extract_fbank_features(samples[None], "cpu")
    return features


def main() -> None:
    """Write the file."""
    arrays = {}
    for i, sound in enumerate(sounds()):
        arrays[f"sound_{i}"] = sound
        for channels in (80, 128):
            samples = np.zeros(480000)
            samples[: len(sound)] = sound / 32768
            arrays[f"features_{i}_{channels}"] = extract(samples, channels)[:, ::STEP].astype(np.float32)
    rng = np.random.default_rng(1)
    period = rng.normal(0, 0.1, 4000) * np.linspace(0.1, 1, 4000)
    arrays["long"] = (np.clip(np.tile(period, 130)[:516100], -1, 1) * 32767).astype(np.int16)
    features = extract(np.append(arrays["long"] / 32768, np.zeros(480000)), 80)[:, : 516100 // 160]
    arrays["long_features"] = features[:, ::STEP].astype(np.float32)
    np.savez_compressed(SPEECH / "audio.npz", **arrays)


if __name__ == "__main__":
    main()
