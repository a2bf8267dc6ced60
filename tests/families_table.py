"""The table of families in docs/families.md, made from the code. Run this file as a module to write it anew:

    python -m tests.families_table
"""

import importlib
import json
from pathlib import Path

from engine.architectures import program_of
from engine.backends.numba_cuda.support import check
from engine.config import ModelConfig
from engine.errors import UnsupportedError
from engine.families import BY_POSITIONS, FAMILIES, REFUSED, get_family
from engine.precision import COMPUTED
from tests.fuzz.corpus import CONFIGS

DOCUMENT = Path(__file__).parents[1] / "docs" / "families.md"
START, END = "<!-- made by python -m tests.families_table -->", "<!-- end -->"

MODELS = {
    "albert": "ALBERT, rxnmapper",
    "bert": "BERT, MiniLM, BGE, E5, the first GTE, SPLADE, LaBSE",
    "clip": "CLIP, OpenCLIP",
    "deberta_v2": "DeBERTa v2 and v3, mDeBERTa, mxbai-rerank, GLiNER's encoders",
    "distilbert": "DistilBERT",
    "electra": "ELECTRA",
    "embedding_gemma": "EmbeddingGemma",
    "eurobert": "EuroBERT",
    "gte": "GTE v1.5, gte-multilingual, arctic-embed-m-v2.0",
    "jina_bert": "jina-embeddings-v2",
    "jina_embeddings_v3": "jina-embeddings-v3",
    "modernbert": "ModernBERT, gte-modernbert, modernbert-embed",
    "mpnet": "MPNet, all-mpnet-base-v2, multi-qa-mpnet",
    "neobert": "NeoBERT",
    "nomic_bert": "nomic-embed v1 and v1.5, arctic-embed-m-long",
    "qwen3": "Qwen3-Embedding",
    "roberta": "RoBERTa, XLM-RoBERTa, CamemBERT, multilingual-e5, BGE-M3",
    "siglip": "SigLIP, SigLIP 2",
    "t5": "T5, mT5, sentence-t5, GTR",
    "umt5": "umT5",
    "vit": "ViT, DINOv2, DINOv2 with registers",
    "whisper": "Whisper's encoder",
}
"""Published models of each family, by the name of its module."""


def configs() -> dict[str, dict[str, list[ModelConfig]]]:
    """Return tiny configs by the name of a family's module and by model_type."""
    found: dict[str, dict[str, list[ModelConfig]]] = {}
    for name, values in CONFIGS.items():
        values = {"model_type": name} | values
        family = get_family(values)
        module = family.__name__.rpartition(".")[2]
        found.setdefault(module, {}).setdefault(str(values["model_type"]), []).append(family.read_config(values))
    return found


def cuda(config: ModelConfig) -> bool:
    """Return whether the cuda backend runs a model."""
    try:
        check(program_of(config))
    except UnsupportedError:
        return False
    return True


def golden_models() -> dict[str, list[str]]:
    """Return the names of the golden models of each family, by the name of its module."""
    found: dict[str, list[str]] = {}
    for path in sorted((Path(__file__).parent / "golden").glob("*/config.json")):
        if not path.parent.name.endswith(("_tokenizer", "reranker")):
            family = get_family(json.loads(path.read_text(encoding="utf-8")))
            found.setdefault(family.__name__.rpartition(".")[2], []).append(path.parent.name)
    return found


def table() -> str:
    """Return the table as Markdown."""
    rows = ["| family | `model_type` | published models | golden models | CPU | cuda |", "|---|---|---|---|---|---|"]
    modules, golden = configs(), golden_models()
    for module in sorted(modules):
        document = importlib.import_module(f"engine.families.{module}").__doc__ or ""
        title = " ".join(document.partition("\n\n")[0].split()).removeprefix("Read ").rstrip(".").replace("|", "\\|")
        types = ", ".join(f"`{name}`" for name in sorted(modules[module]))
        if positions := [f"`{positions}`" for (_, positions), (name, _) in BY_POSITIONS.items() if name == module]:
            types += f", by `position_embedding_type` {positions[0]}"
        on_cuda = {cuda(config) for found in modules[module].values() for config in found}
        words = {frozenset({True}): "yes", frozenset({False}): "no", frozenset({True, False}): "in part"}
        rows.append(f"| {title} | {types} | {MODELS[module]} | {len(golden[module])} | {', '.join(COMPUTED)} | "
                    f"{words[frozenset(on_cuda)]} |")
    refused = [f"- `{name}`: {reason}." for name, reason in REFUSED.items()]
    return "\n".join([*rows, "", "These `model_type` are refused:", "", *refused])


def document() -> str:
    """Return docs/families.md with its table made anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    assert set(configs()) == set(MODELS)
    assert {name for types in configs().values() for name in types} == set(FAMILIES)
    DOCUMENT.write_text(document(), encoding="utf-8")
