"""Messages of a chat to a prompt: the model's own template, which a process of its own renders."""

from . import other_names as other_names
from .methods import ChatMethods as ChatMethods
from .methods import Reply as Reply
from .terminal import Talk as Talk
