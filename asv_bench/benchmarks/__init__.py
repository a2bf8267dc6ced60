"""Define benchmarks for asv; none needs a downloaded model or torch."""
