"""Where the files of the tests are. Nothing here needs the engine."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
MODELS = ROOT / "models"
"""Real models, which git ignores."""

GOLDEN = TESTS / "golden"
ENCODERS = GOLDEN / "encoders"
"""Golden encoders, a folder each, and vectors of real ones."""
DECODERS = GOLDEN / "decoders"
"""Golden models that generate, a folder each; results of decoders, of search and of real models; and a reranker."""
TOKENIZERS = GOLDEN / "tokenizers" / "vocabularies"
LANGUAGE_TOKENIZERS = GOLDEN / "tokenizers" / "languages"
MARIAN_TOKENIZER = GOLDEN / "tokenizers" / "marian"
SMOLLM2_IDS = GOLDEN / "tokenizers" / "smollm2_ids.json"
GGUF_TOKENIZERS = GOLDEN / "tokenizers" / "gguf"
FILES = GOLDEN / "files"
"""Files of GGUF, and the numbers in them."""
CHECKPOINTS = FILES / "checkpoints"
CTRANSLATE2 = FILES / "ctranslate2"
SPEECH = GOLDEN / "speech"
"""Features of sound, and transcripts."""
OPS = GOLDEN / "ops"
"""Results of single operations."""
HEADS = GOLDEN / "heads"
"""Golden models with heads, a folder each, and their tokenizers."""
IMAGES = GOLDEN / "images"
"""Pixels of images, and golden models that read images, a folder each."""
