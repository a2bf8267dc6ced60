"""What the writers of golden files have in common that run models of torch: one thread, and nothing on the terminal."""

import logging
import warnings

import torch
import transformers


def one_quiet_thread() -> None:
    """Let torch compute on one thread, so that its sums have one order, and stop warnings, logs and progress bars."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
