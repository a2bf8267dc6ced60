"""Methods of models that generate as values: their options, and their works beside those of other calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from engine import Generator, InputError, Model, Transcriber, Transformer
from engine.methods.table import GENERATING, TRANSCRIBING
from engine.model.generation_config import GenerationConfig

from ..tools.chats import ASKED, CHATML, TURNS, chat_text
from ..tools.decoders import DECODERS, make_weights
from ..tools.generators import language_model, translator
from ..tools.speech import model_of, sounds
from ..tools.tiny_text import tiny_text

pytest.importorskip("tokenizers")

TEXTS = ["the cat", "a dog runs", "the mat"]
CASES = {
    "generate": ("language model", "generate", TEXTS, {"max_new_tokens": 5}),
    "generate one text": ("language model", "generate", TEXTS[0], {"do_sample": True, "seed": 3, "max_new_tokens": 4}),
    "generate several results": ("translator", "generate", [[5, 6, 7], [8]], {
        "num_beams": 3, "num_return_sequences": 2, "prompts": [[2], [2, 9]], "output_attentions": [(-1, 0)]}),
    "score": ("language model", "score", (TEXTS, None), {}),
    "score targets": ("translator", "score", (["the cat", "a dog"], [[5, 6], "a mat"]), {"add_special_tokens": False}),
    "translate": ("translator", "translate", TEXTS, {"num_beams": 2}),
    "chat": ("chat", "chat", [TURNS, ASKED], {"max_new_tokens": 3}),
    "chat of one": ("chat", "chat", ASKED, {"template": "{{ style }}", "template_options": {"style": "abc"}}),
}
"""Of each case the model, the method, its inputs and options."""


@cache
def model(name):
    """Return a small generator."""
    if name == "chat":
        config = replace(DECODERS["Llama"], vocab_size=400, max_positions=3000)
        return Generator(Model(decoder=Transformer(config, make_weights(config), chat_text(CHATML)),
                               generation=GenerationConfig(eos_token_id=[258], max_new_tokens=8)), threads=1)
    return Generator({"language model": language_model, "translator": translator}[name](tiny_text()), threads=1)


def expected_of(name):
    """Return what the method of the user returns."""
    generator, method, inputs, options = model(CASES[name][0]), *CASES[name][1:]
    return getattr(generator, method)(*inputs if method == "score" else [inputs], **options)


def shown(result):
    """Return a result so that results with arrays can be compared."""
    if isinstance(result, list):
        return [shown(one) for one in result]
    return {name: str(value) for name, value in vars(result).items()} if hasattr(result, "__dict__") else result


@pytest.mark.parametrize("name", CASES)
def test_works_of_two_calls_that_somebody_else_submits(name):
    """Whoever has owners, priorities and deadlines submits the works, and finishes their results, in any order."""
    generator, method = model(CASES[name][0]), GENERATING[CASES[name][1]]
    options = method.read_options(CASES[name][3])
    method.needs(generator)
    calls = [method.prepare(generator, CASES[name][2], options) for _ in range(2)]
    tickets = [(call, i, call.queue.submit(work, priority=i, owner=owner))
               for owner, call in zip("ab", calls, strict=True) for i, work in enumerate(call.works)]
    found = {(id(call), i): call.finish(i, ticket.result()) for call, i, ticket in reversed(tickets)}
    for call in calls:
        results = [found[id(call), i] for i in range(len(call.works))]
        assert shown(results[0] if call.single else results) == shown(expected_of(name))


def test_a_transcription_is_a_call_that_reads_its_recordings_in_turn():
    transcriber, [method] = Transcriber(model_of(), backend="reference"), TRANSCRIBING.values()
    assert transcriber.methods == TRANSCRIBING
    call = method.prepare(transcriber, sounds(), method.read_options({"max_new_tokens": 3}))
    assert [*call.results()] == transcriber.transcribe(sounds(), max_new_tokens=3)
    assert method.run(transcriber, sounds()[0], method.read_options({})) == transcriber.transcribe(sounds()[0])
    with pytest.raises(InputError, match='timestamps must be True, False or "word", not 2'):
        method.read_options({"timestamps": 2})
    with pytest.raises(InputError, match="max_seconds must be a number above 0"):
        method.read_options({"max_seconds": 0})


def test_names_that_are_no_options():
    with pytest.raises(InputError, match="score has no argument num_beams; it has prompts, add_special_tokens"):
        GENERATING["score"].read_options({"num_beams": 2})
    wrong = GENERATING["generate"].read_options({"prompts": None, "num_beam": 2})
    assert wrong.settings == {"num_beam": 2}
    with pytest.raises(InputError, match=r"generation has no argument num_beam \(did you mean num_beams\?\)"):
        GENERATING["generate"].run(model("language model"), TEXTS, wrong)
    with pytest.raises(InputError, match="control_tokens must be"):
        GENERATING["chat"].read_options({"control_tokens": "no"})
    assert repr(GENERATING["score"]) == "<Method score: prompts, add_special_tokens, cache_key>"


def test_what_methods_need():
    assert {name: set(model(name).methods) for name in ("language model", "translator")} == {
        "language model": {"generate", "score", "chat"}, "translator": {"generate", "score", "translate"}}
    for without_text in (language_model(), translator()):
        with Generator(without_text) as generator:
            assert set(generator.methods) == {"generate", "score"}
