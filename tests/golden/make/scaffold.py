"""What the writers of golden encoders share: random models, their vectors in float64, and mistakes that must show.

The config.json of a golden folder is written by hand, or by transformers once, and is what its model is made from: a
writer lists its models as `Golden`, with what config.json cannot say, and calls `write_models`. A folder gets
model.safetensors and expected.npz, which holds, for sequence i of the lengths, ids_{i} [T], rows_{i} (some of 0..T-1)
and hidden_{i} [rows, D] in float32. A model with several token types has types_{i} [T], too.

transformers computes some steps in float32 whatever the model's dtype. `float64_throughout` replaces this float32 by
float64 while transformers' own code runs. A writer stops unless each mistake of `wrong_weights` and `wrong_settings`
changes the stored rows of the sequence of 129 tokens by at least `LEAST`.
"""

import copy
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel

from tests.tools.paths import ENCODERS

from .quiet import one_quiet_thread

VOCAB = 120
"""The number of words of every golden model."""
LENGTHS = (1, 2, 63, 64, 65, 66, 129, 300)
CHECKED = 129
"""The length of the sequence in which each mistake must show."""
LEAST = 1e-2
NORMS = ("norm.weight", "norm1.weight", "norm2.weight", "layernorm_before.weight", "layernorm_after.weight", "lambda1")
"""How the names of gains, which lie around 1, end in small letters."""
TIED = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "lm_head.decoder.weight",
        "lm_head.decoder.bias", "decoder.weight"}  # fmt: skip
"""Tensors that checkpoints on the hub do not store, because they are those of the word table."""
NO_CHANGE = re.compile(r"^head\.|pooler\.|contact_head|(^|[._])(k|key)(_proj|_lin)?\.bias$|^encoder\.LayerNorm\.bias$")
"""Tensors that do not change vectors: a bias of all keys, or of all distances, moves all scores of a query alike."""
TABLE = re.compile(r"embeddings\.weight$|embedding\.weight$|embed_tokens\.weight$|relative_attention_bias\.weight$")
"""Tables, of which the model reads some rows."""


@dataclass(frozen=True)
class Golden:
    """One golden model: its folder in tests/golden/encoders, and what the config.json there does not say."""

    name: str
    kind: str = ""
    """The class of transformers, or of a model that transformers does not have, where it is not the architecture."""
    dtype: torch.dtype | None = None
    """The numbers of its file, where config.json says others."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the class's config for a config.json that transformers cannot read."""
    new_names: bool = False
    """Whether the tensors have the names of transformers 5 rather than those of the checkpoints on the hub."""
    gain: float = 1.0
    """The mean of the weights of norms."""
    spread: dict[str, float] = field(default_factory=dict)
    """The deviation of weights by a part of their names, where it is not 0.2."""
    wrong: tuple[dict[str, Any], ...] = ()
    """Mistakes in the config besides those of `OTHERS`."""

    @property
    def folder(self) -> Path:
        return ENCODERS / self.name

    @cached_property
    def own_config(self) -> dict[str, Any]:
        """What config.json says."""
        values: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        return values

    @property
    def type(self) -> Any:
        return getattr(transformers, self.kind or self.own_config["architectures"][0])

    @property
    def config(self) -> Any:
        """The config of transformers."""
        # Parts of a model would begin in the dtype; the model_type of remote code gives tensors another model's names.
        own = {key: value for key, value in self.own_config.items() if key not in ("dtype", "model_type")}
        return self.type.config_class(**(self.options or own))

    @property
    def stored(self) -> torch.dtype:
        """The numbers of its file."""
        return self.dtype or getattr(torch, self.own_config.get("dtype") or self.own_config["torch_dtype"])


Forward = Callable[..., np.ndarray]
"""Takes the ids [T], the token types [T] or None and the mask [T] or None, and returns vectors: float64 [T, D]."""


def save_model(golden: Golden, model: Any = None) -> None:
    """Write a model of random numbers that are large enough for a mistake to show."""
    if model is None:
        model = golden.type(golden.config)
        torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = golden.gain if name.lower().endswith(NORMS) else 0.0
            if not parameter.requires_grad:
                print(f"{golden.name}: {name}, which transformers does not train, gets random numbers")
            parameter.normal_(mean, next((x for part, x in golden.spread.items() if part in name), 0.2))
    model.to(golden.stored).save_pretrained(golden.folder)
    (golden.folder / "generation_config.json").unlink(missing_ok=True)
    if golden.new_names:
        tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in TIED}
        save_file(tensors, golden.folder / "model.safetensors", {"format": "pt"})


def open_model(folder: Path, kind: Any = AutoModel, config: Any = None) -> Any:
    """Return a model in float64 from the weights as they are stored, which must be all that it needs."""
    model, loading = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                          config=config, output_loading_info=True)  # fmt: skip
    missing = [name for name in loading["missing_keys"] if not name.startswith(("pooler.", "encoder.embed_tokens"))]
    if missing or loading["mismatched_keys"]:
        raise SystemExit(f"{folder}: transformers does not load the model as a whole: {loading}")
    return model.eval().double()


