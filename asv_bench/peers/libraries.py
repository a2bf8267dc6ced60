"""Set up each library as its documentation recommends for CPUs: from NumPy ids to float32 NumPy vectors of tokens.

A library is a class with `precisions`, `__init__(folder, precision, threads)`, which loads, and `forward(ids, mask)`,
int64 [B,T] to float32 [B,T,D]; `mask` is None for uniform shapes, in which no token is padding. An optional
`prepare(folder)` writes the files that `__init__` reads; it runs in a separate process, so that no converter is in
memory during the measurement. An optional `encode(texts)` is the library's own method from sentences to vectors; other
libraries use `encoder`.
"""

import os
import shutil

import numpy as np

from .llama_cpp import LlamaCpp
from .machine import has_avx512, has_vnni
from .work import BATCH, MAX_TOKENS, batches, mean_pool, sentences


class Engine:
    precisions = ("float32", "bfloat16", "int8")

    def __init__(self, folder, precision, threads):
        from engine import Engine

        self.engine = Engine.load(folder / "hf", precision=precision, threads=threads)

    def forward(self, ids, mask):
        return self.engine.forward(ids, mask)

    def encode(self, texts):
        return self.engine.encode(texts, normalize_embeddings=True)


class OnnxRuntime:
    """ONNX Runtime. float32: the graph fused by its optimiser. int8: that graph, dynamically quantised per channel.

    The optimiser has fusions for BERT. Graphs of other families stay as they were exported, because its other fusions
    make them slower; ONNX Runtime still runs its own optimisations when it loads them.
    """

    precisions = ("float32", "int8")

    @staticmethod
    def prepare(folder):
        from onnx import TensorProto
        from onnxruntime.quantization import QuantType, quantize_dynamic

        if (folder / "int8.onnx").exists():
            return
        config = export_onnx(folder)
        if config.model_type == "bert":
            fuse_bert(folder, config)
        else:
            shutil.copy(folder / "model.onnx", folder / "float32.onnx")
        # Without VNNI the sum of two 8-bit products may exceed 16 bits; its documentation recommends 7 bits for the
        # weights.
        unnamed = {"DefaultTensorType": TensorProto.FLOAT}  # type of the fused operators' results
        quantize_dynamic(folder / "float32.onnx", folder / "int8.onnx", per_channel=True, reduce_range=not has_vnni(),
                         weight_type=QuantType.QInt8, extra_options=unnamed)  # fmt: skip

    def __init__(self, folder, precision, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(folder / f"{precision}.onnx", options, ["CPUExecutionProvider"])
        self.types = {i.name: np.int32 if "int32" in i.type else np.int64 for i in self.session.get_inputs()}

    def forward(self, ids, mask):
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids) if mask is None else mask}
        return self.session.run(None, {name: values[name].astype(self.types[name]) for name in self.types})[0]


class OpenVINO:
    """OpenVINO. float32, bfloat16: its precision hint. int8: NNCF with SmoothQuant, calibrated on sentences."""

    precisions = ("float32", "bfloat16", "int8")

    @staticmethod
    def prepare(folder):
        import nncf
        import openvino

        if (folder / "openvino-int8.bin").exists():
            return
        export_onnx(folder)
        model = openvino.Core().read_model(folder / "model.onnx")
        openvino.save_model(model, folder / "openvino.xml", compress_to_fp16=False)
        samples = [{"input_ids": row, "attention_mask": np.ones_like(row)} for row in calibration(folder)]
        kind = nncf.ModelType.TRANSFORMER
        quantised = nncf.quantize(model, nncf.Dataset(samples), model_type=kind, subset_size=len(samples))
        openvino.save_model(quantised, folder / "openvino-int8.xml", compress_to_fp16=False)

    def __init__(self, folder, precision, threads):
        import openvino

        core = openvino.Core()
        options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
        if precision != "int8":
            hint = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16}[precision]
            if precision == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
                raise RuntimeError("OpenVINO does not compute in bfloat16 on this CPU")
            options["INFERENCE_PRECISION_HINT"] = hint
        file = "openvino-int8.xml" if precision == "int8" else "openvino.xml"
        self.request = core.compile_model(core.read_model(folder / file), "CPU", options).create_infer_request()

    def forward(self, ids, mask):
        values = {"input_ids": ids, "attention_mask": np.ones_like(ids) if mask is None else mask}
        return self.request.infer(values, share_inputs=True, share_outputs=True)[0]


class CTranslate2:
    precisions = ("float32", "int8")

    @staticmethod
    def prepare(folder):
        from ctranslate2.converters import TransformersConverter

        if not (folder / "ctranslate2" / "model.bin").exists():
            TransformersConverter(str(folder / "hf")).convert(str(folder / "ctranslate2"), force=True)

    def __init__(self, folder, precision, threads):
        import ctranslate2

        self.to_device = ctranslate2.StorageView.from_array
        self.encoder = ctranslate2.Encoder(str(folder / "ctranslate2"), compute_type=precision, intra_threads=threads)

    def forward(self, ids, mask):
        lengths = np.full(len(ids), ids.shape[1], np.int32) if mask is None else mask.sum(1).astype(np.int32)
        output = self.encoder.forward_batch(self.to_device(ids.astype(np.int32)), self.to_device(lengths))
        return np.array(output.last_hidden_state)


