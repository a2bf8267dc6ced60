"""The configuration of a model, of its texts, heads and generation, and of how it runs: dataclasses that check their
values, without weights and files."""
