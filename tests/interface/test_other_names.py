"""Names of other libraries: each is accepted where the meaning is the same, and else a line says what to do."""

from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import (
    Engine,
    Generator,
    InputError,
    Model,
    Reranker,
    Transformer,
    UnsupportedError,
    WeightsError,
)
from engine.base.advice.calls import CALLS
from engine.base.arguments import renamed_arguments
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig
from engine.model.precision import COMPUTED

from ..base.advice import LIBRARIES
from ..tools.decoders import DECODERS as DECODER_CONFIGS
from ..tools.decoders import make_weights
from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.paths import DECODERS, ENCODERS
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

ENCODER = ModelConfig("test", 38, 2, 2, 19, 30, vocab_size=50, max_positions=90)
SETTINGS = GenerationConfig(decoder_start_token_id=2, max_new_tokens=12)
SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12]]


def part(config, seed=0):
    return Transformer(config, make_weights(config, seed), tiny_text())


def language_model(settings=SETTINGS):
    return Generator(Model(decoder=part(DECODER_CONFIGS["Llama"]), generation=settings), threads=1, backend="reference")


@pytest.fixture(scope="module")
def generator():
    return language_model()


def test_a_setting_of_another_library_is_accepted(generator):
    for given, ours in [
        ({"max_tokens": 3}, {"max_new_tokens": 3}), ({"n_predict": 2}, {"max_new_tokens": 2}),
        ({"beam_size": 3, "max_decoding_length": 4}, {"num_beams": 3, "max_new_tokens": 4}),
        ({"repeat_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"n": 2, "beam_size": 2}, {"num_return_sequences": 2, "num_beams": 2}),
        ({"do_sample": True, "use_cache": True, "stop": [], "logprobs": None, "streamer": None, "typical_p": 1,
          "return_dict_in_generate": True}, {"do_sample": True}),
    ]:
        assert generator.generate(SOURCES[:2], **given) == generator.generate(SOURCES[:2], **ours), given
    assert generator.generate(input_ids=[[5, 6]]) == generator.generate([[5, 6]])
    assert [*generator.stream(input_ids=[5], max_tokens=2)] == [*generator.stream([5], max_new_tokens=2)]
    assert [one.total for one in generator.score(tokens=[[5, 6]])] == [one.total for one in generator.score([[5, 6]])]


@pytest.mark.parametrize(("library", "function"), [
    (library, function) for library, own in LIBRARIES.items() for function in ("generate", "chat") if function in own])
def test_every_argument_of_a_generation_has_an_answer(generator, library, function):
    """None changes no token; only a length that is None is that of the engine, and not that of the model's files."""
    call = {"generate": lambda **given: generator.generate([[5, 6]], **given)[0],
            "chat": lambda **given: generator.chat("the cat", template="{{ messages[0].content }}", **given)}[function]
    expected, given = call().ids, {}
    for name in LIBRARIES[library][function].split():
        ours = CALLS[function][name].ours if name in CALLS[function] else name
        if ours not in ("inputs", "messages", "template"):      # which the call has
            given[name] = None
    assert call(**given).ids[: len(expected)] == expected


def test_calls_with_the_defaults_of_other_libraries(generator):
    sampled = {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "min_p": 0.05, "top_k": 40}
    expected = generator.generate([[5, 6]], max_new_tokens=16, **sampled)
    assert generator.generate(
        prompt=[[5, 6]], suffix=None, max_tokens=16, typical_p=1.0, logprobs=None, echo=False, stop=[],
        frequency_penalty=0.0, presence_penalty=0.0, repeat_penalty=1.0, stream=False, seed=None, tfs_z=1.0,
        mirostat_mode=0, mirostat_tau=5.0, mirostat_eta=0.1, model=None, stopping_criteria=None, logits_processor=None,
        grammar=None, logit_bias=None, **sampled) == expected
    assert generator.generate(
        [[5, 6]], n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, seed=None, stop=None,
        stop_token_ids=None, bad_words=[], ignore_eos=False, max_tokens=16, min_tokens=0, logprobs=None,
        prompt_logprobs=None, flat_logprobs=False, detokenize=True, skip_special_tokens=True,
        spaces_between_special_tokens=True, include_stop_str_in_output=False, structured_outputs=None, logit_bias=None,
        allowed_token_ids=None, extra_args=None, use_tqdm=True, **sampled) == expected


def test_top_logprobs_beside_logprobs(generator):
    """OpenAI's form for chats: logprobs says that there are some, and top_logprobs how many."""
    expected = generator.generate([[5, 6]], logprobs=3)
    for given in ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 3}, {"logprobs": None, "top_logprobs": 3},
                  {"top_logprobs": None, "logprobs": 3}):
        assert generator.generate([[5, 6]], **given) == expected
    for given in ({"logprobs": False, "top_logprobs": 3}, {"logprobs": 2, "top_logprobs": 3}):
        with pytest.raises(InputError, match="logprobs is given twice, the second time by its other name top_logprobs"):
            generator.generate([[5, 6]], **given)


