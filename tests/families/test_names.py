"""Test each family's config and tensor names; golden models prove the names, and rows here what these lack."""

import json
import re
from dataclasses import replace
from importlib import import_module
from itertools import product
from pkgutil import iter_modules

import numpy as np
import pytest

from engine import families
from engine.base.errors import UnsupportedError, WeightsError
from engine.families import FAMILIES, REFUSED, REFUSED_CLASSES, get_family
from engine.families.heads import HEAD_PREFIX
from engine.files.folder import ModelFolder
from engine.model.config import ModelConfig
from engine.weights.parameters import expected_shapes

from ..tools.encoders import ENCODERS, module_of, names_of
from ..tools.golden_models import GOLDEN
from ..tools.tiny_models import CONFIGS, hf_tensors
from .cases import CASES, TYPES
from .cases import CONFIGS as TINY

WRAPPERS = ["", "module.", "model.", "module.model."]
"""What training puts in front of all names, beside the family's own prefix."""


ENCODING = pytest.mark.parametrize("case", [case for case in CASES if case.golden], ids=lambda case: case.module)
OTHER_NAMES = {"layers.0.mlp.gate_proj.weight": "layers.0.ffn.gate.weight",
               "encoder.layer.1.mlp.up_proj.bias": "layers.1.ffn.up.bias",
               "layers.0.mlp.down_proj.weight": "layers.0.ffn.down.weight"}
"""Names that transformers 5 gives to the tensors of a DINOv2 with a gate, of which no golden model has any."""


def test_every_family_has_a_row():
    assert sorted(TYPES) == sorted(ENCODERS)
    for case in CASES:
        assert {module_of(FAMILIES[name]) for name in case.types} <= {case.module}


@pytest.mark.parametrize("table", ["FAMILIES", "BY_POSITIONS", "ARCHITECTURES"])
def test_each_row_of_the_tables_stands_in_one_module(table):
    modules = [import_module(f"engine.families.{module.name}") for module in iter_modules(families.__path__)]
    rows = [name for module in modules for name in getattr(module, table, {})]
    assert sorted(rows) == list(getattr(families, table))
    assert {kind.model_type for kind in families.ARCHITECTURES.values()} <= FAMILIES.keys()


def test_every_row_leaves_something_out():
    """Families that share a table of names share this list."""
    tested = {id(names_of(name, **TINY[name])) for case in CASES if case.left_out for name in case.types}
    assert {id(names_of(family, **TINY[family])) for family in ENCODERS} == tested


def golden_names(case):
    """Yield the `Names` of each golden encoder of a row, and the names of its tensors without prefixes."""
    for golden in case.golden:
        values = json.loads((GOLDEN / golden / "config.json").read_text(encoding="utf-8"))
        names = get_family(values).read_encoder(values).names
        prefixes = (names.prefix,) if isinstance(names.prefix, str) else names.prefix
        tensors = []
        ModelFolder(GOLDEN / golden).tensors(tensors.append)
        bare = [re.sub(r"^(module\.)?(model\.)?", "", tensor) for tensor in tensors]
        yield names, prefixes, [
            next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name) for name in bare]


@ENCODING
def test_names_with_and_without_prefixes(case):
    for names, prefixes, tensors in golden_names(case):
        renamed = {tensor: names.rename(tensor) for tensor in tensors}
        for wrapper, prefix in product(WRAPPERS, ("", *prefixes)):
            assert {tensor: names.rename(wrapper + prefix + tensor) for tensor in tensors} == renamed


def test_the_older_names_of_norms():
    tested = set()
    for case in CASES:
        for names, _, tensors in golden_names(case):
            for new, older in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
                of_norms = {tensor.replace(older, new) for tensor in tensors if tensor.endswith((new, older))}
                assert [names.rename(name.replace(new, older)) for name in of_norms] == [*map(names.rename, of_norms)]
                tested |= {case.module} if of_norms else set()
    assert {"bert", "deberta", "distilbert", "electra", "esm", "mpnet", "nomic_bert", "roberta"} <= tested


def test_names_of_which_no_golden_model_has_any():
    rename = names_of("dinov2").rename
    assert {name: rename(name) for name in OTHER_NAMES} == OTHER_NAMES
    assert {name: rename(f"dinov2.{name}") for name in OTHER_NAMES} == OTHER_NAMES


