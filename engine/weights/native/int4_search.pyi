"""Types of the compiled module int4_search.pyx, whose docstring says what each argument means."""

import numpy as np

def search_rows(
    w: np.ndarray,
    heads: int,
    importance: np.ndarray | None,
    widths: np.ndarray,
    rounds: int,
    stored: np.ndarray,
    scales: np.ndarray,
) -> int: ...
