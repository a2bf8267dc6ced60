"""Measure heads beside other libraries: sparse vectors, MaxSim, cross-encoders and tags, in float32 and in turns.

    python -m peers.heads --minilm FOLDER_OF_ALL_MINILM_L6_V2 [--splade FOLDER_OF_SPLADE_TINY] [--rows maxsim ...]

Run it from the folder asv_bench, in an environment with peers/requirements.txt, fastembed and the engine. Each library
runs in a process of its own, which stays alive between its turns, with the settings that its documentation recommends
for CPUs. Models have random weights, but for splade-tiny; their tokenizer is MiniLM's. The results of all libraries of
a row are compared with those of the first one. `--out` writes the numbers as JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from .results import Steal, machine, write
from .rows import Row, tell
from .work import SENTENCES, sentences
from .worker import Failed

QUERY = "Which function returns the paths of the files in a folder?"
TOKENS, DOCUMENTS, DOCUMENT_TOKENS, WIDTH = 32, 1000, 128, 128
"""MaxSim: the vectors of the query, the documents, the vectors of each, and the numbers of a vector."""


def documents() -> list[str]:
    """Return 100 texts of about 20 to 200 tokens."""
    words = " ".join(sentences()).split()
    sizes = np.linspace(15, 150, 100).astype(int)
    starts = np.random.default_rng(0).integers(0, len(words) - 200, 100)
    return [" ".join(words[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def vectors() -> tuple[np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    query, *found = (rng.standard_normal((n, WIDTH), np.float32) for n in (TOKENS, *[DOCUMENT_TOKENS] * DOCUMENTS))
    return query, found


def write_model(folder: Path, minilm: Path, kind: str, **config: Any) -> None:
    """Write a model of transformers with random weights; kind: the name of its class."""
    if (folder / "config.json").exists():
        return
    import torch
    import transformers

    torch.manual_seed(0)
    made = getattr(transformers, kind)
    model = made(made.config_class(**config)).eval()
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(minilm, model_max_length=512).save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    values = json.loads(settings.read_text(encoding="utf-8"))
    values.pop("max_length", None)      # MiniLM's own 128, to which fastembed would truncate
    settings.write_text(json.dumps(values), encoding="utf-8")


MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}


class Library:
    """A library on one row: `prepare` writes files in a process of its own, `load` loads, and `run` is measured."""

    def __init__(self, folder: Path, minilm: Path, splade: Path | None, count: int, threads: int):
        """count: how many sentences to read."""
        self.folder, self.minilm, self.splade, self.count, self.threads = folder, minilm, splade, count, threads

    def sentences(self) -> list[str]:
        """Return the sentences to read, drawn evenly from all."""
        texts = sentences()
        return [texts[i * len(texts) // self.count] for i in range(self.count)]

    def prepare(self) -> None:
        """Write what `load` reads."""

    def load(self) -> None:
        """Load the library and its model."""

    def run(self) -> np.ndarray:
        """Return the results, which are compared with those of other libraries."""
        raise NotImplementedError

    def torch(self) -> Any:
        import torch

        torch.set_num_threads(self.threads)
        return torch


class SparseTiny(Library):
    @property
    def model(self) -> Path:
        if self.splade is None:
            raise Failed("no splade-tiny: give its folder by --splade")
        return self.splade


class SparseDistil(Library):
    @property
    def model(self) -> Path:
        return self.folder / "distilbert"

    def prepare(self) -> None:
        """Write a SPLADE model of DistilBERT's shape as sentence-transformers saves it."""
        if (self.model / "modules.json").exists():
            return
        from sentence_transformers import SparseEncoder
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        write_model(self.folder / "distilbert-mlm", self.minilm, "DistilBertForMaskedLM")
        module = Transformer(str(self.folder / "distilbert-mlm"), transformer_task="fill-mask")
        SparseEncoder(modules=[module, SpladePooling("max")], device="cpu").save_pretrained(str(self.model))


def with_engine_sparse(base: type[Any]) -> type[Any]:
    class Engine(base):
        def load(self) -> None:
            from engine import Engine

            self.engine, self.texts = Engine.load(self.model, threads=self.threads), self.sentences()

        def run(self) -> np.ndarray:
            return self.engine.encode_sparse(self.texts).to_dense()[:, ::97]

    return Engine


def with_sparse_encoder(base: type[Any]) -> type[Any]:
    class Encoder(base):
        def load(self) -> None:
            self.arange = self.torch().arange
            from sentence_transformers import SparseEncoder

            self.encoder, self.texts = SparseEncoder(str(self.model), device="cpu"), self.sentences()

        def run(self) -> np.ndarray:
            found = self.encoder.encode(self.texts, batch_size=32)
            return found.index_select(1, self.arange(0, found.shape[1], 97)).to_dense().numpy()

    return Encoder