def run(model: Callable[..., Any], ids: np.ndarray, types: np.ndarray | None = None, mask: np.ndarray | None = None, *,
        bias: torch.Tensor | None = None, **given: torch.Tensor) -> np.ndarray:  # fmt: skip
    """Return the vectors of a sequence; bias [1, H or 1, T, T] is added to the scores in place of the model's mask."""
    if types is not None:
        given["token_type_ids"] = torch.from_numpy(types)[None]
    if mask is not None:
        given["attention_mask"] = torch.from_numpy(mask)[None].long()
    if bias is not None:
        given["attention_mask"] = bias[..., : len(ids), : len(ids)]
    with torch.inference_mode():
        hidden = model(torch.from_numpy(ids)[None], **given).last_hidden_state[0]
    if hidden.dtype != torch.float64:
        raise SystemExit(f"transformers computed in {hidden.dtype}")
    return hidden.numpy()


class Float64Torch:
    """The module torch, with float64 under the names of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


@contextmanager
def float64_throughout(kind: type, *, tensors: bool = True, angles: bool = True) -> Iterator[None]:
    """Let transformers' own code of a model compute in float64 where it asks for float32.

    tensors: in `Tensor.float`, too. angles: in the code of rotary positions that its models share, too.
    """
    with ExitStack() as stack:
        for module in [importlib.import_module(kind.__module__), *[transformers.modeling_rope_utils] * angles]:
            stack.enter_context(patch.object(module, "torch", Float64Torch()))
        if tensors:
            stack.enter_context(patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


def wrong_weights(tensors: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Make mistakes in the tensors of a model, one at a time, and yield the name of each while it is there.

    No bias; a table whose rows are moved by one; and two weights of a layer in each other's place, such as gate and up,
    queries and keys, or two norms.
    """
    alike: dict[str, list[str]] = {}
    for name in tensors:
        if not NO_CHANGE.search(name) and tensors[name].is_floating_point():
            alike.setdefault(re.sub(r"\.\d+\.", ".*.", name, count=1), []).append(name)
    mistakes = [(f"no {kind}", {name: torch.zeros_like(tensors[name]) for name in names})
                for kind, names in alike.items() if kind.endswith("bias")]  # fmt: skip
    mistakes += [(f"rows of {kind} moved", {name: tensors[name].roll(1, 0) for name in names})
                 for kind, names in alike.items() if TABLE.search(kind) and len(tensors[names[0]]) > 1]
    layers = [names for kind, names in alike.items() if "*" in kind and kind.endswith("weight")]
    for some, others in combinations(layers, 2):
        if len(some) == len(others) and tensors[some[0]].shape == tensors[others[0]].shape:
            pairs = zip(some + others, others + some, strict=True)
            mistakes.append((f"{some[0]} and {others[0]} swapped", {a: tensors[b].clone() for a, b in pairs}))
    for mistake, wrong in mistakes:
        kept = {name: tensors[name].clone() for name in wrong}
        for values in (wrong, kept):
            with torch.no_grad():
                for name, value in values.items():
                    tensors[name].copy_(value)
            if values is wrong:
                yield mistake


def _other_activation(value: str) -> list[str]:
    return ["gelu" if value == "relu" else "relu", "gelu" if value == "silu" else "silu"]


def _other_epsilon(value: float) -> list[float]:
    return [1e-5] * (value >= 1e-3)


