"""Test loading models from every form on disk, and saving them."""

import json
from dataclasses import replace
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import load_model
from engine.base.errors import InputError, UnsupportedError, WeightsError
from engine.files.npz import write_npz
from engine.loading.npz_model import FORMAT
from engine.model.text_config import TextConfig
from engine.weights import model as model_module
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16
from engine.weights.parameters import matrices

from ..tools.damage import LITTLE, mangled, owner, peak_of
from ..tools.encoders import convert_encoder, load_encoder, save_encoder
from ..tools.model_files import OLD, TEXT, TOKENIZER, by_hand, document, same, st_folder
from ..tools.module_folders import TYPES
from ..tools.tiny_models import CONFIGS, hf_folder, hf_tensors, module_list, random_model, write_json

# The engine's own file


@pytest.mark.parametrize("model", [
    random_model(TEXT), random_model(), random_model(vocab_size=0), random_model(token_types=0, max_positions=0),
    convert_encoder(random_model(TEXT), "int8"),
    convert_encoder(random_model(), "bfloat16")])
def test_a_saved_model_comes_back_bit_for_bit(tmp_path, model):
    save_encoder(model, tmp_path / "m.npz")
    assert same(load_encoder(tmp_path / "m.npz"), model)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_folder_converts_bit_for_bit(tmp_path, family):
    model = load_encoder(hf_folder(tmp_path / "hf", family))
    save_encoder(model, tmp_path / "m.npz")
    found = load_encoder(str(tmp_path / "m.npz"))
    assert same(found, model)
    assert {type(owner(array)) for array in found.weights.values()} == {mmap}


def test_a_model_replaces_the_file_it_is_mapped_from(tmp_path):
    save_encoder(random_model(), tmp_path / "m.npz")
    model = load_encoder(tmp_path / "m.npz")
    save_encoder(model, tmp_path / "m.npz")
    assert same(load_encoder(tmp_path / "m.npz"), random_model())


