"""A soak test: many threads use the engine for an hour, every result is compared, and nothing may grow."""