class EngineMaxSim(Library):
    def load(self) -> None:
        from engine.backends import get_backend

        self.ops, (self.query, self.documents) = get_backend("auto").ops(self.threads), vectors()

    def run(self) -> np.ndarray:
        from engine.encoding.maxsim import maxsim

        return maxsim(self.ops, self.query, self.documents)

    def limit(self) -> float:
        """Return the operations a second of products, as `engine bench` measures them."""
        from engine.backends.peak import measure_rate

        return measure_rate(self.threads, "float32", repeats=1) * 1e9


class SentenceTransformersMaxSim(Library):
    def load(self) -> None:
        torch = self.torch()
        query, documents = vectors()
        self.query, self.documents = torch.from_numpy(query)[None], torch.from_numpy(np.stack(documents))

    def run(self) -> np.ndarray:
        from sentence_transformers.util.similarity import maxsim

        return maxsim(self.query, self.documents).numpy()


class Rerank(Library):
    @property
    def model(self) -> Path:
        return self.folder / "reranker"

    def prepare(self) -> None:
        """Write a cross-encoder of the shape of ms-marco-MiniLM-L6-v2."""
        write_model(self.model, self.minilm, "BertForSequenceClassification", num_labels=1, **MINILM)

    def batches(self) -> list[tuple[list[int], dict[str, np.ndarray]]]:
        """Return batches of 32 pairs of similar length, as a tokenizer of `tokenizers` pads them."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.model / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(512)
        encodings = tokenizer.encode_batch_fast([(QUERY, text) for text in documents()])
        order = sorted(range(len(encodings)), key=lambda i: -len(encodings[i].ids))
        found = []
        for start in range(0, len(order), 32):
            members = order[start : start + 32]
            arrays = np.zeros((3, len(members), len(encodings[members[0]].ids)), np.int64)
            for row, i in enumerate(members):
                T = len(encodings[i].ids)
                arrays[0, row, :T], arrays[1, row, :T], arrays[2, row, :T] = encodings[i].ids, 1, encodings[i].type_ids
            found.append((members, dict(zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True))))
        return found

    def in_batches(self, scores: Callable[[dict[str, np.ndarray]], np.ndarray]) -> np.ndarray:
        found = np.empty(100, np.float32)
        for members, batch in self.batches():
            found[members] = np.asarray(scores(batch)).reshape(-1)
        return found


class EngineRerank(Rerank):
    def load(self) -> None:
        from engine import Engine

        self.engine, self.texts = Engine.load(self.model, threads=self.threads), documents()

    def run(self) -> np.ndarray:
        return self.engine.predict([(QUERY, text) for text in self.texts], logits=True)


class CrossEncoderRerank(Rerank):
    def load(self) -> None:
        torch = self.torch()
        from sentence_transformers import CrossEncoder

        self.encoder = CrossEncoder(str(self.model), device="cpu", activation_fn=torch.nn.Identity())
        self.texts = documents()

    def run(self) -> np.ndarray:
        return self.encoder.predict([(QUERY, text) for text in self.texts], batch_size=32)


class OnnxRerank(Rerank):
    """ONNX Runtime, on a graph that its optimiser has fused for BERT."""

    @property
    def graph(self) -> Path:
        return self.model / "onnx" / "model.onnx"

    def prepare(self) -> None:
        """Export the model, and fuse the graph."""
        super().prepare()
        if self.graph.exists():
            return
        import torch
        from onnxruntime.transformers import optimizer
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(self.model, attn_implementation="eager").eval()
        names = ["input_ids", "attention_mask", "token_type_ids"]
        self.graph.parent.mkdir(exist_ok=True)
        plain = self.graph.with_name("plain.onnx")
        torch.onnx.export(model, tuple(torch.ones((2, 8), dtype=torch.int64) for _ in names), plain, input_names=names,
                          output_names=["logits"], dynamic_axes={name: {0: "B", 1: "T"} for name in names},
                          opset_version=17, dynamo=False)
        fused = optimizer.optimize_model(str(plain), model_type="bert", num_heads=12, hidden_size=384, opt_level=1)
        fused.save_model_to_file(str(self.graph))

    def load(self) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        self.session = onnxruntime.InferenceSession(str(self.graph), options, ["CPUExecutionProvider"])

    def run(self) -> np.ndarray:
        return self.in_batches(lambda batch: self.session.run(None, batch)[0])


class OpenVinoRerank(OnnxRerank):
    def load(self) -> None:
        import openvino

        settings = {"INFERENCE_NUM_THREADS": self.threads, "INFERENCE_PRECISION_HINT": "f32",
                    "PERFORMANCE_HINT": "LATENCY"}
        self.compiled = openvino.Core().compile_model(self.graph.with_name("plain.onnx"), "CPU", settings)

    def run(self) -> np.ndarray:
        return self.in_batches(lambda batch: self.compiled(batch)[0])


class FastembedRerank(OnnxRerank):
    def load(self) -> None:
        from fastembed.rerank.cross_encoder import TextCrossEncoder

        self.encoder = TextCrossEncoder("Xenova/ms-marco-MiniLM-L-6-v2", threads=self.threads, local_files_only=True,
                                        specific_model_path=str(self.model))
        self.texts = documents()

    def run(self) -> np.ndarray:
        return np.array(list(self.encoder.rerank(QUERY, self.texts, batch_size=32)), np.float32)


class Tags(Library):
    @property
    def model(self) -> Path:
        return self.folder / "tagger"

    def prepare(self) -> None:
        """Write a tagger of MiniLM's shape."""
        labels = dict(enumerate(("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")))
        write_model(self.model, self.minilm, "BertForTokenClassification", id2label=labels,
                    label2id={name: i for i, name in labels.items()}, **MINILM)


