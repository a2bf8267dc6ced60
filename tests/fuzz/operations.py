"""Call the operations of `engine.ops` with arrays of any size and layout, and with arguments of every wrong kind."""

import copy
import random
import warnings
from typing import Any

import numpy as np

from engine import ops
from engine.base.errors import EngineError
from tests.fuzz.mutate import EXTREME

_DTYPES = ("float64", "float16", "int64", "bool", ">f4", "complex64", "object", "uint8", "U4")
_PLAIN: tuple[Any, ...] = (None, True, False, 0, 1, 2, 3, 0.5, "gelu", "silu", "relu", "tanh", "rms_norm", (1, None),
                           (None, 0), [1, 2], np.int64(3), np.array(2), range(3))
_NUMBERS = (float("nan"), float("inf"), -1e30, 1e-40, 0.0)


NAMES = tuple(ops.__all__)


def call(rng: random.Random) -> tuple[int, bool]:
    """Call an operation; return its number in `NAMES`, and whether it gave an answer and no `EngineError`."""
    number = rng.randrange(len(NAMES))
    function = getattr(ops, NAMES[number])
    arguments = right_arguments(rng, function.__name__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, when it converts odd numbers
        _change(rng, arguments)
    if function not in (ops.alibi_slopes, ops.relative_position_bias):
        arguments |= {"backend": rng.choice(("cython", "cython", "reference", None, "x")),
                      "threads": rng.choice((1, 1, 2, 0))}
    with np.errstate(all="ignore"):
        try:
            function(**arguments)
        except EngineError:
            return number, False
    return number, True


def right_arguments(rng: random.Random, name: str) -> dict[str, Any]:
    """Return arguments of random sizes that the operation accepts, with all of its options or some of them."""
    B, H, T, S, d, e, D, F = (rng.choice((1, 1, 2, 3, 5, 16, 17, 33)) for _ in range(8))
    G = rng.choice([g for g in range(1, H + 1) if H % g == 0])
    x = _array(rng, B, T, D)
    maps = {"query": (H * d, D), "key": (G * d, D), "value": (G * d, D), "output": (D, H * d)}
    layer = {f"attention.{part}.weight": _array(rng, *shape) for part, shape in maps.items()}
    layer |= {f"attention.{part}.bias": _array(rng, shape[0]) for part, shape in maps.items()}
    match name:
        case "attention":
            shape = (B, H, T, S)
            found = {"q": _array(rng, B, H, T, d), "k": _array(rng, B, G, S, d), "v": _array(rng, B, G, S, e)}
            options = {"scale": 0.5, "causal": True, "window": (rng.choice((None, 0, 3)), rng.choice((None, 0, 2))),
                       "mask": _array(rng, *shape) > 0, "bias": _array(rng, *shape[rng.randrange(3):]), "softcap": 2.0,
                       "kv_lengths": [rng.randint(0, S) for _ in range(B)], "q_offset": rng.randint(-T, S)}
        case "multi_head_attention":
            found = {"x": x, "weights": {key.partition(".")[2]: array for key, array in layer.items()}, "num_heads": H,
                     "num_kv_heads": G}
            options = {"memory": _array(rng, B, S, D), "residual": x}
        case "encoder_layer":
            layer |= {f"{part}.norm.{kind}": _array(rng, D)
                      for part in ("attention", "ffn") for kind in ("weight", "bias")}
            layer |= {"ffn.up.weight": _array(rng, F, D), "ffn.down.weight": _array(rng, D, F)}
            found = {"x": x, "weights": layer, "num_heads": H, "num_kv_heads": G}
            options = {"pre_norm": True, "activation": "relu", "eps": 1e-3}
        case "linear":
            found = {"x": x, "weight": _array(rng, F, D)}
            options = {"bias": _array(rng, F), "activation": "gelu_tanh", "residual": _array(rng, B, T, F)}
        case "ffn":
            found = {"x": x, "up": _array(rng, F, D), "down": _array(rng, e, F)}
            options = {"up_bias": _array(rng, F), "down_bias": _array(rng, e), "gate": _array(rng, F, D),
                       "gate_bias": _array(rng, F), "activation": "silu", "residual": _array(rng, B, T, e)}
        case "rotary":
            found = {"x": _array(rng, B, H, T, 2 * d)}
            options = {"positions": range(T), "base": 100.0, "width": 2, "interleaved": True,
                       "cos": _array(rng, T, d), "sin": _array(rng, T, d)}
        case "alibi_slopes":
            return {"num_heads": H}
        case "relative_position_bias":
            # The names of the lengths are those of the function's own signature.
            found = {"table": _array(rng, 8, H), "T": T, "S": S}
            options = {"bidirectional": False, "max_distance": 20, "query_offset": 3}
        case _:
            found, options = {"x": x}, {}
            if name.endswith("norm"):
                options = {"weight": _array(rng, D), "eps": 0.1} | ({"bias": x[0, 0]} if name == "layer_norm" else {})
            options |= {"axis": 1} if name == "softmax" else {"approximate": "tanh"} if name == "gelu" else {}
    return found | {key: options[key] for key in options if rng.random() < 0.4}


def _change(rng: random.Random, arguments: dict[str, Any]) -> None:
    """Give up to three arguments, or arrays of a dictionary of weights, another value."""
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(list(arguments))
        if isinstance(arguments[name], dict):
            weights = arguments[name]
            inner = rng.choice(list(weights) or [name])
            weights[rng.choice((inner, inner, "x", 3))] = _changed(rng, weights.get(inner), arguments)
        else:
            arguments[name] = _changed(rng, arguments[name], arguments)


def _array(rng: random.Random, *shape: int) -> np.ndarray:
    array = np.random.default_rng(rng.randrange(2**32)).standard_normal(shape, np.float32)
    if array.size and rng.random() < 0.05:
        array.flat[rng.randrange(array.size)] = rng.choice(_NUMBERS)
    return array


def _changed(rng: random.Random, value: Any, others: dict[str, Any]) -> Any:
    """Return another value: an array with another dtype, layout or shape, or what is no array at all."""
    if not isinstance(value, np.ndarray) or rng.random() < 0.2:
        pool = rng.choice((EXTREME, _PLAIN, list(others.values())))
        return copy.deepcopy(rng.choice(pool))
    match rng.randrange(10):
        case 0:
            return value.astype(rng.choice(_DTYPES)) if value.dtype.kind in "fb" else value
        case 1:
            return value.T
        case 2:
            return value[..., ::-1] if value.ndim else value
        case 3:
            return np.repeat(value, 2, axis=-1)[..., ::2] if value.ndim else value
        case 4:
            return value[..., : rng.randrange(3)] if value.ndim else value
        case 5:
            return value[None] if rng.random() < 0.5 or not value.ndim else value[:0]
        case 6:
            return np.broadcast_to(value.reshape(-1)[0], value.shape) if value.size else value
        case 7:
            return value.tolist()
        case 8 if not value.dtype.hasobject:
            unaligned = np.frombuffer(b"x" + value.tobytes(), np.uint8)[1:]
            return unaligned.view(value.dtype).reshape(value.shape) if value.size else value
        case _:
            return rng.choice((np.ma.array(value), value.reshape(-1), value[()]))
