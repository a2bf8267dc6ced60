"""Settings of a generation: what they accept, what they refuse, and the files they come from."""

import json
from dataclasses import fields

import numpy as np
import pytest

from engine import Generator
from engine.base.errors import InputError, UnsupportedError
from engine.generation.settings import settings_of_call
from engine.loading.generation_settings import settings_of
from engine.model.generation_config import NEW_TOKENS, GenerationConfig

from ..tools.generators import SOURCES, language_model

MARIAN = {"bad_words_ids": [[58100]], "bos_token_id": 0, "decoder_start_token_id": 58100, "eos_token_id": 0,
          "forced_eos_token_id": 0, "max_length": 512, "num_beams": 4, "pad_token_id": 58100,
          "renormalize_logits": True, "transformers_version": "4.32.0.dev0", "_from_model_config": True}  # fmt: skip


def test_ids_become_tuples_and_numbers_floats():
    config = GenerationConfig(eos_token_id=2, suppress_tokens=[3, np.int64(4)], bad_words_ids=[[1], (2, 3)], top_p=1,
                              forced_eos_token_id=None, num_beams=np.int32(3))  # fmt: skip
    assert (config.eos_token_id, config.suppress_tokens, config.bad_words_ids) == ((2,), (3, 4), ((1,), (2, 3)))
    assert type(config.top_p) is float
    assert type(config.num_beams) is int
    assert config.forced_eos_token_id == ()
    assert config == GenerationConfig(**{f.name: getattr(config, f.name) for f in fields(config)})
    assert hash(config) == hash(config.changed())


@pytest.mark.parametrize(("options", "message"), [
    ({"max_new_tokens": 0}, "max_new_tokens must be None or an int of at least 1"),
    ({"max_length": 2.5}, "max_length"), ({"min_new_tokens": -1}, "at least 0"), ({"num_beams": True}, "num_beams"),
    ({"length_penalty": float("nan")}, "from -100 to 100"), ({"length_penalty": 10**400}, "from -100 to 100"),
    ({"early_stopping": "always"}, '"never"'), ({"early_stopping": 2}, '"never"'),
    ({"num_return_sequences": 0}, "num_return_sequences"), ({"repetition_penalty": 0}, "from 0.01 to 100"),
    ({"repetition_penalty": 1e300}, "from 0.01 to 100"), ({"no_repeat_ngram_size": 1.0}, "at least 0"),
    ({"bad_words_ids": [3]}, "list of lists"), ({"bad_words_ids": [[]]}, "list of lists"),
    ({"bad_words_ids": [["a"]]}, "bad_words_ids"), ({"bad_words_ids": [[1]] * 100_001}, "100,000"),
    ({"suppress_tokens": [-1]}, "suppress_tokens"), ({"bos_token_id": 2**31}, "at most 2,147,483,647"),
    ({"suppress_tokens": "12"}, "suppress_tokens"), ({"forced_bos_token_id": [3]}, "forced_bos_token_id"),
    ({"renormalize_logits": None}, "True or False"), ({"do_sample": "yes"}, "True or False"),
    ({"temperature": 10**400}, "from 0 to 1e.06"), ({"temperature": -1}, "from 0 to 1e.06"), ({"top_k": -1}, "top_k"),
    ({"top_p": 1.01}, "from 0 to 1"), ({"min_p": -0.1}, "from 0 to 1"), ({"seed": -1}, "seed"),
    ({"seed": 2**64}, "at most 18,446,744,073,709,551,615"), ({"eos_token_id": [[2]]}, "eos_token_id"),
    ({"prefix": "de"}, "prefix"),
])  # fmt: skip
def test_a_wrong_value_is_named(options, message):
    with pytest.raises(InputError, match=message):
        GenerationConfig(**options)


def test_the_settings_of_a_call_are_checked_once(monkeypatch):
    generator, checks = Generator(language_model()), []
    monkeypatch.setattr(GenerationConfig, "check_together", lambda self, vocab_size: checks.append(vocab_size))
    for settings in ({}, {"repetition_penalty": 1.2}):
        generator.generate(SOURCES, max_new_tokens=2, **settings)
    assert len(checks) == 2


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"do_sample": True, "num_beams": 2}, UnsupportedError, "num_beams=1"),
    ({"num_return_sequences": 2}, InputError, "do_sample=True"),
    ({"num_return_sequences": 3, "num_beams": 2}, InputError, "at least 3"),
    ({"min_new_tokens": 4, "max_new_tokens": 3}, InputError, "min_new_tokens=4"),
    ({"suppress_tokens": [10]}, InputError, "suppress_tokens has the id 10"),
    ({"bad_words_ids": [[1, 10]]}, InputError, "bad_words_ids has the id 10"),
    ({"forced_bos_token_id": 10}, InputError, "forced_bos_token_id has the id 10"),
    ({"forced_bos_token_id": 2, "eos_token_id": 2}, InputError, "forced_bos_token_id=2"),
    ({"forced_bos_token_id": 3, "suppress_tokens": 3}, InputError, "forced_bos_token_id=3"),
])  # fmt: skip
def test_a_contradiction_is_named(options, error, message):
    with pytest.raises(error, match=message):
        GenerationConfig(**options).check_together(10)


def test_changed():
    config = settings_of(MARIAN)
    assert config.changed(num_beams=None).num_beams == 1
    assert config.changed(max_new_tokens=5).limit(3, None) == 8
    assert config.changed(max_new_tokens=5).changed(max_length=6).limit(3, None) == 6
    assert config.changed(min_length=5).changed(min_new_tokens=2).min_length == 0
    with pytest.raises(InputError, match=r"no argument beams \(did you mean num_beams\?\); it has max_new_tokens"):
        config.changed(beams=3)


