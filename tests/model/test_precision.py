"""Precisions have aliases, and upper case does not matter."""

import pytest

from engine import Generator
from engine.base.errors import InputError, UnsupportedError
from engine.cli.main import main
from engine.model.precision import FORMATS, STORED, canonical_name

from ..tools.encoders import convert_encoder, engine_of, load_encoder, save_encoder
from ..tools.generators import language_model
from ..tools.tiny_models import random_model


@pytest.mark.parametrize(("name", "canonical"), [
    ("float32", "float32"), ("fp32", "float32"), ("Float32", "float32"), ("bf16", "bfloat16"), ("BF16", "bfloat16"),
    ("INT8", "int8"), ("i8", "int8"), ("fp16", "float16"), ("half", "float16"), ("int3", "int3"), ("Int3", "Int3"),
    ("BF16x3", "bfloat16x3"),
])  # fmt: skip
def test_canonical_names(name, canonical):
    assert canonical_name(name) == canonical


def test_no_name_has_two_meanings():
    names = [name for row in FORMATS.values() for name in (row.name, *row.aliases)]
    assert len(set(names)) == len(names)
    assert names == [name.lower() for name in names]


def test_arrays_tell_their_format():
    """`STORED` finds the format of an array by its dtype; a packed file tells that of a map by its bytes."""
    stored = [row for row in FORMATS.values() if not row.multiplies]
    assert [STORED[row.dtype] for row in stored] == [row.name for row in stored]
    for row in stored:
        together = [row, *(FORMATS[name] for name in row.beside)]
        assert len({each.row_bytes(32) for each in together}) == len(together)


def test_an_engine_reports_the_canonical_name():
    assert engine_of(random_model(), backend="reference", precision="FP32").precision == "float32"
    quantized = convert_encoder(random_model(), "INT8")
    assert quantized.precision == "int8"
    assert quantized.precision_for("Int8") == "int8"


def test_names_that_are_refused():
    choices = "float32, bfloat16, int8, q8_0, int4, float16"
    with pytest.raises(UnsupportedError, match=f"there is no precision 'int3'; choose {choices}"):
        convert_encoder(random_model(), "int3")
    with pytest.raises(UnsupportedError, match="no weight is stored in bfloat16x3, which is a way to"):
        convert_encoder(random_model(), "bf16x3")
    with pytest.raises(UnsupportedError, match="'float16' is not there; bfloat16 has as many bits"):
        engine_of(random_model(), backend="reference", precision="fp16")
    with pytest.raises(UnsupportedError, match="'auto' is not there; auto compares the vectors of an encoder of text"):
        Generator(language_model(), backend="reference", precision="auto")
    computed = "float32, bfloat16, int8, q8_0, int4, bfloat16x3"
    with pytest.raises(InputError, match=f"precision must be None or one of {computed}, not 8"):
        engine_of(random_model(), backend="reference", precision=8)


def test_the_command_line(tmp_path, capsys):
    model, out = str(tmp_path / "model.npz"), str(tmp_path / "out.npz")
    save_encoder(random_model(), model)
    assert main(["convert", model, out, "--precision", "BF16"]) == 0
    assert load_encoder(out).weights["embeddings.word"].dtype == FORMATS["bfloat16"].dtype
    with pytest.raises(SystemExit):
        main(["convert", model, out, "--precision", "int3"])
    assert "int3" in capsys.readouterr().err
