"""Measure models of images and of speech beside other libraries, in turns.

    python -m peers.media [--rows "ViT-B/16, 1 image" ...] [--precisions float32 int8] [--keep]

Run it from the folder asv_bench, in an environment with peers/requirements.txt and the engine. It writes
docs/peers/NAME-media.json, its page, and the page of all CPUs. The models have the
shapes of vit-base-patch16-224, clip-vit-base-patch32 (its images) and wav2vec2-base, and random weights; all libraries
get the same pixels, or the same samples, and give the vectors of all tokens. `rows.py` says how it is measured. ONNX
Runtime runs the exported graph with its own optimisations, and also the graph that its optimiser for transformers
fuses; in int8 it quantises the products of matrices, and OpenVINO what NNCF chooses, calibrated on 8 inputs.
"""

from __future__ import annotations

import argparse
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .__main__ import publish, unlike
from .machine import has_vnni, short_name
from .results import ROOT, Steal, machine, read, write
from .rows import Library, Row, tell

VIT, CLIP, WAV2VEC2 = "ViT-B/16", "CLIP ViT-B/32", "wav2vec2-base"
CLASSES = {VIT: "ViTModel", CLIP: "CLIPVisionModel", WAV2VEC2: "Wav2Vec2Model"}
ROWS = {f"{VIT}, 1 image": (VIT, 1), f"{VIT}, 16 images": (VIT, 16), f"{CLIP}, 16 images": (CLIP, 16),
        f"{WAV2VEC2}, 30 s": (WAV2VEC2, 1)}  # fmt: skip
"""The model of each row, and how many inputs it gets at once."""
CONFIGS = {VIT: {}, CLIP: {"projection_dim": 512}, WAV2VEC2: {"apply_spec_augment": False}}
"""What the configurations say beside the defaults of transformers, which are the base shapes."""
FUSIONS = {VIT: "vit", CLIP: "clip", WAV2VEC2: "bert"}
"""The models that ONNX Runtime's optimiser knows."""
SECONDS, RATE = 30, 16_000
CALIBRATIONS = 8


def argument(model: str) -> str:
    """Return what transformers calls the input of a model."""
    return "input_values" if model == WAV2VEC2 else "pixel_values"


def inputs(model: str, count: int, seed: int = 0, seconds: int = SECONDS) -> np.ndarray:
    """Return pixels float32 [count,3,224,224], or samples float32 [count,n], of mean 0 and variance 1."""
    shape = (seconds * RATE,) if model == WAV2VEC2 else (3, 224, 224)
    return np.random.default_rng(seed).standard_normal((count, *shape), np.float32)


class Media:
    """A library that gives the vectors of all tokens of a row's inputs."""

    precisions: ClassVar[tuple[str, ...]] = ("float32", "int8")

    def __init__(self, row: str, root: Path, precision: str, threads: int):
        self.model, count = ROWS[row]
        self.values, self.precision, self.threads = inputs(self.model, count), precision, threads
        self.folder = root / self.model.replace("/", "-").replace(" ", "-")

    def prepare(self) -> None:
        """Write the model as a folder of transformers, with random weights."""
        if (self.folder / "hf").exists():
            return
        import torch
        import transformers

        torch.manual_seed(0)
        kind = getattr(transformers, CLASSES[self.model])
        partial = self.folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        kind(kind.config_class(**CONFIGS[self.model])).save_pretrained(partial)
        partial.rename(self.folder / "hf")

    def load(self) -> None:
        """Load the library and its model."""

    def run(self) -> np.ndarray:
        """Return the vectors of the tokens, float32 [B,T,D]."""
        raise NotImplementedError

    def limit(self) -> float:
        """Return the operations a second that the engine's products reach on this machine."""
        from engine.backends.peak import measure_rate

        return measure_rate(self.threads, self.precision, repeats=1) * 1e9


class EngineMedia(Media):
    precisions = ("float32", "bfloat16", "int8")

    def load(self) -> None:
        """Load the folder."""
        from engine import Engine

        self.engine = Engine.load(self.folder / "hf", precision=self.precision, threads=self.threads)

    def run(self) -> np.ndarray:
        """Return the vectors of the tokens."""
        return self.engine.forward(**{argument(self.model): self.values})


class PyTorchMedia(Media):
    precisions = ("float32", "bfloat16")

    def load(self) -> None:
        """Load the folder, with the attention that transformers prefers."""
        import torch

        torch.set_num_threads(self.threads)
        self.torch, self.network = torch, vectors_of(self.folder, self.model, self.precision)
        self.given = torch.from_numpy(self.values).to(getattr(torch, self.precision))

    def run(self) -> np.ndarray:
        """Return the vectors of the tokens."""
        with self.torch.inference_mode():
            return self.network(self.given).float().numpy()


class Exported(Media):
    """A library that reads an ONNX file."""

    def prepare(self) -> None:
        """Write model.onnx, with attention in the form that graph runtimes recognise."""
        super().prepare()
        path = self.folder / "model.onnx"
        if path.exists():
            return
        import torch

        name, network = argument(self.model), vectors_of(self.folder, self.model, "float32", "eager")
        axes = {0: "B"} if self.model != WAV2VEC2 else {0: "B", 1: "n"}
        torch.onnx.export(network, (torch.from_numpy(inputs(self.model, 2)),), path.with_suffix(".partial"),
                          dynamo=False, input_names=[name], output_names=["vectors"], opset_version=17,
                          dynamic_axes={name: axes, "vectors": {0: "B", 1: "T"}})  # fmt: skip
        path.with_suffix(".partial").rename(path)