@pytest.mark.parametrize("case", [case for case in CASES if case.left_out], ids=lambda case: case.module)
def test_heads_and_buffers_are_no_part_of_the_encoder(case):
    for family, wrapper in product(case.types, WRAPPERS):
        names = names_of(family, **TINY[family])
        found = [names.rename(wrapper + name) for name in case.left_out]
        assert [name for name in found if name is not None and not name.startswith(HEAD_PREFIX)] == []
        of_heads = {tensor for head in names.heads for layer in head.layers for tensor in layer.names}
        assert {name.removeprefix(HEAD_PREFIX) for name in found if name is not None} <= of_heads


@pytest.mark.parametrize("family", CONFIGS)
def test_names_and_shapes_are_complete(family):
    config = FAMILIES[family].read_encoder(CONFIGS[family]).config
    renamed = {names_of(family).rename(name): array.shape for name, array in hf_tensors(family).items()}
    assert renamed == expected_shapes(config)


@pytest.mark.parametrize(("family", "joined", "part"), [
    ("nomic_bert", "attention.qkv", "attention.key"), ("gte", "ffn.up_gate", "ffn.gate"),
    ("neobert", "ffn.gate_up", "ffn.up"), ("modernbert", "attention.qkv", "attention.value")])
def test_a_joined_tensor_beside_one_of_its_parts_is_refused(family, joined, part):
    config = FAMILIES[family].read_encoder(
        {"model_type": family} | dict.fromkeys(("n_layer", "num_hidden_layers"), 1)).config
    weights = {f"layers.0.{name}.weight": np.zeros((8, 2), np.float32) for name in (joined, part)}
    for tensors in (weights, dict(reversed(weights.items()))):
        with pytest.raises(WeightsError, match=rf"hold layers.0.{joined}.weight, which joins .* and also "
                                               rf"layers.0.{part}.weight; remove"):
            names_of(family).split(tensors, config)


@pytest.mark.parametrize("name", ["encoder.layer.0.crossattention.self.query.weight", "embeddings.word_embeddings.bias",
                                  "encoder.layer.x.output.dense.weight", "encoder.layer.0.output.dense.scale", "foo"])
def test_unknown_names_stay_as_they_are(name):
    assert names_of("bert").rename(name) == name


def test_bert_config():
    values = CONFIGS["bert"] | {"layer_norm_eps": 1e-6, "hidden_act": "gelu_new", "pad_token_id": 3}
    assert FAMILIES["bert"].read_encoder(values).config == ModelConfig(
        family="bert", hidden_size=12, num_layers=2, num_heads=3, head_width=4, ffn_size=20, vocab_size=30,
        max_positions=16, token_types=2, pad_token_id=3, norm_eps=1e-6, activation="gelu_tanh")


def test_roberta_counts_positions_from_after_the_padding_id():
    config = FAMILIES["roberta"].read_encoder(CONFIGS["roberta"]).config
    assert (config.pad_token_id, config.position_offset, config.longest_sequence) == (1, 2, 14)
    assert FAMILIES["roberta"].read_encoder(CONFIGS["roberta"] | {"pad_token_id": 5}).config.position_offset == 6


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
@pytest.mark.parametrize("value", [None, -1])
def test_a_model_may_have_no_padding_token(family, value):
    assert FAMILIES[family].read_encoder({"model_type": family, "pad_token_id": value}).config.pad_token_id == 0


def test_roberta_without_a_padding_token():
    config = FAMILIES["roberta"].read_encoder(CONFIGS["roberta"] | {"pad_token_id": -1}).config
    assert (config.pad_token_id, config.position_offset, config.longest_sequence) == (0, 0, 16)
    with pytest.raises(WeightsError, match="pad_token_id must be an integer, not None"):
        FAMILIES["roberta"].read_encoder(CONFIGS["roberta"] | {"pad_token_id": None})


@pytest.mark.parametrize("family", FAMILIES)
def test_remote_code_is_refused_by_name(family):
    code = "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"
    values = {"model_type": family, "auto_map": {"AutoConfig": "configuration_bert.JinaBertConfig", "AutoModel": code}}
    with pytest.raises(UnsupportedError, match=f"auto_map names remote code, '{code}'.*plain '{family}' model"):
        get_family(values)
    assert get_family(values | {"auto_map": {"AutoModelForSequenceClassification": code}}) is FAMILIES[family]
    assert get_family(values | {"auto_map": None}) is FAMILIES[family]


