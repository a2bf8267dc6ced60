"""How the texts of one call are grouped into batches, as a definition: the queue gives a call alone the same ones."""

from collections.abc import Iterator


def batches(lengths: list[int], max_tokens: int, batch_size: int | None) -> Iterator[list[int]]:
    """Group sequences into batches of at most `max_tokens` tokens and `batch_size` sequences, the longest ones first.

    Yields lists of indices into `lengths`. A sequence longer than `max_tokens` is a batch by itself.
    """
    batch: list[int] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if batch and (tokens + lengths[i] > max_tokens or len(batch) == batch_size):
            yield batch
            batch, tokens = [], 0
        batch.append(i)
        tokens += lengths[i]
    if batch:
        yield batch