REFUSED = [
    ("generate", {"typical_p": 0.5}, "typical_p; there is nothing like it; leave it out"),
    ("generate", {"max_tokens": 3, "max_new_tokens": 3}, "given twice, the second time by its other name max_tokens"),
    ("generate", {"max_tokens": "many"}, "max_tokens must be"),
    ("generate", {"max_tokens": 3, "max_words": 3}, "it has max_new_tokens, "),
]


@pytest.mark.parametrize(("method", "given", "words"), REFUSED,
                         ids=[f"{row[0]} {next(iter(row[1]))}" for row in REFUSED])
def test_what_the_engine_lacks_is_said_in_a_line(generator, method, given, words):
    source = [5] if method == "stream" else [[5]]
    with pytest.raises(InputError) as error:
        list(getattr(generator, method)(source, **given))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("call", "message"), [
    (lambda g: g.generate([[5]], n=2), "input 0: n=2 needs do_sample=True, or num_beams of at least 2, not 1"),
    (lambda g: g.generate([[5]], num_hypotheses=3, beam_size=2),
     "input 0: num_hypotheses=3 needs do_sample=True, or beam_size of at least 3, not 2"),
    (lambda g: g.results([[5]], n=0), "n must be an int of at least 1, not 0"),
    (lambda g: g.stream([5], n=2, beam_size=2), "stream gives one result; leave out n"),
    (lambda g: g.generate([[5]], max_tokens=3, min_tokens=9), "input 0: min_tokens=9 must not be above max_tokens=3"),
    (lambda g: g.generate([[5]], max_tokens=999), "input 0: max_tokens=999 after a prompt of 1 tokens is more than the "
     "model has positions for; give at most 90"),
    (lambda g: g.session().submit([5], repeat_penalty=-1), "repeat_penalty must be a number from 0.01 to 100, not -1"),
    (lambda g: g.chat("a", chat_template=5), "chat_template must be a template of Jinja of at most 1,000,000 "
     "characters, the name of one of the model's, or None, not 5"),
    (lambda g: g.generate(input_ids=5), "the input_ids must be a text, or a list of texts or of token ids, not 5"),
    (lambda g: g.score([[5]], labels=3), "the labels must be a list of texts or of token ids, not 3"),
    (lambda g: engine.load(ENCODERS / "bert", n_threads=0), "n_threads must be None or an int of at least 1, not 0"),
    (lambda g: Engine.load(ENCODERS / "bert", n_threads=0), "n_threads must be None or an int of at least 1, not 0"),
    (lambda g: engine_of(random_model(tiny_text())).encode("a", dimensions=0),
     "dimensions must be None or an int of at least 1, not 0"),
    (lambda g: engine.load(model_path="/no/path"), "/no/path: no such file or folder; expected an .npz, a .gguf, "
     "the folder of a model, or its name on the Hugging Face hub"),
])
def test_an_error_names_what_was_typed(generator, call, message):
    with pytest.raises((InputError, WeightsError)) as error:
        call(generator)
    assert str(error.value) == message


def test_an_error_says_what_a_typed_value_means():
    class Loader:
        @renamed_arguments
        def load(self, path, *, precision=None):
            raise UnsupportedError(f"precision {precision!r} is not in a folder/precision; its path is {path}")

    with pytest.raises(UnsupportedError, match=r"^precision 'int4' .*\(load_in_4bit=True is precision='int4' here\)$"):
        Loader().load("a", load_in_4bit=True)
    with pytest.raises(UnsupportedError, match=r"^dtype 'int3' is not in a folder/precision; its model_path is b$"):
        Loader().load(model_path="b", dtype="int3")


