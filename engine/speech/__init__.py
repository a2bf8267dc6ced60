"""Turn recordings into texts: audio into the input of a speech model, and its tokens into timed segments."""

from .ctc import LetterModel as LetterModel
from .ctc import LetterTranscription as LetterTranscription
from .transcription import Transcribing as Transcribing
from .transcription import Transcription as Transcription
