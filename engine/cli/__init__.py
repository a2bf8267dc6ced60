"""The `engine` command: one module for each subcommand."""