class PyTorch:
    precisions = ("float32", "bfloat16")

    def __init__(self, folder, precision, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = open_model(folder, getattr(torch, precision))

    def forward(self, ids, mask):
        with self.torch.inference_mode():
            masks = {} if mask is None else {"attention_mask": self.torch.from_numpy(mask)}
            return self.model(input_ids=self.torch.from_numpy(ids), **masks).last_hidden_state.float().numpy()


class PyTorchCompiled(PyTorch):
    """PyTorch with frozen weights (TORCHINDUCTOR_FREEZING=1), compiled for each uniform shape and once for text."""

    def __init__(self, folder, precision, threads):
        super().__init__(folder, precision, threads)
        self.uniform = self.torch.compile(self.model, dynamic=False)
        self.text = self.torch.compile(self.model, dynamic=True)

    def forward(self, ids, mask):
        self.model = self.uniform if mask is None else self.text
        return super().forward(ids, mask)


class ZenTorch(PyTorch):
    """AMD's plugin as a backend of torch.compile, with frozen weights."""

    def __init__(self, folder, precision, threads):
        if not has_avx512():
            raise RuntimeError("zentorch optimises only for CPUs with AVX-512")
        super().__init__(folder, precision, threads)
        import zentorch  # noqa: F401  # the import registers the backend

        self.model = self.torch.compile(self.model, backend="zentorch")


class SentenceTransformers:
    precisions = ("float32",)
    text_only = True

    def __init__(self, folder, precision, threads):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(threads)
        self.model = SentenceTransformer(str(folder / "hf"), device="cpu")

    def encode(self, texts):
        return self.model.encode(texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)


LIBRARIES = {
    "engine": Engine,
    "ONNX Runtime": OnnxRuntime,
    "OpenVINO": OpenVINO,
    "CTranslate2": CTranslate2,
    "PyTorch": PyTorch,
    "PyTorch, compiled": PyTorchCompiled,
    "zentorch": ZenTorch,
    "sentence-transformers": SentenceTransformers,
    "llama.cpp": LlamaCpp,
}


def open_model(folder, dtype, attention=None):
    """Return the transformers model of a folder without its pooler, by default with the attention that it prefers.

    transformers prefers scaled_dot_product_attention wherever the model's class has it.
    """
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder / "hf", attn_implementation=attention, dtype=dtype).eval()
    if hasattr(model, "pooler"):
        model.pooler = None
    return model


def export_onnx(folder):
    """Write model.onnx, with attention in the form that ONNX Runtime and OpenVINO recognise; return the config."""
    import torch

    model = open_model(folder, torch.float32, "eager")
    path = folder / "model.onnx"
    if not path.exists():
        names, axes = ["input_ids", "attention_mask"], {0: "B", 1: "T"}
        partial = path.with_suffix(".partial")
        torch.onnx.export(last_hidden_state(model), (torch.ones(2, 16, dtype=torch.long),) * 2, partial, dynamo=False,
                          input_names=names, output_names=["vectors"], opset_version=17,
                          dynamic_axes=dict.fromkeys([*names, "vectors"], axes))  # fmt: skip
        os.replace(partial, path)
    return model.config


def fuse_bert(folder, config):
    """Write float32.onnx, the exported graph with the fusions of ONNX Runtime's optimiser for BERT."""
    from onnxruntime.transformers.optimizer import optimize_model

    graph = optimize_model(str(folder / "model.onnx"), "bert", config.num_attention_heads, config.hidden_size)
    fused = graph.get_fused_operator_statistics()
    if fused["Attention"] != config.num_hidden_layers:
        raise RuntimeError(f"the optimiser fused {fused['Attention']} of {config.num_hidden_layers} attentions")
    graph.save_model_to_file(str(folder / "float32.onnx"))


def last_hidden_state(model):
    """Return a module with two arguments and one result, as the exporter requires."""
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    return Module()


def tokenizer(folder):
    """Return the model's tokenizer, which truncates at `MAX_TOKENS` and does not pad."""
    from tokenizers import Tokenizer

    result = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json"))
    result.enable_truncation(MAX_TOKENS)
    result.no_padding()
    return result


def calibration(folder):
    """Return the ids int64 [1,T] of 64 sentences, or of 8 random sequences where a random model has no tokenizer."""
    if (folder / "hf" / "tokenizer.json").exists():
        return [np.array([encoding.ids]) for encoding in tokenizer(folder).encode_batch(sentences()[::8])]
    return list(np.random.default_rng(0).integers(1000, 30000, (8, 1, 128)))


def encoder(library, folder):
    """Return the library's own `encode`, or a function that uses a tokenizer, sorted batches and mean pooling."""
    if hasattr(library, "encode"):
        return library.encode
    tokenize = tokenizer(folder)

    def encode(texts):
        vectors = {}
        for members, ids, mask in batches(texts, tokenize):
            vectors |= zip(members, mean_pool(library.forward(ids, mask), mask), strict=True)
        return np.stack([vectors[i] for i in range(len(texts))])

    return encode
