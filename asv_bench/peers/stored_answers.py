"""Serve one stored vector for every text, to measure what HTTP costs alone: python -m peers.stored_answers PORT."""

import sys
from concurrent.futures import Future

import numpy as np

from engine import Engine
from engine.server.app import Served
from engine.server.keys import ApiKeys
from engine.server.metrics import Metrics
from engine.server.requests import Answer, Times
from engine.server.service import Service
from engine.server.settings import Settings
from engine.server.start import bind, run


class Stored(Service):
    """Answers at once, and computes nothing."""

    def submit(self, task, inputs, options=None, **rest):
        found: Future[Answer] = Future()
        count = len(inputs)
        found.set_result(Answer(VECTORS[:count], [8] * count, [False] * count, Times()))
        return found


VECTORS = np.random.default_rng(0).standard_normal((4096, 384), np.float32)

if __name__ == "__main__":
    settings = Settings(port=int(sys.argv[1]))
    service = Stored(Engine.load(sys.argv[2], threads=1))
    with bind(settings) as listener:
        run(Served(service, settings, ApiKeys([]), Metrics([service], [{}])), listener)
