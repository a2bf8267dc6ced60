"""Turn the messages of a chat into a prompt by the template of the model, which a separate process renders."""

from .replies import Reply as Reply
from .terminal import Talk as Talk