class EngineTags(Tags):
    def load(self) -> None:
        from engine import Engine

        self.engine, self.texts = Engine.load(self.model, threads=self.threads), self.sentences()

    def run(self) -> np.ndarray:
        found = self.engine.tag(self.texts, ignore_labels=[])
        return np.array([[tag["score"], tag["start"]] for row in found for tag in row])


class PipelineTags(Tags):
    def load(self) -> None:
        self.torch()
        from transformers import pipeline

        self.pipeline, self.texts = pipeline("token-classification", str(self.model), device="cpu",
                                             ignore_labels=[]), self.sentences()

    def run(self) -> np.ndarray:
        found = self.pipeline(self.texts, batch_size=32)
        return np.array([[tag["score"], tag["start"]] for row in found for tag in row])


ROWS: dict[str, dict[str, type[Library]]] = {
    "splade-tiny": {"engine": with_engine_sparse(SparseTiny), "SparseEncoder": with_sparse_encoder(SparseTiny)},
    "splade-distilbert": {"engine": with_engine_sparse(SparseDistil),
                          "SparseEncoder": with_sparse_encoder(SparseDistil)},
    "maxsim": {"engine": EngineMaxSim, "sentence-transformers": SentenceTransformersMaxSim},
    "rerank": {"engine": EngineRerank, "CrossEncoder": CrossEncoderRerank, "ONNX Runtime": OnnxRerank,
               "OpenVINO": OpenVinoRerank, "fastembed": FastembedRerank},
    "tags": {"engine": EngineTags, "pipeline": PipelineTags},
}
OPERATIONS = {"maxsim": 2.0 * TOKENS * DOCUMENTS * DOCUMENT_TOKENS * WIDTH}
"""The operations of a row whose rate is compared with that of products."""


def make(row: str, name: str, *arguments: Any) -> Library:
    """Return a library of a row."""
    return ROWS[row][name](*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True, help="folder of all-MiniLM-L6-v2, for its tokenizer")
    parser.add_argument("--splade", type=Path, help="folder of splade-tiny, such as models/cognition/model")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--sentences", type=int, default=SENTENCES, metavar="N", help="read N sentences instead of all")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few repeats: the times mean nothing")
    parser.add_argument("--files", type=Path, default=Path("../build/peers/heads"), help="folder for the models")
    parser.add_argument("--out", type=Path, help="file for the numbers")
    a = parser.parse_args()
    a.files.mkdir(parents=True, exist_ok=True)
    steal = Steal()
    found: dict[str, Any] = {"tool": "heads", "machine": machine(a.threads), "quick": a.quick, "rows": []}
    for row in a.rows:
        arguments = (a.files.resolve(), a.minilm.resolve(), a.splade and a.splade.resolve(), a.sentences, a.threads)
        with ExitStack() as stack:
            found_row = Row(make, row, ROWS[row], a.files.resolve(), a.threads, arguments, stack)
            cells = found_row.measure(a.quick, OPERATIONS.get(row, 0.0))
        found["rows"] += [{"row": row, "library": name, **cell} for name, cell in cells.items()]
        tell(row, cells)
    if a.out:
        found["machine"]["steal"] = steal.share()
        write(a.out, found)


if __name__ == "__main__":
    main()
