"""The queue of a loaded model: works of many callers, computed together in fair batches."""
