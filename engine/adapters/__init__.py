"""Classes with the interfaces of other frameworks; `engine` imports none of them, and each imports its own framework."""