def test_arguments_of_encode():
    encoder = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    expected = encoder.encode(["a cat"], normalize_embeddings=True, truncate_dim=3)
    for given in ({"documents": ["a cat"], "normalize": True, "dimensions": 3, "parallel": None},
                  {"input": ["a cat"], "normalize_embeddings": True, "truncate_dim": 3, "truncation": True}):
        np.testing.assert_array_equal(encoder.encode(**given), expected)
    with pytest.raises(InputError, match=r"encode has no argument promt \(did you mean prompt\?\); it has sentences, "):
        encoder.encode("a cat", promt=3)


def test_arguments_of_rank():
    reranker = Reranker.load(DECODERS / "reranker", threads=1, backend="reference")
    documents = ["the cat", "a dog"]
    assert reranker.rank("a cat", docs=documents, top_n=1) == reranker.rank("a cat", documents, top_k=1)


def test_options_of_load():
    given = {"model_path": DECODERS / "gpt2", "n_threads": 1, "compute_type": "float32", "device": "cpu",
             "n_gpu_layers": 0, "verbose": False, "backend": "reference", "use_mmap": False}
    for load in (engine.load, Generator.load):
        assert load(**given).threads == 1
    assert Engine.load(model_name=ENCODERS / "bert", cuda=False, providers=["CPUExecutionProvider"],
                       intra_threads=0, trust_remote_code=False, torch_dtype="auto").precision == "float32"
    assert Engine.load(ENCODERS / "bert", dtype="bfloat16").precision == "bfloat16"
    for load in (engine.load, Engine.load):
        with pytest.raises(InputError, match=r"load has no argument device; .*runs on CPUs"):
            load(ENCODERS / "bert", device="cuda")
    for load in (Engine.load, Generator.load):
        with pytest.raises(InputError, match=r"load has no argument thread \(did you mean threads\?\); it has path, "):
            load(ENCODERS / "bert", thread=1)
    names = f"{', '.join(COMPUTED)}(, bfloat16x3)? here"
    for name in ("compute_type", "dtype", "precision"):
        with pytest.raises(UnsupportedError, match="'float16' is not there; bfloat16 has"):
            engine.load(DECODERS / "gpt2", **{name: "float16"})
    with pytest.raises(UnsupportedError, match=f"{names}; precision 'int5' is not there"):
        engine.load(DECODERS / "gpt2", precision="int5")


def test_attributes_that_nobody_has():
    encoder = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    with pytest.raises(AttributeError, match=r"no attribute 'other'; help\(Engine\) lists what there is$"):
        _ = encoder.other
    with pytest.raises(AttributeError, match=r"no attribute 'encod' \(did you mean encode\?\); help\(Engine\)"):
        _ = encoder.encod
    assert not hasattr(encoder, "_repr_html_")


def test_a_misspelt_argument_is_guessed(generator):
    with pytest.raises(InputError, match=r"no argument max_new_token \(did you mean max_new_tokens\?\); it has"):
        generator.generate([[5]], max_new_token=3)
    with pytest.raises(InputError, match=r"no option thread \(did you mean threads\?\); it has"):
        engine.load(ENCODERS / "bert", thread=3)


def test_one_text_in_place_of_a_list_and_a_list_in_place_of_one(generator):
    for call, words in ((lambda: generator.generate(5), "must be a text, or a list of texts or of token ids, not 5"),
                        (lambda: generator.generate({"the cat"}), "not set, whose order is by chance"),
                        (lambda: generator.generate([5, 6]), "a flat sequence of token ids|must be token ids"),
                        (lambda: generator.stream(["the cat"]), r"one text, not 1 in a list; call stream\(text\) for"),
                        (lambda: generator.tokenizer("the cat"), r"a list of texts, not 'the cat'; encode\(text")):
        with pytest.raises(InputError, match=words):
            call()


def test_messages_of_a_chat_are_no_prompts(generator):
    message = {"role": "user", "content": "hi"}
    for inputs in ([message], [[message]], message, ["the cat", [message]]):
        with pytest.raises(InputError, match=r"chat are no text; .*<\|im_start\|>user"):
            generator.generate(inputs)