def test_the_limit():
    assert GenerationConfig().limit(3, None) == 3 + NEW_TOKENS
    assert GenerationConfig().limit(3, 100) == 101, "the last token is not read any more"
    assert GenerationConfig(max_length=20).limit(3, 100) == 20
    assert GenerationConfig(max_length=20).limit(3, 10) == 11
    assert GenerationConfig(max_new_tokens=8, max_length=5).limit(3, 10) == 11
    with pytest.raises(InputError, match="give at most 8"):
        GenerationConfig(max_new_tokens=9).limit(3, 10)


def test_the_prompt():
    config = GenerationConfig(decoder_start_token_id=7, bos_token_id=1, prefix=[5, 6])
    assert config.prompt(None, True).tolist() == [7, 5, 6]
    assert config.prompt(np.array([4]), True).tolist() == [4, 5, 6]
    assert config.prompt(np.array([4]), False).tolist() == [4, 5, 6]
    assert GenerationConfig(bos_token_id=1).prompt(None, True).tolist() == [1]
    for ids, has_source in ((None, False), (np.zeros(0, np.int64), True)):
        with pytest.raises(InputError, match="at least one token"):
            GenerationConfig(bos_token_id=1).prompt(ids, has_source)


def test_marians_file():
    config = settings_of(MARIAN)
    assert config == GenerationConfig(bad_words_ids=[[58100]], bos_token_id=0, decoder_start_token_id=58100,
                                      eos_token_id=0, forced_eos_token_id=0, max_length=512, num_beams=4,
                                      pad_token_id=58100, renormalize_logits=True)  # fmt: skip


def test_what_changes_nothing_is_accepted():
    neutral = {"typical_p": 1.0, "num_beam_groups": 1, "diversity_penalty": 0, "guidance_scale": None, "max_time": None,
               "use_cache": True, "output_scores": False, "top_h": None, "remove_invalid_values": False}  # fmt: skip
    assert settings_of(neutral) == GenerationConfig()
    assert settings_of(None) == settings_of({}) == GenerationConfig()
    assert settings_of({"num_beams": None, "eos_token_id": [1, 2]}).eos_token_id == (1, 2)


@pytest.mark.parametrize("key", ["typical_p", "num_beam_groups", "encoder_repetition_penalty",
                                 "sequence_bias", "exponential_decay_length_penalty", "penalty_alpha"])  # fmt: skip
def test_what_changes_results_is_refused(key):
    for found in ((None, {key: 0.5}), ({key: 0.5},)):
        with pytest.raises(UnsupportedError, match=key):
            settings_of(*found)
    assert settings_of({key: 0.5}, handled=[key]) == GenerationConfig()


def test_an_unknown_key_is_left_out_with_a_warning(caplog):
    for key in ("lang_to_id", "seed", "prefix"):
        assert settings_of({key: {}, "num_beams": 3, "of_tomorrow": 1}) == GenerationConfig(num_beams=3)
        assert f"keys that the engine does not know, and that are left out: {key}, of_tomorrow;" in caplog.messages[-1]
    caplog.clear()
    assert settings_of(MARIAN)
    assert not caplog.messages
    assert settings_of({"lang_to_id": {}}, handled=("lang_to_id",)) == GenerationConfig()
    assert settings_of(None, {"d_model": 512, "prefix": " ", "num_beams": 6}).num_beams == 6


def test_the_own_file_comes_before_the_models():
    assert settings_of({"num_beams": 2}, {"num_beams": 6, "max_length": 9}) == GenerationConfig(num_beams=2)
    old = {"force_bos_token_to_be_generated": True, "bos_token_id": 5}
    assert settings_of(None, old).forced_bos_token_id == 5
    assert settings_of(old, handled=["force_bos_token_to_be_generated"]).forced_bos_token_id is None


def test_a_wrong_value_in_a_file():
    with pytest.raises(InputError, match="num_beams"):
        settings_of(json.loads('{"num_beams": "4"}'))


def test_a_bias_may_have_the_text_of_a_token():
    words = {"a": [5], "ab": [5, 6], "": []}
    found = settings_of_call(GenerationConfig(), {"logit_bias": {"a": 2, 3: -100.0}}, words.__getitem__)
    assert found.logit_bias == ((3, -100.0), (5, 2.0))
    for text, message in (("ab", r"the text 'ab', which is 2 tokens \(5, 6\) and not one"), ("", "which is 0 tokens")):
        with pytest.raises(InputError, match=message):
            settings_of_call(GenerationConfig(), {"logit_bias": {text: 1}}, words.__getitem__)
    with pytest.raises(InputError, match="came without a tokenizer; give the id"):
        settings_of_call(GenerationConfig(), {"logit_bias": {"a": 1}})


@pytest.mark.parametrize(("given", "message"), [
    ({"logit_bias": {5: 101}}, "each number of logit_bias must be a number from -100 to 100, not 101"),
    ({"logit_bias": {5: float("nan")}}, "from -100 to 100, not nan"),
    ({"logit_bias": {-1: 1}}, "each id of logit_bias must be an int of at least 0"),
    ({"logit_bias": 5}, "must be a dictionary from ids of tokens to numbers, not 5"),
    ({"presence_penalty": 2.1}, "presence_penalty must be a number from -2 to 2"),
    ({"frequency_penalty": "1"}, "frequency_penalty must be a number from -2 to 2"),
])
def test_wrong_biases_and_penalties_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        GenerationConfig(**given)
    with pytest.raises(InputError, match="logit_bias has the id 50, but the model has 50 tokens"):
        GenerationConfig(logit_bias={50: 1}).check_together(50)