def test_what_does_not_load_is_not_saved(tmp_path):
    model = random_model()
    weights = {name: array for name, array in model.weights.items() if name != "layers.0.ffn.up.bias"}
    with pytest.raises(WeightsError, match=r"the model to save: .*\n *missing layers\.0\.ffn\.up\.bias"):
        save_encoder(replace(model, weights=weights), tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_exported_by_hand(tmp_path):
    assert same(load_encoder(by_hand(tmp_path / "m.npz", document())), random_model())
    text = {name: value for name, value in TEXT.to_json().items() if name != "include_prompt"}
    found = load_encoder(by_hand(tmp_path / "m.npz", document(text=text), tokenizer=[TOKENIZER.decode()]))
    assert found.text == replace(TEXT, include_prompt=True)


def test_a_wrong_config_is_refused(refusals):
    def call(tmp_path, document):
        load_encoder(by_hand(tmp_path / "m.npz", document))

    refusals(call, [
        "{", "[]", document(format="other"), document(version="1"), document(version=7), document(version=3),
        document(version=0), document(extra=1), {"format": FORMAT, "version": 1}, document(model=[]),
        document(model={"hidden_size": 12}), document(model=document()["model"] | {"layers": 3}),
        document(model=document()["model"] | {"num_layers": 10**7}), document(text={}),
    ])


def test_a_wrong_text_config_is_refused(refusals):
    def call(tmp_path, text):
        load_encoder(by_hand(tmp_path / "m.npz", document(text=text), tokenizer="{}"))

    refusals(call, [
        [], {"pool": "mean"}, {"pooling": "mean"}, {"pooling": ["median"]}, {"pooling": []}, {"normalize": 1},
        {"max_seq_length": 0}, {"max_seq_length": True}, {"prompts": {"query": None}}, {"default_prompt_name": "query"},
    ])


def test_a_config_that_is_no_text_is_refused(refusals):
    def call(tmp_path, array):
        load_encoder(by_hand(tmp_path / "m.npz", document(), config=array))

    refusals(call, [
        np.zeros(3, np.float32), np.array(["a", "b"]), np.array([0x7FFFFFFF], np.uint32).view("<U1"),
        np.array(["\ud800"]),
    ])


def test_a_file_without_config_is_refused(tmp_path):
    write_npz(tmp_path / "m.npz", random_model().weights)
    with pytest.raises(WeightsError, match=r"no array is called config; it holds embeddings\.norm\.bias"):
        load_encoder(tmp_path / "m.npz")


def test_all_that_is_wrong_with_the_weights_is_in_one_error(tmp_path):
    arrays = dict(random_model().weights)
    del arrays["embeddings.position"]
    arrays["layers.0.ffn.up.bias"] = np.zeros(3, np.float32)
    arrays["layers.1.ffn.norm.bias"] = np.full(12, np.nan, np.float32)
    arrays["layers.2.ffn.norm.bias"] = np.zeros(12, np.float32)
    arrays["embeddings.word"] = np.full((30, 12), 1e300)
    np.savez(tmp_path / "m.npz", config=json.dumps(document()), **arrays)
    with pytest.raises(WeightsError) as error:
        load_encoder(tmp_path / "m.npz")
    for words in ("missing embeddings.position", "layers.0.ffn.up.bias has shape [3], expected [20]",
                  "layers.1.ffn.norm.bias holds NaN", "unexpected layers.2.ffn.norm.bias", "embeddings.word holds NaN"):
        assert words in str(error.value)


@pytest.mark.parametrize(("precision", "dtype"), [("int8", np.int8), ("bfloat16", np.uint16)])
def test_smaller_weights_are_mapped(tmp_path, precision, dtype):
    save_encoder(convert_encoder(random_model(), precision), tmp_path / "m.npz")
    found = load_encoder(tmp_path / "m.npz")
    assert {found.weights[name].dtype for name in matrices(found.config)} == {np.dtype(dtype)}
    assert {type(owner(array)) for array in found.weights.values()} == {mmap}


def test_int8_weights_saved_by_hand(tmp_path):
    model = convert_encoder(random_model(), "int8")
    np.savez(tmp_path / "m.npz", config=json.dumps(document()), **model.weights)
    assert same(load_encoder(tmp_path / "m.npz"), model)


def test_all_that_is_wrong_with_int8_weights_is_in_one_error(tmp_path):
    arrays = dict(convert_encoder(random_model(), "int8").weights)
    ones = np.ones(12, np.float32)
    del arrays["layers.0.attention.query.weight_scale"]
    arrays["layers.0.attention.key.weight_scale"] = ones.astype(np.int8)
    arrays["layers.0.attention.value.weight_scale"] = ones * np.nan
    arrays["layers.0.attention.output.weight_scale"] = ones * 0
    arrays["layers.0.ffn.up.weight_scale"] = ones
    arrays["layers.1.ffn.up.weight"] = np.full((20, 12), -128, np.int8)
    arrays["layers.0.attention.output.weight"] = np.full((12, 12), -65, np.int8)
    arrays["layers.1.ffn.down.weight"] = np.ones((12, 20), np.float32)
    arrays["layers.1.attention.key.weight"] = np.ones((12, 11), np.int8)
    arrays["embeddings.word"] = np.ones((30, 12), np.uint8)
    arrays["embeddings.position_scale"] = -np.ones(16, np.float32)
    arrays["layers.1.attention.query.weight"] = np.full((12, 12), 0x7F80, np.uint16)
    arrays["embeddings.token_type"] = np.ones((2, 12), np.int8)
    arrays["embeddings.norm.weight"] = np.ones(12, np.int8)
    np.savez(tmp_path / "m.npz", config=json.dumps(document()), **arrays)
    with pytest.raises(WeightsError) as error:
        load_encoder(tmp_path / "m.npz")
    assert sorted(str(error.value).splitlines()[1:]) == [
        "  embeddings.norm.weight has dtype int8, expected float32",
        "  embeddings.position_scale holds a scale that is not above 0",
        "  embeddings.token_type has dtype int8, expected float32",
        "  embeddings.word has dtype uint8, expected float32 or uint16 or int8 or q8_0 or float16",
        "  layers.0.attention.key.weight_scale has dtype int8, expected float32",
        "  layers.0.attention.output.weight_scale holds a scale that is not above 0",
        "  layers.0.attention.value.weight_scale holds NaN or infinity",
        "  layers.0.ffn.up.weight_scale has shape [12], expected [20]",
        "  layers.1.attention.key.weight has shape [12, 11], expected [12, 12]",
        "  layers.1.attention.query.weight has dtype uint16, expected int8",
        "  layers.1.ffn.down.weight has dtype float32, expected int8",
        "  layers.1.ffn.up.weight holds -128, expected -127 to 127",
        "  missing layers.0.attention.query.weight_scale, shape [12]",
        "  unexpected embeddings.word_scale, shape [30]",
    ]


def test_bfloat16_is_checked(tmp_path):
    bits = dict(convert_encoder(random_model(), "bfloat16").weights)
    bits["embeddings.word"] = np.where(np.arange(12) == 5, np.uint16(0xFF80), bits["embeddings.word"])
    bits["layers.0.ffn.up.weight"] = np.full((20, 12), 0x7FC0, np.uint16)
    np.savez(tmp_path / "m.npz", config=json.dumps(document()), **bits)
    with pytest.raises(WeightsError) as error:
        load_encoder(tmp_path / "m.npz")
    assert sorted(str(error.value).splitlines()[1:]) == [
        f"  {name} holds NaN or infinity" for name in ("embeddings.word", "layers.0.ffn.up.weight")]


def test_a_scale_beside_float32_weights_is_refused():
    model = random_model()
    stray = {"layers.0.ffn.up.weight_scale": np.ones(20, np.float32)}
    with pytest.raises(WeightsError, match=r"unexpected layers\.0\.ffn\.up\.weight_scale, shape \[20\]$"):
        save_encoder(replace(model, weights=dict(model.weights) | stray), "nowhere.npz")


def test_which_precision_a_model_can_run_in():
    model = random_model()
    assert [model.precision_for(asked) for asked in (None, "float32", "int8")] == ["float32", "float32", "int8"]
    model = convert_encoder(model, "int8")
    assert [model.precision_for(asked) for asked in (None, "int8")] == ["int8", "int8"]
    with pytest.raises(UnsupportedError, match=r"weights are in int8 .* precision 'float32'; convert .* the original"):
        model.precision_for("float32")


def test_bfloat16_outside_of_matrices_is_widened(tmp_path):
    bits = {name: to_bfloat16(array) for name, array in random_model().weights.items()}
    found = load_encoder(by_hand(tmp_path / "m.npz", document(), **bits))
    assert found.weights["layers.0.ffn.up.bias"].dtype == np.float32
    np.testing.assert_array_equal(found.weights["layers.0.ffn.up.bias"], from_bfloat16(bits["layers.0.ffn.up.bias"]))
    assert found.weights["layers.0.ffn.up.weight"].dtype == np.uint16
    save_encoder(found, tmp_path / "again.npz")
    assert same(load_encoder(tmp_path / "again.npz"), found)


def test_matrices_each_in_its_own_dtype(tmp_path):
    model, bits, int8 = (convert_encoder(random_model(), precision) for precision in ("float32", "bfloat16", "int8"))
    mixed = dict(model.weights)
    for name, source in (("embeddings.word", int8), ("embeddings.position", bits), ("layers.1.ffn.up.weight", bits)):
        mixed |= {key: array for key, array in source.weights.items() if key in (name, f"{name}_scale")}
    np.savez(tmp_path / "m.npz", config=json.dumps(document()), **mixed)
    found = load_encoder(tmp_path / "m.npz")
    assert found.precision == "float32"
    assert same(found, replace(found, weights=mixed))


def test_weights_are_checked_once(tmp_path, monkeypatch):
    save_encoder(random_model(), tmp_path / "m.npz")
    calls = []
    monkeypatch.setattr(model_module, "check", lambda *arguments, **_: calls.append(arguments))
    load_encoder(tmp_path / "m.npz")
    load_encoder(hf_folder(tmp_path / "hf"))
    assert len(calls) == 2


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_mangled_config_raises_nothing_else_and_allocates_little(tmp_path_factory, data):
    config = json.dumps(document(text=TEXT.to_json())).encode()
    array = np.frombuffer(data.draw(mangled(config)), np.uint8)
    path = by_hand(tmp_path_factory.getbasetemp() / "m.npz", document(), config=array, tokenizer=TOKENIZER.decode())
    assert peak_of(load_encoder, path) < LITTLE


# Hugging Face folders


@pytest.mark.parametrize("family", CONFIGS)
def test_a_folder_gives_the_tensors_it_holds(tmp_path, family):
    tensors = hf_tensors(family)
    weights = load_encoder(hf_folder(tmp_path, family, tensors)).weights
    up = "transformer.layer.1.ffn.lin1" if family == "distilbert" else "encoder.layer.1.intermediate.dense"
    np.testing.assert_array_equal(weights["layers.1.ffn.up.weight"], tensors[f"{up}.weight"])
    np.testing.assert_array_equal(weights["embeddings.word"], tensors["embeddings.word_embeddings.weight"])
    assert isinstance(owner(weights["embeddings.word"]), mmap)


def test_a_model_with_a_head_and_old_names(tmp_path):
    def old(name: str) -> str:
        return "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    tensors = {old(name): array for name, array in hf_tensors("bert").items()}
    extra = {"bert.embeddings.position_ids": np.arange(16)[None], "cls.predictions.bias": np.zeros(30, np.float32)}
    folder = hf_folder(tmp_path / "head", tensors=tensors | extra)
    assert same(load_encoder(folder), load_encoder(hf_folder(tmp_path / "bare")))


def test_an_unknown_tensor_is_reported_by_its_own_name(tmp_path):
    tensors = hf_tensors("bert") | {"encoder.layer.0.adapter.weight": np.zeros((2, 2), np.float32)}
    with pytest.raises(WeightsError, match=r"unexpected encoder\.layer\.0\.adapter\.weight, shape \[2, 2\]"):
        load_encoder(hf_folder(tmp_path, tensors=tensors))


def test_half_precision_folders_are_widened(tmp_path):
    tensors = {name: array.astype(np.float16) for name, array in hf_tensors("bert").items()}
    weights = load_encoder(hf_folder(tmp_path, tensors=tensors)).weights
    np.testing.assert_array_equal(weights["embeddings.word"], tensors["embeddings.word_embeddings.weight"])


def test_a_wrong_config_json_is_refused(refusals):
    def call(tmp_path, content):
        (hf_folder(tmp_path) / "config.json").write_bytes(content)
        load_encoder(tmp_path)

    refusals(call, [
        b"{", b"\xff\xfe", b"[1]", b"[" * 50_000, b"{}",
        b'{"model_type": "bert", "hidden_size": "x"}',
    ])


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="no such file or folder"):
        load_encoder(tmp_path / "missing")
    with pytest.raises(WeightsError, match=r"no config\.json; expected an \.npz, a \.gguf or the"):
        load_encoder(tmp_path)
    with pytest.raises(WeightsError, match="load the folder"):
        load_encoder(hf_folder(tmp_path) / "model.safetensors")
    (tmp_path / "texts.txt").write_text("the cat\n")
    with pytest.raises(WeightsError, match=r"texts\.txt is no model: expected an \.npz or a \.gguf file, or the"):
        load_encoder(tmp_path / "texts.txt")
    with pytest.raises(InputError, match="the path of a model is an empty string; expected"):
        load_encoder("")


