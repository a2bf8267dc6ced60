"""Turn recordings into texts: audio into the input of a speech model, and its tokens into segments with times.

transcription.py is for models such as Whisper, and ctc.py for models of letters; interface/ and server/ call both.
"""

from .ctc import LetterModel as LetterModel
from .ctc import LetterTranscription as LetterTranscription
from .transcription import Transcribing as Transcribing
from .transcription import Transcription as Transcription
