"""Define every error that this package raises on purpose.

Each message says what was expected, which value was found, and how to correct it.
"""


class EngineError(Exception):
    """Base class of all errors that `engine` raises on purpose."""


class WeightsError(EngineError, ValueError):
    """A weights file or model folder is damaged, incomplete or does not fit its configuration."""


class InputError(EngineError, ValueError):
    """An argument of a call has the wrong type, shape or range."""


class UnsupportedError(EngineError, NotImplementedError):
    """A model or a request is well formed but needs a feature that the engine or the chosen backend lacks."""


class TimedOut(EngineError, TimeoutError):
    """A call did not finish within its `timeout`; it was stopped and returned nothing."""


class BackendUnavailable(EngineError, RuntimeError):
    """The requested backend or instruction set cannot run on this machine or in this installation."""