def _other_angles(value: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    kinds = [(key, part) for key, part in value.items() if isinstance(part, dict)] or [(None, value)]
    for key, part in kinds:
        for name, change in (("rope_theta", 2.0), ("factor", 1.5)):
            if name in part and not (name == "factor" and part["rope_type"] == "dynamic"):     # of longer texts alone
                other = part | {name: part[name] * change}
                found.append(other if key is None else value | {key: other})
    if len(kinds) == 2:
        (one, first), (other, second) = kinds
        found.append({one: second, other: first})
    return found


def _other_kinds(value: list[str]) -> list[list[str]]:
    other = {kind: next((one for one in value if one != kind), kind) for kind in value}
    return [[other[kind] for kind in value], ["full_attention"] * len(value)] if len(other) > 1 else []


OTHERS: dict[str, Callable[[Any], list[Any]]] = {
    **dict.fromkeys(("hidden_act", "hidden_activation", "activation", "dense_act_fn"), _other_activation),
    **dict.fromkeys(("layer_norm_eps", "rms_norm_eps", "norm_eps", "layer_norm_epsilon"), _other_epsilon),
    "rope_parameters": _other_angles,
    "layer_types": _other_kinds,
    "sliding_window": lambda size: [size - 1, size + 1, 2 * size],
    "relative_attention_max_distance": lambda farthest: [farthest // 2],
    "query_pre_attn_scalar": lambda width: [2 * width],
    "pos_att_type": lambda terms: [[term] for term in terms if len(terms) > 1],
}  # fmt: skip
"""Settings of a config, and values that an implementation could take in place of each."""


def wrong_settings(golden: Golden, config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of a mistake and a config with it, for each setting of a config that `OTHERS` names."""
    inner = getattr(config, "text_config", config)
    mistakes = [*golden.wrong]
    for name, others in OTHERS.items():
        value = getattr(inner, name, None)
        mistakes += [{name: other} for other in ([] if value is None else others(copy.deepcopy(value)))]
    for mistake in mistakes:
        wrong = copy.deepcopy(config)
        for name, value in mistake.items():
            setattr(getattr(wrong, "text_config", wrong), name, value)
        yield str(mistake), wrong


def sparse(length: int) -> int:
    """Return each how many rows one row of a sequence is stored, for the tests of windows of about 64 tokens."""
    return 1 if length < 63 else 3 if length < 67 else 8


def make_expected(golden: Golden, run: Forward, tensors: Mapping[str, torch.Tensor], *,
                  wrong: Iterable[tuple[str, Forward]] = (), second: Forward | None = None,
                  lengths: tuple[int, ...] = LENGTHS, first_id: int = 4, step: Callable[[int], int] = sparse,
                  holes: tuple[int, ...] = (), least: float = LEAST) -> None:  # fmt: skip
    """Write expected.npz into a model's folder, and stop if two computations disagree or a mistake would not show.

    tensors: what `run` computes with. wrong: names and wrong computations. second: another computation than `run`, with
    which it must agree within 1e-10. step: of a length, each how many rows one row is stored. holes: columns where the
    mask is 0 of one more sequence, "holes", whose last column is one of them. least: by how much a mistake changes
    vectors.
    """
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    kinds = next((len(tensor) for name, tensor in tensors.items() if "token_type_embeddings" in name), 0)
    sequences: list[tuple[int | str, int]] = [*enumerate(lengths), *([("holes", holes[-1] + 1)] if holes else [])]
    for suffix, length in sequences:
        ids = rng.integers(first_id, VOCAB, length)
        types = rng.integers(0, kinds, length) if kinds > 1 else None
        mask = np.ones(length, bool)
        if suffix == "holes":
            mask[list(holes)] = False
            arrays["mask_holes"] = mask
        given = (ids, types, mask) if holes else (ids, types)
        rows = np.flatnonzero(mask)
        rows = np.union1d(rows[:: step(length)], rows[-1:])
        hidden = run(*given)
        if second is not None and not (error := np.abs(hidden - second(*given)).max()) < 1e-10:
            raise SystemExit(f"{golden.name}, {length} tokens: the two computations differ by {error:.1e}")
        if length == CHECKED:
            mistakes = [("no token types", lambda ids, types: run(ids))] * (types is not None)
            for name, compute in chain(mistakes, wrong, ((name, run) for name in wrong_weights(tensors))):
                change = np.abs(compute(*given) - hidden)[rows].max()
                print(f"    {name}: changes the result by {change:.4f}")
                if not change >= least:
                    raise SystemExit("this mistake would not show")
        arrays |= {f"ids_{suffix}": ids.astype(np.uint8), f"rows_{suffix}": rows.astype(np.uint16),
                   f"hidden_{suffix}": hidden[rows].astype(np.float32)}  # fmt: skip
        if types is not None:
            arrays[f"types_{suffix}"] = types.astype(np.uint8)
    np.savez_compressed(golden.folder / "expected.npz", **arrays)
    print(f"{golden.name}: vectors up to {max(np.abs(a).max() for n, a in arrays.items() if 'hidden' in n):.1f}")


def save_expected(golden: Golden, *, kind: Any = AutoModel, part: Callable[[Any], Any] | None = None,
                  given: dict[str, Any] | None = None, float64: dict[str, bool] | None = None, **options: Any) -> None:
    """Write the expected.npz of a model of transformers, from the weights as they are stored.

    kind: the class that reads the folder. part: what of the model gives the vectors. given: for `run`. float64: for
    `float64_throughout`. options: for `make_expected`.
    """
    def computed(config: Any = None) -> tuple[Any, Forward]:
        whole = open_model(golden.folder, kind, config)
        model = whole if part is None else part(whole)
        return model, partial(run, model, **(given or {}))

    with float64_throughout(golden.type, **(float64 or {})):
        model, forward = computed()
        config = (AutoConfig if kind is AutoModel else kind.config_class).from_pretrained(golden.folder)
        wrong = ((name, computed(other)[1]) for name, other in wrong_settings(golden, config))
        make_expected(golden, forward, model.state_dict(), wrong=wrong, **options)


def write_models(models: Iterable[Golden], expect: Callable[[Golden], None],
                 save: Callable[[Golden], None] = save_model) -> None:  # fmt: skip
    """Write golden models, or only those named on the command line; config.json stays as it is."""
    one_quiet_thread()
    for golden in models:
        if golden.name in (sys.argv[1:] or [golden.name]):
            config = golden.folder / "config.json"
            kept = config.read_bytes()
            save(golden)
            expect(golden)
            config.write_bytes(kept)
