"""Messages of a chat to a prompt: the model's own template, which a process of its own renders."""

from .replies import Reply as Reply
from .terminal import Talk as Talk