LORA = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "base_model_name_or_path": "BAAI/bge-base-en-v1.5",
        "target_modules": ["query", "value"], "task_type": "FEATURE_EXTRACTION"}


@pytest.mark.parametrize("whole", [True, False], ids=["beside a model", "alone"])
@pytest.mark.parametrize("load", [load_encoder, load_model], ids=["encoder", "generating"])
def test_an_adapter_is_refused(tmp_path, load, whole):
    if whole:
        hf_folder(tmp_path)
    write_json(tmp_path / "adapter_config.json", LORA)
    with pytest.raises(UnsupportedError) as refusal:
        load(tmp_path)
    for words in (str(tmp_path), "an adapter of PEFT", "peft_type 'LORA', r 16, base_model_name_or_path 'BAAI/bge",
                  "merge_and_unload().save_pretrained(FOLDER)", "remove adapter_config.json"):
        assert words in str(refusal.value)
    write_json(tmp_path / "adapter_config.json", {})
    with pytest.raises(UnsupportedError, match="adapter of PEFT, and the engine"):
        load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"adapter_config\.json: "):
        load(tmp_path)


def test_a_plain_folder_with_a_tokenizer_pools_the_mean(tmp_path):
    folder = hf_folder(tmp_path)
    assert load_encoder(folder).text is None
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    assert load_encoder(folder).text == TextConfig(TOKENIZER, max_seq_length=16)


