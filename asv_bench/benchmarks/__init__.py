"""Benchmarks by the conventions of asv; none needs a downloaded model or torch."""
