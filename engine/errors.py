"""Every error this package raises on purpose.

Each message names what was expected, what came, and what to do about it.
"""


class EngineError(Exception):
    """Base class: catch this to catch anything `engine` raises on purpose."""


class WeightsError(EngineError, ValueError):
    """A weights file or model folder is damaged, incomplete or does not fit its configuration."""


class InputError(EngineError, ValueError):
    """An argument of a call has the wrong type, shape or range."""


class UnsupportedError(EngineError, NotImplementedError):
    """A well-formed model or request needs a feature that the engine, or the chosen backend, lacks."""


class BackendUnavailable(EngineError, RuntimeError):
    """A backend or instruction set was asked for that cannot run on this machine or in this install."""
