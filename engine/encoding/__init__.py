"""Turn token ids into vectors, and sentences into one vector each."""

from . import other_names as other_names
