"""What a folder has and the engine does not run is said by name, and what a model computes with is never left out."""

import json

import numpy as np
import pytest

from engine import Engine, Generator, UnsupportedError, WeightsError, load_model
from engine.loading.load import open_source

from ..tools.changed_folders import changed
from ..tools.golden_gguf import gguf_of
from ..tools.head_models import folder_of
from ..tools.module_folders import TYPES
from ..tools.paths import DECODERS, ENCODERS
from ..tools.tiny_models import write_json, write_modules_json

pytest.importorskip("tokenizers")

OPTIONS = {"backend": "reference", "threads": 1}


def zeros(*names):
    return {name: np.zeros((3, 4), np.float32) for name in names}


@pytest.mark.parametrize(("source", "architecture", "tensor", "kind"), [
    (DECODERS / "mbart", "MBartForSequenceClassification", "classification_head.out_proj.weight", "encode"),
    (DECODERS / "t5", "T5ForQuestionAnswering", "qa_outputs.weight", "encode"),
    (ENCODERS / "bert", "BertForMultipleChoice", "classifier.weight", "encode"),
    (ENCODERS / "bert", "BertForNextSentencePrediction", "cls.seq_relationship.weight", "encode"),
    (ENCODERS / "electra_base", "ElectraForPreTraining", "discriminator_predictions.dense.weight", "encode"),
])
def test_a_head_that_does_not_run_is_named(tmp_path, caplog, source, architecture, tensor, kind):
    path = changed(tmp_path / "model", source, zeros(tensor), architectures=[architecture])
    assert open_source(path).kind == kind
    model = load_model(path)
    [line] = [record.getMessage() for record in caplog.records if "head" in record.getMessage()]
    assert line.startswith(f"{path}: config.json names {architecture}, and the engine does not run its head: ")
    assert f"{tensor} are left out; encode and forward give the vectors of the encoder" in line
    assert model.encoder.heads == ()


@pytest.mark.parametrize(("source", "tensor"), [
    (DECODERS / "gemma3", "vision_tower.vision_model.x.weight"),
    (DECODERS / "gemma3", "model.multi_modal_projector.x.weight"),
    (ENCODERS / "siglip2_text", "vision_model.x.weight"),
])
def test_images_of_a_model_whose_text_alone_runs_are_named(tmp_path, caplog, source, tensor):
    path = changed(tmp_path / "model", source, zeros(tensor))
    load_model(path)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"{path}: the model reads texts and images, and the engine runs its text alone: ")
    assert " tensors of images are left out, " in line


def test_a_head_that_runs_is_not_named(caplog):
    assert [*Engine.load(folder_of("bert_classify"), **OPTIONS).heads] == ["classify"]
    Engine.load(ENCODERS / "bert", **OPTIONS)
    assert not caplog.records


def test_tensors_of_an_unknown_head_are_left_out(tmp_path, caplog):
    """In a file of a model with a head, the names of the encoder have a prefix."""
    prefix = "roberta."
    path = changed(tmp_path / "model", ENCODERS / "roberta", zeros("my_head.weight", "norm_mean"),
                   rename=lambda name: name if name.startswith(prefix) else prefix + name)
    found = Engine.load(path, **OPTIONS).forward([[3, 4, 5]])
    [record] = caplog.records
    assert record.getMessage() == (f"{path}: the weights have tensors of a head that the engine does not know, and "
                                   "that are left out: my_head.weight, norm_mean")
    assert found[0].tobytes() == Engine.load(ENCODERS / "roberta", **OPTIONS).forward([[3, 4, 5]])[0].tobytes()


@pytest.mark.parametrize(("source", "name"), [
    (ENCODERS / "bert", "encoder.layer.0.attention.self.extra.weight"), (ENCODERS / "bert", "embeddings.extra.weight"),
    (ENCODERS / "bert", "bert.extra.weight"), (DECODERS / "llama", "lm_head.bias"),
    (DECODERS / "llama", "model.layers.0.self_attn.extra.weight"),
])
def test_a_tensor_that_a_model_may_compute_with_is_never_left_out(tmp_path, source, name):
    path = changed(tmp_path / "model", source, zeros(name))
    with pytest.raises(WeightsError, match=f"unexpected {name}"):
        Engine.load(path, **OPTIONS) if source.parent == ENCODERS else Generator.load(path, **OPTIONS)


