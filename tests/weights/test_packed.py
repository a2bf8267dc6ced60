"""Packed files: the same bits as the model that was packed, and a refusal wherever the panels do not fit."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from engine import Engine
from engine.backends.cpu.packer import layout_of, pack_transformer
from engine.backends.cython_cpu import isa
from engine.base.errors import UnsupportedError, WeightsError
from engine.cli.main import main
from engine.files.npz import read_npz, write_npz
from engine.model.precision import ROUNDED, WAYS, stored_format
from engine.weights.packed import PACKED_PREFIX, PackedFormat
from engine.weights.quantize import is_bounded

from ..tools.encoders import convert_encoder, engine_of, load_encoder, save_encoder
from ..tools.golden_models import GOLDEN
from ..tools.same_bits import digest
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

SEQUENCES = [[3, 4, 5], [7], list(range(1, 14)), [2] * 9]
MODELS = {
    "post": {},
    "heads": {"hidden_size": 40, "num_heads": 4, "head_width": 10, "num_kv_heads": 2, "ffn_size": 50},
    "gated": {"ffn_size": 37, "norm": "rms", "norm_place": "pre", "gated": True, "activation": "silu", "biases": ()},
    "shared": {"num_layers": 3, "weight_sets": (0, 0, 1)},
}


def packed(model, precision, portable=False):
    return pack_transformer(model, isa.chosen().product(precision, portable=portable))


@pytest.fixture(params=MODELS)
def model(request):
    return random_model(tiny_text(), **MODELS[request.param])


@pytest.mark.parametrize("precision", ROUNDED)
def test_the_same_bits(model, precision, tmp_path):
    expected = engine_of(model, precision=precision, threads=2).forward(SEQUENCES)
    save_encoder(packed(model, precision), tmp_path / "packed.npz")
    for memory in ("map", "copy"):
        engine = Engine.load(tmp_path / "packed.npz", threads=2, memory=memory)
        assert engine.precision == precision
        for row, right in zip(engine.forward(SEQUENCES), expected, strict=True):
            assert row.tobytes() == right.tobytes()
    assert np.array_equal(pickle.loads(pickle.dumps(engine)).encode(["a cat"]), engine.encode(["a cat"]))


@pytest.mark.parametrize("precision", ROUNDED)
def test_panels_stay_in_the_file(precision, tmp_path):
    save_encoder(packed(random_model(), precision), tmp_path / "packed.npz")
    model = load_encoder(tmp_path / "packed.npz")
    panels = {name for name in model.weights if name.startswith(PACKED_PREFIX)}
    assert panels
    assert not {f"{name.removeprefix(PACKED_PREFIX)}" for name in panels} & model.weights.keys()
    assert not any(model.weights[name].flags.owndata or model.weights[name].flags.writeable for name in panels)
    save_encoder(model, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "packed.npz").read_bytes()


@pytest.mark.parametrize("precision", WAYS)
def test_panels_serve_other_ways_to_multiply_them(precision, monkeypatch):
    name = next((name for name in isa.available() if isa.load(name).product(precision).exists), None)
    if name is None:
        pytest.skip("no kernels here have it")
    monkeypatch.setenv("ENGINE_ISA", name)
    model = random_model(tiny_text(), **MODELS["heads"])
    expected = engine_of(model, precision=precision).forward(SEQUENCES)
    engine = engine_of(packed(model, stored_format(precision)), precision=precision)
    assert engine.precision == precision
    assert all(np.array_equal(row, right) for row, right in zip(engine.forward(SEQUENCES), expected, strict=True))
    with pytest.raises(UnsupportedError, match=f"packed for precision 'bfloat16', not '{precision}'"):
        engine_of(packed(model, "bfloat16"), precision=precision)


def test_other_layouts_are_refused(tmp_path):
    model = packed(random_model(), "float32")
    layout = model.layout
    for change in ({"columns": layout.columns * 2}, {"lanes": layout.lanes * 2}, {"depth_step": 3}, {"version": 99},
                   {"bounded": True}):  # fmt: skip
        other = replace(model, layout=replace(layout, **change))
        with pytest.raises(UnsupportedError, match="engine convert --packed"):
            engine_of(other)
    with pytest.raises(UnsupportedError, match="reads no packed file"):
        engine_of(model, backend="reference")
    with pytest.raises(UnsupportedError, match="packed for precision 'float32', not 'int8'"):
        engine_of(model, precision="int8")
    with pytest.raises(UnsupportedError, match="packed already"):
        packed(model, "float32")
    with pytest.raises(UnsupportedError, match="convert the original"):
        convert_encoder(model, "bfloat16")


@pytest.mark.parametrize("name", isa.available())
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_portable_bits(name, precision, tmp_path, monkeypatch):
    """A file for other arithmetic is read if it holds the same numbers in the same places, and refused if not."""
    if not isa.load(name).fused:
        pytest.skip(f"{name} has no fused multiply-adds")
    monkeypatch.setenv("ENGINE_ISA", name)
    model = random_model(tiny_text(), **MODELS["heads"])
    expected = engine_of(model, precision=precision, bits="portable").forward(SEQUENCES)
    for portable in (True, False):
        save_encoder(packed(model, precision, portable), tmp_path / "packed.npz")
        layouts = [layout_of(isa.chosen().product(precision, portable=own)) for own in (True, portable)]
        if layouts[0] == layouts[1]:
            engine = Engine.load(tmp_path / "packed.npz", bits="portable")
            assert digest(engine.forward(SEQUENCES)) == digest(expected)
        else:
            with pytest.raises(UnsupportedError, match=r"for portable bits.* engine convert --packed --bits portable"):
                Engine.load(tmp_path / "packed.npz", bits="portable")


def test_int8_weights_out_of_the_bound_are_rounded_again(monkeypatch):
    """The file is the same on every CPU, and so are the weights that portable bits make of it."""
    model = convert_encoder(random_model(tiny_text(), **MODELS["post"]), "int8")
    assert not all(is_bounded(array) for array in model.weights.values() if array.dtype == np.int8)
    found = set()
    for name in isa.available():
        if isa.load(name).fused:
            monkeypatch.setenv("ENGINE_ISA", name)
            found.add(digest(engine_of(model, bits="portable").forward(SEQUENCES)))
    assert len(found) == 1


def test_another_instruction_set(monkeypatch):
    model = packed(random_model(), "float32")
    monkeypatch.setenv("ENGINE_ISA", "baseline")
    if layout_of(isa.chosen().product("float32")) == model.layout:
        pytest.skip("the kernels of this CPU have the layout of the baseline kernels")
    with pytest.raises(UnsupportedError, match=f"packed as float32 .* vectors of {model.layout.lanes}"):
        engine_of(model, backend="cython")


def test_damaged_files(tmp_path):
    model = packed(random_model(), "int8")
    name = next(name for name, array in model.weights.items()
                if name.startswith(PACKED_PREFIX) and array.dtype == np.uint8)
    for change, message in (
        ({name: model.weights[name][:-1]}, "expected .* damaged"),
        ({f"{name}_scale": model.weights[f"{name}_scale"][1:]}, "expected .* damaged"),
        ({f"{name}_sums": model.weights[f"{name}_sums"][1:]}, "expected .* damaged"),
        ({name: model.weights[name].view(np.int8)}, "has dtype int8, expected uint8"),
        ({name: model.weights[name].reshape(1, -1)}, "shape"),
        ({"packed.more": np.zeros(3, np.uint8)}, "unexpected packed.more"),
    ):
        with pytest.raises(WeightsError, match=message):
            engine_of(replace(model, weights=model.weights | change))
    with pytest.raises(WeightsError, match=f"missing {name}"):
        engine_of(replace(model, weights={key: array for key, array in model.weights.items() if key != name}))
    for values in (None, {}, model.layout.to_json() | {"precision": "int3"}, model.layout.to_json() | {"lanes": "8"}):
        with pytest.raises(WeightsError, match="must describe a layout"):
            PackedFormat.from_json(values)


def test_relative_positions_are_refused():
    with pytest.raises(UnsupportedError, match="without --packed"):
        packed(load_encoder(GOLDEN / "deberta_v3"), "float32")


def test_the_command(tmp_path, capsys):
    source, out = tmp_path / "model.npz", tmp_path / "packed.npz"
    save_encoder(random_model(tiny_text()), source)
    assert main(["convert", str(source), str(out), "--packed", "--precision", "int8"]) == 0
    assert "int8 in panels of" in capsys.readouterr().out
    expected = Engine.load(source, precision="int8")
    if expected.backend == "cython":
        int8 = engine_of(convert_encoder(load_encoder(source), "int8"))
        assert Engine.load(out).encode(["a cat"]).tobytes() == int8.encode(["a cat"]).tobytes()
    assert main(["convert", str(source), str(out), "--packed", "--precision", "float16"]) == 1
    assert "--packed needs a precision that kernels compute in" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ROUNDED)
def test_numbers_beside_the_panels_are_checked(precision, tmp_path):
    save_encoder(packed(random_model(), precision), tmp_path / "packed.npz")
    arrays = read_npz(tmp_path / "packed.npz")
    small = {name: array for name, array in arrays.items() if array.dtype == np.float32}
    assert any(name.endswith("norm.weight") for name in small)
    assert any(name.startswith(PACKED_PREFIX) for name in small) == (precision in ("int8", "int4"))
    for name, array in small.items():
        wrong = array.copy()
        wrong.flat[-1] = np.nan
        write_npz(tmp_path / "wrong.npz", arrays | {name: wrong})
        with pytest.raises(WeightsError, match="holds NaN or infinity"):
            engine_of(load_encoder(tmp_path / "wrong.npz"))
