"""Turn token ids into vectors, and sentences into one vector each."""

from .text_encoder import TextEncoder as TextEncoder
from .text_encoder import check_options as check_options
from .text_encoder import role_prompt as role_prompt
