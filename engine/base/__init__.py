"""Helpers for every package that know nothing of transformers: errors, checks of arguments, CPUs, stops, progress."""