class OnnxMedia(Exported):
    source = "model.onnx"

    def prepare(self) -> None:
        """Write the file in int8, where it is wanted: 8 bits for weights by channel, and for products at run time."""
        super().prepare()
        if self.precision == "int8" and not self.path.exists():
            from onnx import TensorProto
            from onnxruntime.quantization import QuantType, quantize_dynamic

            quantize_dynamic(self.folder / self.source, self.path, per_channel=True, reduce_range=not has_vnni(),
                             weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm", "Attention"],
                             extra_options={"DefaultTensorType": TensorProto.FLOAT})  # fmt: skip

    @property
    def path(self) -> Path:
        return self.folder / (self.source if self.precision == "float32" else f"int8-{self.source}")

    def load(self) -> None:
        """Load the file."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        self.session = onnxruntime.InferenceSession(self.path, options, ["CPUExecutionProvider"])

    def run(self) -> np.ndarray:
        """Return the vectors of the tokens."""
        return self.session.run(None, {argument(self.model): self.values})[0]


class FusedOnnxMedia(OnnxMedia):
    source = "fused.onnx"

    def prepare(self) -> None:
        """Write the graph that the optimiser for transformers fuses."""
        if not (self.folder / self.source).exists():
            from onnxruntime.transformers.optimizer import optimize_model

            Exported.prepare(self)
            graph = optimize_model(str(self.folder / "model.onnx"), FUSIONS[self.model], 12, 768)
            graph.save_model_to_file(str(self.folder / self.source))
        super().prepare()


class OpenVinoMedia(Exported):
    precisions = ("float32", "bfloat16", "int8")

    def prepare(self) -> None:
        """Write the file in int8, where it is wanted."""
        super().prepare()
        if self.precision == "int8" and not (self.folder / "openvino-int8.bin").exists():
            import nncf
            import openvino

            samples = [{argument(self.model): inputs(self.model, 1, seed, seconds=2)}
                       for seed in range(1, 1 + CALIBRATIONS)]  # fmt: skip
            model = openvino.Core().read_model(self.folder / "model.onnx")
            model = nncf.quantize(model, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER,
                                  subset_size=len(samples))  # fmt: skip
            openvino.save_model(model, self.folder / "openvino-int8.xml", compress_to_fp16=False)

    def load(self) -> None:
        """Load the file, compiled for the shape of the row."""
        import openvino

        core = openvino.Core()
        options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": self.threads}
        if self.precision != "int8":
            options["INFERENCE_PRECISION_HINT"] = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16}[
                self.precision]  # fmt: skip
        model = core.read_model(self.folder / ("openvino-int8.xml" if self.precision == "int8" else "model.onnx"))
        model.reshape({argument(self.model): self.values.shape})
        self.request = core.compile_model(model, "CPU", options).create_infer_request()

    def run(self) -> np.ndarray:
        """Return the vectors of the tokens."""
        return self.request.infer({argument(self.model): self.values}, share_inputs=True, share_outputs=True)[0]


LIBRARIES: dict[str, type[Media]] = {
    "engine": EngineMedia, "ONNX Runtime": OnnxMedia, "ONNX Runtime, fused": FusedOnnxMedia,
    "OpenVINO": OpenVinoMedia, "PyTorch": PyTorchMedia,
}  # fmt: skip


def vectors_of(folder: Path, model: str, precision: str, attention: str | None = None) -> Any:
    """Return a module from inputs to the vectors of the tokens after the last norm: the model of a folder."""
    import torch
    import transformers

    kind = getattr(transformers, CLASSES[model])
    network = kind.from_pretrained(folder / "hf", attn_implementation=attention, dtype=getattr(torch, precision))

    class Vectors(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, values: Any) -> Any:
            tokens = self.network(values).last_hidden_state
            return self.network.post_layernorm(tokens) if model == CLIP else tokens

    return Vectors().eval()


def make(row: str, name: str, *arguments: Any) -> Library:
    """Return a library on a row."""
    return LIBRARIES[name](row, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--precisions", nargs="+", choices=EngineMedia.precisions, default=list(EngineMedia.precisions))
    parser.add_argument("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few repeats: the times mean nothing")
    parser.add_argument("--files", type=Path, default=Path("../build/peers/media"), help="folder for the models")
    parser.add_argument("--keep", action="store_true", help="add to the present numbers, of the same machine")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/peers", help="folder of the numbers and the pages")
    parser.add_argument("--name", default=short_name(), help="name of this CPU; by default %(default)s")
    a = parser.parse_args()
    root, steal, path = a.files.resolve(), Steal(), a.out / f"{a.name}-media.json"
    found: dict[str, Any] = {"tool": "media", "machine": machine(a.threads), "quick": a.quick, "rows": []}
    old = read(path) if a.keep else found
    if why := unlike(old["machine"], found["machine"]):
        parser.error(why)
    found["rows"] = [row for row in old["rows"] if row["row"] not in a.rows or row["precision"] not in a.precisions]
    for row in a.rows:
        for precision in a.precisions:
            names = [name for name in a.libraries if precision in LIBRARIES[name].precisions]
            with ExitStack() as stack:
                cells = Row(make, row, names, root, a.threads, (root, precision, a.threads), stack).measure(a.quick)
            found["rows"] += [{"row": row, "precision": precision, "library": name, **cell}
                              for name, cell in cells.items()]  # fmt: skip
            tell(f"{row}, {precision}", cells)
    found["machine"]["steal"] = steal.share()
    a.out.mkdir(parents=True, exist_ok=True)
    write(path, found)
    publish(a.out)


if __name__ == "__main__":
    main()
