"""The real models of rxnfp 0.1.0 (MIT), three BERTs of 12 layers that read chemical reactions.

Its README prints the first five numbers of a reaction's vector. Two folders have no model_type in config.json, and one
has 50 classes with two names.
"""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, InputError, read_checkpoint

from ..tools.paths import MODELS
from ..tools.tiny_models import write_json

FOLDER = Path(os.environ.get("ENGINE_RXNFP", MODELS / "rxnfp/models/transformers"))
MISSING = (f"no rxnfp at {FOLDER}: pip install --no-deps --target models rxnfp==0.1.0. ENGINE_RXNFP points to another "
           "place")
REACTION = ("Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1>>"
            "O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1")
PUBLISHED = [-2.0174953937530518, 1.7602033615112305, -1.3323537111282349, -1.1095019578933716, 1.2254549264907837]
TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp().=#+\\/:~@?*$-]|>>?|%[0-9]{2}|[0-9]")
"""The tokens of reactions in SMILES."""


@pytest.fixture(scope="module", autouse=True)
def _needs_the_models():
    if not FOLDER.exists():
        pytest.skip(MISSING)


def ids_of(name):
    """Return the ids of the reaction: its tokens by one regular expression, between [CLS] and [SEP]."""
    lines = (FOLDER / name / "vocab.txt").read_text(encoding="utf-8").splitlines()
    numbers = {token: i for i, token in enumerate(lines)}
    return [[numbers[token] for token in ("[CLS]", *TOKEN.findall(REACTION), "[SEP]")]]


def with_model_type(folder, name):
    """Link a folder of the package with a model_type in its config.json."""
    folder.mkdir()
    for path in (FOLDER / name).iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "config.json").unlink()
    config = (FOLDER / name / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace("{", '{"model_type": "bert",', 1), encoding="utf-8")
    return folder


def test_the_published_vector(tmp_path, backend):
    engine = Engine.load(with_model_type(tmp_path / "bert", "bert_ft"), backend=backend)
    vector = engine.forward(ids_of("bert_ft"))[0][0]
    np.testing.assert_allclose(vector[:5], PUBLISHED, rtol=0, atol=1e-5)
    assert engine.heads == {}     # a pooler alone


def test_a_config_without_a_model_type():
    with pytest.raises(InputError, match="the tensors fit bert, camembert, roberta, xlm-roberta; add"):
        Engine.load(FOLDER / "bert_ft")
    engine = Engine.load(FOLDER / "bert_pretrained")      # its tensors begin with "bert."
    assert engine.config.family == "bert"
    assert list(engine.heads) == ["fill_mask"]
    assert engine.heads["fill_mask"].outputs == 591


def test_the_classes(tmp_path, one_backend):
    with pytest.warns(UserWarning, match="id2label names 2 of 50 labels"):
        engine = Engine.load(FOLDER / "bert_ft_10k_25s", backend=one_backend)
    assert engine.heads["classify"].describe() == "classify (50 labels)"
    assert engine.heads["classify"].labels[49] == "LABEL_49"
    # The head on the vector of the first token, in float64.
    tensors = {name: array.astype(np.float64) for name, array in
               read_checkpoint(FOLDER / "bert_ft_10k_25s" / "pytorch_model.bin").items()}
    first = engine.forward(ids_of("bert_ft_10k_25s"))[0][0].astype(np.float64)
    pooled = np.tanh(tensors["bert.pooler.dense.weight"] @ first + tensors["bert.pooler.dense.bias"])
    expected = tensors["classifier.weight"] @ pooled + tensors["classifier.bias"]
    runner = engine.runner_of("classify")
    found = runner.words(first[None].astype(np.float32))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected) > 1


def test_the_class_of_an_old_config(tmp_path):
    folder = with_model_type(tmp_path / "bert", "bert_ft")
    values = {"architectures": ["BertModel"], "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4,
              "intermediate_size": 512, "vocab_size": 591}
    (folder / "config.json").unlink()
    write_json(folder / "config.json", values)
    assert Engine.load(folder).config.family == "bert"
