"""Heads that read a decoder, as BART's: what tests/heads does not see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine import Engine, Generator, Model, UnsupportedError, WeightsError, load, load_model, save

from ..tools import head_texts as texts
from ..tools.changed_folders import changed
from ..tools.head_models import folder_of

pytest.importorskip("tokenizers")

SOME = texts.TEXTS[:12]


def test_the_vectors_of_texts_are_those_of_the_encoder(tmp_path, one_backend):
    engine = Engine.load(folder_of("bart_classify"), backend=one_backend)
    folder = changed(tmp_path / "plain", folder_of("bart_classify"), architectures=["BartModel"])
    plain = Engine.load(folder, backend=one_backend)
    np.testing.assert_array_equal(engine.encode(SOME), plain.encode(SOME))
    assert list(engine.heads) == ["classify"]
    assert plain.heads == {}


def test_files_and_kinds(tmp_path, one_backend):
    model = load_model(folder_of("bart_classify"))
    assert model.kind == "encode"
    save(model, tmp_path / "model.npz")
    engine, again = (load(path, backend=one_backend) for path in (folder_of("bart_classify"), tmp_path / "model.npz"))
    assert isinstance(again, Engine)
    assert again.classify(SOME) == engine.classify(SOME)
    for path in (folder_of("bart_classify"), tmp_path / "model.npz"):
        with pytest.raises(UnsupportedError):
            Generator(load_model(path))
    with pytest.raises(UnsupportedError, match="cannot generate"):
        Generator.load(tmp_path / "model.npz")


@pytest.mark.parametrize(("keep", "message"), [
    (lambda name: "classification_head" not in name, "names BartForSequenceClassification, and the weights lack its"),
    (lambda name: "head.dense" not in name, "whose head also has classification_head.dense.weight"),
    (lambda name: "decoder.layers.1.fc1" not in name, r"missing layers\.1\.ffn\.up\.weight"),
])
def test_folders_without_a_part(tmp_path, keep, message):
    with pytest.raises(WeightsError, match=message):
        Engine.load(changed(tmp_path / "model", folder_of("bart_classify"), keep=keep))


def test_models_that_do_not_fit():
    model = load_model(folder_of("bart_classify"))
    for generation, encoder in ((model.generation.changed(decoder_start_token_id=None), model.encoder),
                                (model.generation, None)):
        with pytest.raises(WeightsError, match=r"decoder_start_token_id is its first token|width 0|must be equal"):
            Engine(Model(encoder=encoder, decoder=model.decoder, generation=generation))
    generating = replace(model.decoder, config=replace(model.decoder.config, logits_size=0, logits="tied"))
    with pytest.raises(WeightsError, match="only an encoder alone has heads"):
        Engine(Model(encoder=model.encoder, decoder=generating, generation=model.generation))


def test_more_texts_than_one_step_reads(one_backend):
    """The decoder reads them group by group, which changes no bit."""
    small = Engine.load(folder_of("bart_classify"), backend=one_backend, max_batch_tokens=96)
    large = Engine.load(folder_of("bart_classify"), backend=one_backend)
    assert small.classify(SOME * 6) == large.classify(SOME * 6)
