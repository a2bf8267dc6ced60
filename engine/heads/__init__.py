"""Turn the token vectors of an encoder into results of tasks, for methods/: one file for each task, and runner.py for
all of them. Most tasks have three steps: tokens of the texts, `HeadRunner.logits`, and results of the logits."""
