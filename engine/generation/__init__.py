"""Generate tokens with a model that runs step by step: the queue of its works, search, sampling, scoring.

    calls.py        the works of one call, and their results in order
    step_queue.py   the queue of the model: lets works enter, computes steps, and gives tokens and results to tickets
    schedule.py     chooses what a step reads, by priority, owner, arrival and time
    works.py        what the queue asks of a work: its sequences, and the group that reads their scores
    groups.py       generations: greedy.py and beams.py; scoring.py has continuations and last logits

Nothing in this folder depends on the arithmetic of the model. A model is a `Decoder`
(`engine.backends.interfaces`), and `prepared.py` holds its plans and its queue.
"""
