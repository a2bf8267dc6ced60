"""Make golden files anew: create the environments and run the writers.

    python -m tests.golden.make                         list the writers
    python -m tests.golden.make all MINILM              run all that need no other file than all-MiniLM-L6-v2's folder
    python -m tests.golden.make NAME [ARGUMENT ...]     run one of them; its own first lines say what it takes

Each environment is a folder build/golden-NAME with the packages of requirements-NAME.txt. The numbers of golden files
may change only when the inputs change.
"""

import ast
import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.tools.paths import ROOT

HERE = Path(__file__).parent

WRITERS = {
    # in an order that can be run; the environment of each
    "bert": "models", "ops": "models", "modernbert": "models", "rotary_encoders": "models", "checkpoints": "models",
    "tokenizers": "tokenizers", "marian_tokenizer": "tokenizers", "language_tokenizers": "tokenizers",
    "gguf_tokenizers": "tokenizers", "new_tokenizers": "new-tokenizers",
    "gguf": "files", "ctranslate2": "files",
    "distance_biases": "models", "hidden_states": "models", "deberta": "models", "encoders": "models",
    "clip_and_siglip": "models", "adapters": "models", "images_and_sound": "models", "images": "models",
    "torch_transformer": "models", "ctc": "models",
    "generation": "models", "generating": "models", "reranker": "models",
    "known_rerankers": "models", "audio": "models", "ctranslate2_whisper": "models",
    "mpnet": "models", "splade": "models", "annalog": "models", "smollm2": "models", "llama_cpp": "files",
    "gguf_architectures": "files",
    "gguf_tokenizer": "tokenizers", "transcripts": "speech", "sample_rates": "models",
    "heads": "models", "heads_answers": "pipelines", "embedders": "models", "sparse": "models", "modules": "models",
    "late": "models", "zero_shot": "models",
    "bge_m3": "models", "calibration": "calibration", "chat_templates": "chat",
}
"""The writers, and the environment that each runs in."""

WITH_OTHER_FILES = ("mpnet", "splade", "annalog", "smollm2", "llama_cpp", "gguf_architectures", "gguf_tokenizer",
                    "transcripts", "sparse", "modules", "sample_rates", "calibration")
"""Writers that need real models. The first lines of each say how to get them."""


def first_line(name: str) -> str:
    """Return the first line of a writer's docstring; the writer is not imported."""
    document = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return document.partition("\n")[0]


def environment(kind: str) -> Path:
    """Return the Python of an environment, which is made if it is not there."""
    folder = ROOT / "build" / f"golden-{kind}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / f"requirements-{kind}.txt"], check=True)
    return python


def run(name: str, *arguments: str) -> None:
    """Run one writer in its environment."""
    print(f"{name}: {first_line(name)}", flush=True)
    subprocess.run([environment(WRITERS[name]), "-m", f"tests.golden.make.{name}", *arguments], cwd=ROOT, check=True,
                   env=os.environ | {"HF_HUB_OFFLINE": "1"})


def main(arguments: list[str]) -> None:
    if not arguments:
        for name, kind in WRITERS.items():
            print(f"{name:20} {kind:14} {first_line(name)}")
    elif arguments[0] == "all":
        if len(arguments) != 2:
            raise SystemExit("give the folder of all-MiniLM-L6-v2: python -m tests.golden.make all FOLDER")
        for name in WRITERS:
            if name not in WITH_OTHER_FILES:
                run(name, *([str(Path(arguments[1]).resolve())] if name == "bert" else []))
    elif arguments[0] in WRITERS:
        run(*arguments)
    else:
        raise SystemExit(f"no writer is called {arguments[0]!r}; python -m tests.golden.make lists them")


if __name__ == "__main__":
    main(sys.argv[1:])
