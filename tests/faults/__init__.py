"""Let single calls of the system fail, one after the other, and require the right answer or a clear error each time."""
