"""The family of a config.json without a model_type: by its class, or by its tensors and its keys."""

import json

import pytest

from engine import Engine, InputError
from engine.files.folder import ModelFolder
from engine.loading.model_type import with_model_type

from ..tools.changed_folders import changed
from ..tools.paths import ENCODERS

OPTIONS = {"backend": "reference", "threads": 1}


def without(folder, name, *keys):
    """Copy a golden folder without the keys that name its family, and without further keys."""
    return changed(folder, ENCODERS / name, **dict.fromkeys(("model_type", "architectures", *keys)))


def test_the_first_bert_is_no_big_bird(tmp_path):
    """Folders such as prajjwal1/bert-tiny state sizes alone, and their tensors have the names of BERT with a head."""
    folder = without(tmp_path / "model", "bert_limit")
    found = Engine.load(folder, **OPTIONS).forward([[3, 4, 5]])[0]
    assert found.tobytes() == Engine.load(ENCODERS / "bert_limit", **OPTIONS).forward([[3, 4, 5]])[0].tobytes()


@pytest.mark.parametrize(("name", "model_type"), [
    ("big_bird_full", "big_bird"), ("big_bird_sparse", "big_bird"), ("bert_limit", "bert"), ("dpr_question", "dpr"),
    ("deberta_c2p", "deberta-v2"), ("deberta_own", "deberta-v2"), ("electra_small", "electra"), ("esm2", "esm"),
])
def test_the_family_by_tensors_and_keys(tmp_path, name, model_type):
    folder = without(tmp_path / "model", name)
    values = json.loads((folder / "config.json").read_text())
    assert with_model_type(ModelFolder(folder), values, "config.json") == values | {"model_type": model_type}


def test_families_that_nothing_tells_apart(tmp_path):
    """Without a prefix in front of the names, BERT's and RoBERTa's tensors are the same."""
    folder = without(tmp_path / "model", "bert")
    with pytest.raises(InputError, match="no model_type, and the tensors fit bert, camembert, roberta, xlm-roberta;"):
        Engine.load(folder, **OPTIONS)