# sentence-transformers folders

def text_of(folder: Path) -> TextConfig:
    text = load_encoder(folder).text
    assert text is not None
    return text


def test_a_folder_of_version_2(tmp_path):
    folder = st_folder(tmp_path, "Transformer", "Pooling", "Normalize", types=OLD, transformer="0_Transformer",
                       pooling={"word_embedding_dimension": 12, "pooling_mode_cls_token": True,
                                "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True},
                       files={"0_Transformer/sentence_bert_config.json": {"max_seq_length": 11, "do_lower_case": True},
                              "config_sentence_transformers.json": {"__version__": {}}})
    assert text_of(folder) == TextConfig(TOKENIZER, 11, ("cls", "max"), normalize=True, lower_case=True)


def test_a_folder_of_version_6(tmp_path):
    folder = st_folder(
        tmp_path, "Transformer", "Pooling",
        pooling={"embedding_dimension": 12, "pooling_mode": "lasttoken", "include_prompt": False},
        files={"sentence_bert_config.json": {"transformer_task": "feature-extraction", "modality_config": {},
                                             "module_output_name": "token_embeddings"},
               "tokenizer_config.json": {"model_max_length": 7},
               "config_sentence_transformers.json": {
                   "model_type": "SentenceTransformer", "prompts": {"query": "q: ", "document": None},
                   "default_prompt_name": "query", "similarity_fn_name": "cosine"}})
    assert text_of(folder) == TextConfig(TOKENIZER, 7, ("lasttoken",), include_prompt=False, prompts={"query": "q: "},
                                         default_prompt_name="query")


@pytest.mark.parametrize(("settings", "keeps"), [
    ({}, False), ({"do_lower_case": True}, False), ({"do_lower_case": False}, True), ({"do_lower_case": None}, False),
    ({"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}, False),
])
def test_a_tokenizer_that_keeps_capitals_by_its_settings(tmp_path, settings, keeps):
    """BertTokenizer hands these settings to the normalizer of tokenizer.json."""
    normalizer = {"type": "BertNormalizer", "clean_text": True, "strip_accents": None, "handle_chinese_chars": True,
                  "lowercase": True}
    values = json.loads(TOKENIZER) | {"normalizer": normalizer}
    folder = st_folder(tmp_path / "st", "Transformer", "Pooling", files={"tokenizer_config.json": settings})
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    found = json.loads(text_of(folder).tokenizer_json)
    assert found["normalizer"]["lowercase"] is not keeps
    assert found | {"normalizer": None} == values | {"normalizer": None}


def test_the_side_of_truncation_that_the_tokenizer_states(tmp_path):
    folder = st_folder(tmp_path / "st", "Transformer", "Pooling",
                       files={"tokenizer_config.json": {"truncation_side": "left"}})
    text = text_of(folder)
    assert text.truncation_side == "left"
    save_encoder(load_encoder(folder), tmp_path / "model.npz")
    assert load_encoder(tmp_path / "model.npz").text == text
    write_json(folder / "tokenizer_config.json", {"truncation_side": "middle"})
    with pytest.raises(WeightsError, match=r"tokenizer_config.json: .*truncation_side must be left, right or nothing"):
        text_of(folder)


@pytest.mark.parametrize(("settings", "expected"), [
    ({"model_input_names": ["input_ids", "attention_mask"]}, False),
    ({"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}, True),
    ({"tokenizer_class": "TokenizersBackend"}, False),
    ({}, True),
])  # fmt: skip
def test_the_inputs_that_the_tokenizer_names(tmp_path, settings, expected):
    plain = hf_folder(tmp_path / "plain")
    (plain / "tokenizer.json").write_bytes(TOKENIZER)
    write_json(plain / "tokenizer_config.json", settings)
    folder = st_folder(tmp_path / "st", "Transformer", "Pooling", files={"tokenizer_config.json": settings})
    for source in (plain, folder):
        assert text_of(source).feeds_token_types is expected
        save_encoder(load_encoder(source), tmp_path / "model.npz")
        assert load_encoder(tmp_path / "model.npz").text == load_encoder(source).text
        document = json.loads(np.load(tmp_path / "model.npz")["config"].tobytes())
        assert document["version"] == (1 if expected else 2)


@pytest.mark.parametrize(("config", "expected"), [
    ({"pooling_mode": "max"}, ("max",)),
    ({"pooling_mode": ["mean", "cls"]}, ("mean", "cls")),
    ({"pooling_mode": "max", "pooling_mode_cls_token": True}, ("max",)),
    ({"pooling_mode_mean_sqrt_len_tokens": True}, ("mean_sqrt_len_tokens",)),
    ({"pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True}, ("weightedmean", "lasttoken")),
    ({"pooling_mode_mean_tokens": False}, ("mean",)),
])
def test_pooling_modes(tmp_path, config, expected):
    assert text_of(st_folder(tmp_path, "Transformer", "Pooling", pooling=config)).pooling == expected


@pytest.mark.parametrize(("files", "expected"), [
    ({}, 16),
    ({"tokenizer_config.json": {"model_max_length": 5}}, 5),
    ({"tokenizer_config.json": {"max_len": 5}}, 5),
    ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 16),
    ({"tokenizer_config.json": {"model_max_length": 1e30}}, 16),
    ({"tokenizer_config.json": {"model_max_length": 5}, "sentence_bert_config.json": {"max_seq_length": 8}}, 8),
    ({"tokenizer_config.json": {"model_max_length": 5}, "sentence_bert_config.json": {"max_seq_length": None}}, 5),
    ({"sentence_roberta_config.json": {"max_seq_length": 8}}, 8),
    ({"sentence_bert_config.json": {"max_seq_length": 4000}}, 16),
    ({"sentence_bert_config.json": {"max_seq_length": 8, "tokenizer_args": {"model_max_length": 6}}}, 6),
])
def test_longest_sequence(tmp_path, files, expected):
    assert text_of(st_folder(tmp_path, "Transformer", "Pooling", files=files)).max_seq_length == expected


def test_other_modules_are_refused_by_name(refusals):
    def call(tmp_path, kinds, types):
        load_encoder(st_folder(tmp_path, *kinds, types=types))

    refusals(call, [
        (("Dense", "Pooling"), TYPES), (("Transformer", "Pooling", "Pooling"), TYPES),
        (("Transformer", "Pooling", *["Dense"] * 17), TYPES),
        (("Transformer", "Pooling", "Dense"), TYPES | {"Dense": "sentence_transformers.models.LSTM"}),
        (("Transformer",), TYPES), (("Transformer", "Normalize", "Pooling"), TYPES),
        (("Transformer", "Pooling"), TYPES | {"Transformer": "custom_st.Transformer"}), ((), TYPES),
    ])


def test_what_cannot_be_followed_is_refused(refusals):
    def call(tmp_path, file, value):
        folder = st_folder(tmp_path, "Transformer", "Pooling", "Normalize", files={file: value})
        load_encoder(folder)

    refusals(call, [
        ("modules.json", {}), ("modules.json", [{"type": TYPES["Transformer"]}]),
        *(("modules.json", module_list((path, TYPES["Transformer"]), ("1_Pooling", TYPES["Pooling"])))
          for path in ("../other", "/etc")),
        ("1_Pooling/config.json", {"pooling_mode": "median"}), ("1_Pooling/config.json", {"pooling_mode": [["mean"]]}),
        ("1_Pooling/config.json", {"include_prompt": "no"}),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {}}}),
        ("sentence_bert_config.json", {"max_seq_length": "9"}),
        ("tokenizer_config.json", {"model_max_length": float("nan")}),
        ("config_sentence_transformers.json", {"model_type": "MultiVectorEncoder"}),
        ("config_sentence_transformers.json", {"truncate_dim": "8"}),
        ("config_sentence_transformers.json", {"similarity_fn_name": "max"}),
        ("config_sentence_transformers.json", {"prompts": ["q"]}),
        ("tokenizer_config.json", {"model_input_names": "input_ids"}),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}),
    ])


def test_a_folder_without_a_vocabulary_has_no_text(tmp_path):
    folder = st_folder(tmp_path, "Transformer", "Pooling")
    (folder / "tokenizer.json").unlink()
    assert load_encoder(folder).text is None


def test_a_classifier_of_setfit_is_refused_with_the_lines_that_export_it(tmp_path):
    folder = st_folder(tmp_path, "Transformer", "Pooling")
    (folder / "model_head.pkl").write_bytes(b"\x80\x04N.")
    with pytest.raises(UnsupportedError, match="a pickle of scikit-learn") as caught:
        load_encoder(folder)
    lines = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    assert [line.split("(")[0] for line in lines] == ["import joblib, numpy", "head = joblib.load", "numpy.savez"]
    (folder / "model_head.pkl").unlink()
    assert load_encoder(folder).text is not None