@pytest.mark.parametrize(("model_type", "code"), [
    ("new", "Alibaba-NLP/new-impl--modeling.NewModel"),
    ("nomic_bert", "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"),
    ("eurobert", "modeling_eurobert.EuroBertModel"),
])  # fmt: skip
def test_families_that_were_published_as_remote_code(model_type, code):
    assert get_family({"model_type": model_type, "auto_map": {"AutoModel": code}}) is FAMILIES[model_type]


def test_remote_code_that_a_family_implements(monkeypatch):
    monkeypatch.setitem(FAMILIES, "bert", replace(FAMILIES["bert"], remote_code=("OwnModel",)))
    assert get_family({"model_type": "bert", "auto_map": {"AutoModel": "somebody/impl--modeling.OwnModel"}})
    with pytest.raises(UnsupportedError, match="NotOwnModel"):
        get_family({"model_type": "bert", "auto_map": {"AutoModel": "modeling.NotOwnModel"}})


def test_distilbert_has_no_token_types_and_a_fixed_epsilon():
    config = FAMILIES["distilbert"].read_encoder(CONFIGS["distilbert"] | {"layer_norm_eps": 1e-3}).config
    assert (config.token_types, config.norm_eps, config.ffn_size) == (0, 1e-12, 20)


@pytest.mark.parametrize(("family", "vocab", "layers", "pad"), [
    ("bert", 30522, 12, 0), ("roberta", 50265, 12, 1), ("xlm-roberta", 30522, 12, 1), ("camembert", 30522, 12, 1),
    ("distilbert", 30522, 6, 0)])
def test_what_a_config_leaves_out_is_as_in_transformers(family, vocab, layers, pad):
    config = FAMILIES[family].read_encoder({"model_type": family}).config
    assert (config.vocab_size, config.num_layers, config.pad_token_id) == (vocab, layers, pad)
    assert (config.hidden_size, config.num_heads, config.ffn_size, config.max_positions) == (768, 12, 3072, 512)
    assert (config.norm_eps, config.activation) == (1e-12, "gelu")


@pytest.mark.parametrize(("name", "activation"), [
    ("gelu", "gelu"), ("gelu_python", "gelu"), ("gelu_new", "gelu_tanh"), ("gelu_fast", "gelu_tanh"),
    ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu")])
def test_activations(name, activation):
    assert FAMILIES["bert"].read_encoder(CONFIGS["bert"] | {"hidden_act": name}).config.activation == activation
    config = FAMILIES["distilbert"].read_encoder(CONFIGS["distilbert"] | {"activation": name}).config
    assert config.activation == activation


@pytest.mark.parametrize(("key", "value"), [
    ("position_embedding_type", "relative_key"), ("is_decoder", True), ("add_cross_attention", True),
    ("hidden_act", "silu"), ("hidden_act", ["gelu"]), ("pruned_heads", {"0": [1]}),
    ("quantization_config", {"bits": 8}), ("quantization", {"group_size": 64, "bits": 4})])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_variants_are_refused_by_name(family, key, value):
    with pytest.raises(UnsupportedError, match=key):
        FAMILIES[family].read_encoder(CONFIGS[family] | {key: value})


@pytest.mark.parametrize(("key", "value"), [
    ("hidden_size", "12"), ("hidden_size", 12.0), ("num_attention_heads", 0), ("num_attention_heads", 5),
    ("num_hidden_layers", 10**9), ("vocab_size", None), ("layer_norm_eps", "1e-12"), ("layer_norm_eps", 0),
    ("max_position_embeddings", -1)])
def test_impossible_values_are_refused(key, value):
    with pytest.raises(WeightsError):
        FAMILIES["bert"].read_encoder(CONFIGS["bert"] | {key: value})


def test_an_unknown_family_is_told_the_known_ones():
    with pytest.raises(UnsupportedError, match="'xglm' is not supported; supported are albert, bart, bert, "):
        get_family({"model_type": "xglm"})
    for model_type, reason in REFUSED.items():
        with pytest.raises(UnsupportedError, match=f"'{model_type}' is not supported \\({reason}\\); supported are"):
            get_family({"model_type": model_type})
    with pytest.raises(WeightsError, match="model_type must name"):
        get_family({})


@pytest.mark.parametrize("name", REFUSED_CLASSES)
def test_a_class_of_another_kind_under_the_model_type_of_a_family_is_named(name):
    with pytest.raises(UnsupportedError, match=f"architectures names {name}, which forecasts series of numbers"):
        get_family({"model_type": "t5", "architectures": [name]})
