"""Turn the token vectors of an encoder into results of tasks: one file for each task, and runner.py for all of them.

methods/ call these. Most tasks have three steps: tokens of the texts, `HeadRunner.logits`, and results of the logits.
"""