def test_settings_of_sampling_without_sampling_warn_once(generator):
    for given in ({"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.5, "do_sample": False}, {"min_p": 0.1}):
        for call in (lambda given=given: generator.generate([[5]], **given),
                     lambda given=given: [*generator.stream([5], **given)]):
            with pytest.warns(UserWarning, match=f"{next(iter(given))}=.* without do_sample=True") as warned:
                call()
            assert len(warned) == 1
            assert warned[0].filename == __file__
    model = Model(decoder=part(DECODER_CONFIGS["2017"]), encoder=part(ENCODER, 1), generation=SETTINGS)
    both = Generator(model, threads=1, backend="reference")
    with pytest.warns(UserWarning, match="give do_sample=True, or leave them out") as warned:
        both.translate(["the cat"], temperature=0.7, top_p=0.3)
    assert len(warned) == 1


def test_settings_that_need_no_sampling_are_silent(generator):
    own = language_model(replace(SETTINGS, temperature=0.6, top_p=0.9))     # as generation_config.json of many models
    expected = generator.generate([[5]])
    assert own.generate([[5]]) == expected
    assert generator.generate([[5]], temperature=1e-9) == expected
    assert generator.generate([[5]], temperature=1.0, top_k=50, top_p=None) == expected
    generator.generate([[5]], temperature=0.7, do_sample=True)


def test_a_temperature_of_nearly_zero_is_greedy(generator):
    [expected], [found] = (generator.generate([[5, 6]], **given) for given in (
        {}, {"do_sample": True, "temperature": 1e-300, "num_return_sequences": 3, "top_k": 0}))
    assert found == [expected] * 3


def test_attributes_of_a_loaded_model_do_not_change(generator):
    encoder = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    for found, name in ((encoder, "threads"), (generator, "precision")):
        with pytest.raises(InputError, match=f"^{name} of a .* load the model again, with {name}=... if load has it"):
            setattr(found, name, 3)
    with pytest.raises(InputError, match="with_text"):
        encoder.prompts = {}
    encoder.note = "an attribute of the caller's own"
    assert encoder.note


@pytest.mark.parametrize(("call", "words"), [
    (lambda m, g: m.encode(), "^encode needs sentences$"), (lambda m, g: m.rank("q"), "^rank needs documents; rank"),
    (lambda m, g: m.encode("a", "query"), "^encode takes only sentences without a name, and 2 arguments came; give"),
    (lambda m, g: m.predict("a", "b"), "takes only pairs .* a pair is one argument"),
    (lambda m, g: m.answer("a"), "^answer needs question and context; .*or a dictionary with both, not 'a' alone"),
    (lambda m, g: m.answer({"question": "a"}), "^answer needs .*or a dictionary with both"),
    (lambda m, g: g.generate("a", "b"), "^generate takes only inputs .* prompts go into one list"),
    (lambda m, g: g.generate(prompts=["a"]), "^generate needs inputs; prompts go into one list, the first argument"),
    (lambda m, g: Engine.load(), "^load needs path$"), (lambda m, g: Engine(), "^load needs model$"),
    (lambda m, g: engine.load("a", "b"), "^load takes only path"),
    (lambda m, g: g.generate("a", prompt="b"), "^generate got inputs twice, without a name and as prompt$"),
    (lambda m, g: m.tokenize("a", padding=True), "^tokenize has no argument padding; it has sentences, truncation$"),
    (lambda m, g: m.similarity([1.0]), "^similarity needs b$"), (lambda m, g: m.save(), "^save needs path$"),
    (lambda m, g: engine.save(m), "^save needs path$"), (lambda m, g: engine.calibrate(m), "^calibrate needs texts$"),
    (lambda m, g: engine.save(Model(encoder=random_model()), None), "^save takes the path of the file to write"),
    (lambda m, g: m.similarity("a", "b"), "^vectors must be numbers .* not 'a'$"),
    (lambda m, g: m.tokenizer([["a"]]), "called with a list of texts, not"),
    (lambda m, g: m.forward([1, 2]), r"not the number 1; input_ids of one sequence goes into .*=\[\[\.\.\.\]\]"),
    (lambda m, g: m.forward("hello"), r"not 'hello'; encode reads texts, and forward\(\*\*tokenize\(texts\)\)"),
])
def test_wrong_calls_name_no_class(generator, call, words):
    encoder = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    with pytest.raises(InputError, match=words) as error:
        call(encoder if "answer" not in words else Engine.load(folder_of("bert_answer")), generator)
    assert "HeadMethods" not in str(error.value)


def test_an_encoder_without_a_head_ranks_by_similarity():
    encoder = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    with pytest.raises(UnsupportedError, match=r"no head to rank; .*; similarity\(encode_query\(query\), "):
        encoder.rank("q", ["a"])


def test_questions_in_dictionaries():
    model = Engine.load(folder_of("bert_answer"), threads=1)
    row = {"question": "Who lives in Berlin?", "context": "Anna lives in Berlin."}
    assert model.answer(row) == model.answer(**row)
    assert model.answer([row, row]) == [model.answer(**row)] * 2
