"""Helpers for every package that know nothing of transformers: errors, checks, CPUs."""
