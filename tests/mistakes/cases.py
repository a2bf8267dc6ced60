"""List all seeded mistakes, in the order in which they are tried."""

from . import (
    chat,
    files,
    generation,
    interface,
    jobs,
    kernels,
    models,
    native,
    numba_cpu,
    numba_cuda,
    operations,
    server,
    speech,
    text,
    uncertainty,
)
from .mistake import Mistake

TABLES = (models, files, text, generation, chat, speech, interface, jobs, server, uncertainty, operations, kernels,
          native, numba_cpu, numba_cuda)

MISTAKES: tuple[Mistake, ...] = tuple(mistake for table in TABLES for mistake in table.MISTAKES)
