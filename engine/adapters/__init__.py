"""Classes with the interfaces of other frameworks. `engine` imports none of them; each imports its own framework."""
