"""Make the golden features of sound with the NumPy code of transformers' WhisperFeatureExtractor.

    python tests/golden/make_audio.py

audio.npz holds recordings sound_{i} (int16 at 16 kHz, made here), and for 80 and 128 channels every 37th column of
their features, features_{i}_{channels}. The extractor computes in float64 with
NumPy, and in float32 where torch is installed; this script calls the former.
"""

import numpy as np
from make_families import HERE
from transformers import WhisperFeatureExtractor

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


def main() -> None:
    """Write the file."""
    arrays = {}
    for i, sound in enumerate(sounds()):
        arrays[f"sound_{i}"] = sound
        for channels in (80, 128):
            extractor = WhisperFeatureExtractor(feature_size=channels)
            samples = np.zeros(480000)
            samples[: len(sound)] = sound / 32768
            [features] = extractor._np_extract_fbank_features(samples[None], "cpu")
            arrays[f"features_{i}_{channels}"] = features[:, ::STEP].astype(np.float32)
    np.savez_compressed(HERE / "audio.npz", **arrays)


if __name__ == "__main__":
    main()