@pytest.mark.parametrize("name", ["pegasus", "marian"])
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_table_of_positions_is_compared_with_the_sinusoids(tmp_path, name, part):
    """A file may hold the table that the engine computes, also rounded to float16."""
    key = f"model.{part}.embed_positions.weight"
    right = getattr(load_model(DECODERS / name), part).weights["embeddings.position"]
    path = changed(tmp_path / "right", DECODERS / name, {key: right.astype(np.float16)})
    found = getattr(load_model(path), part).weights["embeddings.position"]
    assert found.tobytes() == right.tobytes()
    wrong = right.copy()
    wrong[3, 4] += 0.01
    nan = right.copy()
    nan[0, 0] = np.nan
    for number, (table, words) in enumerate((
        (wrong, r"differs from it by up to 0\.01;"), (nan, "differs from it by up to nan"),
        (right[:-1], rf"has the shape \[{len(right) - 1}, 12\] in place of \[{len(right)}, 12\]"),
    )):
        path = changed(tmp_path / str(number), DECODERS / name, {key: table})
        with pytest.raises(UnsupportedError, match=rf"of {name} models, which are sinusoids, and "
                                                   rf"{part}\.embed_positions\.weight {words}"):
            load_model(path)


def test_language_models_that_encode(tmp_path):
    """Without its class in config.json, a folder generates, as before; the class of the encoder, or modules, encode."""
    path = changed(tmp_path / "a", DECODERS / "qwen2", architectures=None)
    assert open_source(path).kind == "generate"
    values = {"architectures": ["Qwen2ForSequenceClassification"], "id2label": {str(i): f"c{i}" for i in range(3)}}
    width = json.loads((path / "config.json").read_text())["hidden_size"]
    path = changed(tmp_path / "b", DECODERS / "qwen2", {"score.weight": np.ones((3, width), np.float32)}, **values)
    assert open_source(path).kind == "encode"
    assert Engine.load(path, **OPTIONS).heads["classify"].rows == "last"


@pytest.mark.parametrize(("name", "architecture"), [
    ("gemma2", "Gemma2ForSequenceClassification"), ("opt", "OPTForQuestionAnswering"),
    ("bloom", "BloomForTokenClassification"), ("gpt2", "GPT2ForSequenceClassification"),
])
def test_a_head_of_a_language_model_is_never_lost(tmp_path, name, architecture):
    """The caller who says kind="generate" has the model without the head."""
    path = changed(tmp_path / "model", DECODERS / name, architectures=[architecture])
    for load in (load_model, Engine.load):
        with pytest.raises(UnsupportedError, match=f"it names '{architecture}', and the engine reads no such head of"):
            load(path)
    assert load_model(path, kind="generate").kind == "generate"


def test_embedders_whose_language_model_is_gemma(tmp_path):
    """Gemma 3 encodes with tokens that see no later token; Gemma 2 does not, and the advice is one that helps."""
    third, second = changed(tmp_path / "3", ENCODERS / "gemma_causal"), changed(tmp_path / "2", DECODERS / "gemma2")
    for path in (third, second):
        write_modules_json(path, ("", TYPES["Transformer"]), ("1_Pooling", TYPES["Pooling"]))
        write_json(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 38, "pooling_mode_lasttoken": True})
    assert open_source(third).kind == "encode"
    found, ids = Engine.load(third, **OPTIONS), [3, 4, 5, 6]
    assert found.config.attention_kinds[0].causal
    np.testing.assert_allclose(found.forward([ids[:2]])[0], found.forward([ids])[0][:2], atol=1e-5)
    with pytest.raises(UnsupportedError, match=r"modules\.json makes it an embedding model, and the engine runs "
                                               r"'gemma2' models as language models alone, which give no vectors\."):
        Engine.load(second, **OPTIONS)
    assert load_model(second, kind="generate").kind == "generate"
    assert open_source(changed(tmp_path / "a", ENCODERS / "gemma_causal", architectures=None)).kind == "generate"
    assert open_source(changed(tmp_path / "b", ENCODERS / "gemma_new", architectures=None)).kind == "encode"


def test_yarn_that_is_added_lengthens_the_context(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0}
    for scaling, longest in ((yarn, 256), (yarn | {"original_max_position_embeddings": 32}, 128), (None, 64),
                             (yarn | {"original_max_position_embeddings": 8, "attn_factor": 0.9}, 64)):
        path = changed(tmp_path / f"m{longest}{len(scaling or ())}", DECODERS / "qwen2", max_position_embeddings=64,
                       rope_parameters=None, rope_theta=1e4, rope_scaling=scaling)
        generator = Generator.load(path, threads=1)
        assert generator.config.max_positions == longest
        assert len(generator.score([[3] * (longest + 1)])[0].log_probabilities) == longest
    with pytest.raises(UnsupportedError, match="not supported"):
        Generator.load(changed(tmp_path / "other", DECODERS / "qwen2", rope_parameters=None, rope_theta=1e4,
                               rope_scaling=yarn | {"mine": 1}))


def test_a_file_of_more_positions_than_131072(tmp_path):
    for name, positions in (("qwen3", 262144), ("qwen2", 1010000)):
        folder = changed(tmp_path / name, DECODERS / name, max_position_embeddings=positions)
        (tmp_path / f"{name}.gguf").write_bytes(gguf_of(name, **{f"{name}.context_length": positions}))
        for path in (folder, tmp_path / f"{name}.gguf"):
            assert Generator.load(path, threads=1).config.max_positions == positions
