"""Turn audio into the input of a speech model, and its tokens into timed segments."""

from . import other_names as other_names
from .decoding import AudioStepper as AudioStepper
from .windows import Recording as Recording
from .windows import is_silent as is_silent
