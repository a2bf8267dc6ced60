"""Turn the token vectors of an encoder into answers: one file a task, and the steps that all of them run."""
