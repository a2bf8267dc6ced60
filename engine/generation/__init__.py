"""Generate tokens with a model that runs step by step: sessions of requests, search, sampling, scoring.

    calls.py        a session of its own for each call; interface/session.py is one for many threads
    session.py      takes requests, computes steps, and gives tokens and results to handles.py
    schedule.py     chooses what a step reads, by priority, owner, arrival and time
    works.py        what a session asks of a request: sequences.py, and the group that reads their scores
    groups.py       generations: greedy.py and beams.py; scoring.py has continuations and last logits

Nothing in this folder depends on the arithmetic of the model. A model is a `Decoder`
(`engine.backends.interfaces`), and `prepared.py` holds its plans.
"""
