"""Compile annotated Python functions to C functions, and user-written score functions to loops."""
