"""The models that the threads of the soak test generate and transcribe with, and the results that they expect."""

import gc
import random
from typing import Any

from engine import Generator, Transcriber
from tests.tools.generators import SOURCES, language_model, translator
from tests.tools.speech import recording, timed

SETTINGS = ({}, {"num_beams": 3}, {"do_sample": True, "seed": 5})
STORED: tuple[dict[str, str], ...] = ({}, {"precision": "int4", "cache": "int8"})
"""How weights, keys and values are stored."""
SYSTEM = [4 + i % 40 for i in range(40)]
PROMPTS = [[*SYSTEM[:n], *source] for n, source in zip((40, 40, 32, 33, 17), SOURCES, strict=True)]
"""What a language model goes on from: three times the tokens of its small cache, with common beginnings."""
SMALL = {"cache_tokens": 160, "keep_tokens": 64}


class Generation:
    """A translator and a language model on each backend, in float32 and in the fewest bits.

    The language model has a cache in which not all requests of a call have room: sequences wait, share what was read
    before, and give way.
    """

    def __init__(self, backends: list[str]):
        models = (translator(), SOURCES, {}), (language_model(), PROMPTS, SMALL)
        options = [{"backend": backend, **stored} for backend in backends for stored in STORED]
        self._generators = [
            (Generator(model, threads=2, **each, **bounds),
             self._alone(Generator(model, threads=1, keep_tokens=0, **each), texts), texts)
            for model, texts, bounds in models for each in options]

    @staticmethod
    def _alone(generator: Generator, texts: list[list[int]]) -> list[list[Any]]:
        """Return the result of each text, alone, with each of the settings."""
        return [[generator.generate([text], **settings)[0] for text in texts] for settings in SETTINGS]

    def totals(self) -> str:
        """Check that no request is open and that cells hold no more than what is kept, and say what was shared."""
        gc.collect()        # streams that were left in cycles
        found, given_way = 0, 0
        for generator, _, _ in self._generators:
            statistics = generator.statistics()
            if (statistics.open_requests, statistics.waiting_calls) != (0, 0) or (
                    statistics.cache_tokens != statistics.kept_tokens or statistics.kept_tokens > SMALL["keep_tokens"]):
                raise AssertionError(f"{generator} keeps {statistics} after the last request")
            found, given_way = found + statistics.found_tokens, given_way + statistics.times_given_way
        return f"{found:,} tokens of prompts were shared, and sequences gave way {given_way:,} times"

    def stream(self, rng: random.Random) -> None:
        """Read a stream to its end, or leave it after some tokens: cancelled, or dropped in a cycle."""
        generator, expected, texts = rng.choice(self._generators)
        source, which = rng.randrange(len(texts)), rng.choice([0, 2])     # beams have no stream
        ids, stream = expected[which][source].ids, generator.stream(texts[source], **SETTINGS[which])
        if rng.random() < 0.5:
            found = [piece.id for piece in stream]
            if found != ids:
                raise AssertionError(f"{generator} streams {found}, and alone {ids}")
            return
        for _ in range(rng.randrange(4)):
            next(stream, None)
        if rng.random() < 0.5:
            stream.cancel()
        else:
            kept = [stream]
            kept.append(kept)

    def session(self, rng: random.Random) -> None:
        """Submit sources with all settings to a session, and leave or cancel some of them."""
        generator, expected, texts = rng.choice(self._generators)
        with generator.session() as session:
            kept = []
            for _ in range(rng.randrange(1, 20)):
                source, which = rng.randrange(len(texts)), rng.randrange(len(SETTINGS))
                answer = session.submit(texts[source], owner=rng.choice("ab"), priority=rng.randrange(2),
                                        **SETTINGS[which])
                if rng.random() < 0.7:
                    kept.append((answer, expected[which][source]))
                elif rng.random() < 0.5:
                    answer.cancel()
            for answer, result in kept:
                if answer.result() != result:
                    raise AssertionError(f"a session of {generator} gives {answer.result()}, and alone {result}")

    def run(self, rng: random.Random) -> None:
        """Generate from some of the texts, and compare the tokens and the scores, bit for bit."""
        generator, expected, texts = rng.choice(self._generators)
        chosen, which = rng.choices(range(len(texts)), k=rng.randrange(1, 8)), rng.randrange(len(SETTINGS))
        found = generator.generate([texts[i] for i in chosen], cache_key=rng.choice("xy"), **SETTINGS[which])
        if found != [expected[which][i] for i in chosen]:
            raise AssertionError(f"{generator} gives other results than alone: {chosen}, {SETTINGS[which]}")


RECORDINGS = [recording(0.7), recording(2, 1), recording(5, 2), recording(31, 3)]


class Speech:
    """A transcriber on each backend."""

    def __init__(self, backends: list[str]):
        model = timed()
        alone = Transcriber(model, threads=1)
        self._expected = {timestamps: [alone.transcribe([one], timestamps=timestamps)[0] for one in RECORDINGS]
                          for timestamps in (False, True)}
        self._transcribers = [Transcriber(model, backend=backend, threads=2) for backend in backends]

    def run(self, rng: random.Random) -> None:
        """Transcribe some recordings, and compare the texts and the times."""
        transcriber, timestamps = rng.choice(self._transcribers), rng.random() < 0.5
        chosen = rng.choices(range(len(RECORDINGS)), k=rng.randrange(1, 4))
        found = transcriber.transcribe([RECORDINGS[i] for i in chosen], timestamps=timestamps)
        if found != [self._expected[timestamps][i] for i in chosen]:
            raise AssertionError(f"{transcriber} transcribes {chosen} in another way than alone")
