"""The configuration of a model and of how it runs, as values: no weights and no files."""
