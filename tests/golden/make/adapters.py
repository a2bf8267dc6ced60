"""Make the golden files of jina-embeddings-v3 with adapters: what transformers computes in float64, task by task.

    python -m tests.golden.make.adapters [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json and
model.safetensors in the dialect of the model's own code, and tasks.npz: ids_{i} [T] of some sequences, and
hidden_{task}_{i} [T, D] for each task, and for "none", which is the model without an adapter.

transformers does not have the adapters. Hooks on its modules add them, and do not merge them: a linear map gives
W x + b + alpha/r * B (A x), and a table gives row_i + alpha/r * A_i B. The script stops unless each mistake of
`MISTAKES` changes the vectors by at least 1e-2.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, JinaEmbeddingsV3Model

from .scaffold import VOCAB, Golden, float64_throughout, run, write_models

LENGTHS = (1, 2, 17, 33)
JOINED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
HUB = {"layers.": "encoder.layers.", "self_attn.o_proj": "mixer.out_proj", "post_attention_layernorm": "norm1",
       "post_mlp_layernorm": "norm2", "embeddings.LayerNorm": "emb_ln"}  # fmt: skip
"""Names of transformers, and those of the model's own code."""


class Adapted(Golden):
    """A golden model with adapters."""

    tasks = property(lambda self: self.own_config["lora_adaptations"])
    rank = property(lambda self: self.own_config["lora_rank"])
    scale = property(lambda self: self.own_config["lora_alpha"] / self.rank)


MODELS = tuple(Adapted(name, "JinaEmbeddingsV3Model", dtype) for name, dtype in (
    ("jina_v3_tasks", torch.bfloat16), ("jina_v3_two", torch.float32), ("jina_v3_one", torch.float16)))

MISTAKES: dict[str, Callable[[np.ndarray, np.ndarray, int, int], tuple[np.ndarray, np.ndarray, int]]] = {
    "no adapter": lambda a, b, task, n: (0 * a, b, task),
    "the next task": lambda a, b, task, n: (a, b, (task + 1) % n),
    "twice the scale": lambda a, b, task, n: (2 * a, b, task),
}  # fmt: skip


def save_model(golden: Adapted) -> None:
    """Write a model of random numbers in the dialect of its own code, with adapters of every map and table."""
    torch.manual_seed(0)
    model = JinaEmbeddingsV3Model(golden.config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith(("norm.weight", "LayerNorm.weight")) else 0.0, 0.2)
    model.to(golden.stored).save_pretrained(golden.folder)  # the names are already those of the model's own code
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(golden.folder / "model.safetensors").items():
        weight = name.removesuffix(".weight")
        if tensor.ndim != 2:
            stored[f"roberta.{name}"] = tensor
            continue
        table, (rows, columns), n, r = "embeddings" in name, tensor.shape, len(golden.tasks), golden.rank
        a = torch.randn(n, *((rows, r) if table else (r, columns))) * 0.4
        b = torch.randn(n, *((r, columns) if table else (rows, r))) * 0.4
        stored[f"roberta.{weight}.parametrizations.weight.original"] = tensor
        stored[f"roberta.{weight}.parametrizations.weight.0.lora_A"] = a.to(golden.stored)
        stored[f"roberta.{weight}.parametrizations.weight.0.lora_B"] = b.to(golden.stored)
    save_file(stored, golden.folder / "model.safetensors", {"format": "pt"})


def save_tasks(golden: Adapted) -> None:
    """Write tasks.npz beside a model, from the weights as they are stored."""
    stored = {name.removeprefix("roberta."): tensor.double()
              for name, tensor in load_file(golden.folder / "model.safetensors").items()}  # fmt: skip
    adapters = {name.partition(".parametrizations")[0] for name in stored if "lora_A" in name}
    plain = {name.replace(".parametrizations.weight.original", ".weight"): tensor
             for name, tensor in stored.items() if "lora_" not in name}  # fmt: skip
    with float64_throughout(JinaEmbeddingsV3Model):
        config = golden.config
        model = AutoModel.from_config(config, attn_implementation="eager").double().eval()
        state = {new: tensor for name, tensor in plain.items() for new, tensor in in_transformers(name, tensor)}
        missing, unexpected = model.load_state_dict(state, strict=False)
        if unexpected or any(not name.startswith("pooler.") for name in missing):
            raise SystemExit(f"{golden.name}: {missing} {unexpected}")
        rng = np.random.default_rng(0)
        arrays = {}
        for i, length in enumerate(LENGTHS):
            ids = arrays[f"ids_{i}"] = rng.integers(4, VOCAB, length).astype(np.uint8)
            arrays[f"hidden_none_{i}"] = run(model, ids.astype(int))
            for number, task in enumerate(golden.tasks):
                with added(model, stored, adapters, golden, number):
                    hidden = arrays[f"hidden_{task}_{i}"] = run(model, ids.astype(int))
                if length < 17:
                    continue
                for mistake, change in MISTAKES.items():
                    if mistake == "the next task" and len(golden.tasks) == 1:
                        continue
                    with added(model, stored, adapters, golden, number, change):
                        moved = np.abs(run(model, ids.astype(int)) - hidden).max()
                    print(f"{golden.name}, {task}, {mistake}: changes the result by {moved:.3f}")
                    if not moved >= 1e-2:
                        raise SystemExit("this mistake would not show")
    np.savez_compressed(golden.folder / "tasks.npz", **{name: array.astype(np.float32) if "hidden" in name else array
                                                 for name, array in arrays.items()})  # fmt: skip


def in_transformers(name: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of transformers, by their names, that a tensor of the model's own code holds."""
    for new, own in HUB.items():
        name = name.replace(own, new)
    if "mixer.Wqkv" not in name:
        yield name, tensor
        return
    for joined, part in zip(JOINED, tensor.chunk(3), strict=True):
        yield name.replace("mixer.Wqkv", joined), part


@contextmanager
def added(model: torch.nn.Module, stored: dict[str, torch.Tensor], adapters: set[str], golden: Adapted, task: int,
          change: Any = None) -> Iterator[None]:  # fmt: skip
    """Add the adapter of a task to the results of all maps and tables of a model."""
    hooks = []
    for own in adapters:
        a, b = (stored[f"{own}.parametrizations.weight.0.lora_{part}"] for part in "AB")
        number = task
        if change is not None:
            a, b, number = change(a, b, task, len(golden.tasks))
        a, b, scale = a[number], b[number], golden.scale
        if "embeddings" in own:
            hooks.append(model.get_submodule(own).register_forward_hook(
                lambda module, given, out, a=a, b=b, scale=scale: out + scale * (a[given[0]] @ b)))
            continue
        for (name, part) in in_transformers(own, b):
            hooks.append(model.get_submodule(name).register_forward_hook(
                lambda module, given, out, a=a, b=part, scale=scale: out + scale * ((given[0] @ a.T) @ b.T)))
    yield
    for hook in hooks:
        hook.remove()


if __name__ == "__main__":
    write_models(MODELS, save_tasks, save_model)
