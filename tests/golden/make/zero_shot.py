"""Make zero_shot.json: what the zero-shot pipeline of transformers gives with the golden models of heads.

    python -m tests.golden.make.zero_shot

The models are those of heads.py, in float32 and with the labels of a classifier of natural language inference: an
entailment as the first, the second or the last one. For each model and call of tests/tools/zero_shot.py the file has,
for each text, pairs of a label and its score in the order of the pipeline.
"""

import json
import tempfile
from pathlib import Path

import torch
import transformers as hf

from tests.tools import zero_shot
from tests.tools.head_models import write_folder

from .heads import Golden, open_tokenizer, plain
from .quiet import one_quiet_thread


def pipeline_of(golden: Golden, labels: tuple[str, ...], place: Path) -> hf.Pipeline:
    """Return the pipeline of a golden model with other labels."""
    folder = write_folder(place / golden.name, golden.name)
    config = zero_shot.config_of(golden.name) | zero_shot.labels_in(labels)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kind = getattr(hf, golden.config.architectures[0])
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = open_tokenizer(golden.settings["tokenizer"])
    if golden.config.pad_token_id == tokenizer.sep_token_id:
        tokenizer.pad_token = "</s>"
    return hf.pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)


def main() -> None:
    one_quiet_thread()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for name, labels in zero_shot.models().items():
            print(name, flush=True)
            pipe = pipeline_of(Golden(name), labels, Path(place))
            results = {call: pipe([*zero_shot.TEXTS], **options) for call, options in zero_shot.CALLS.items()}
            found[name] = {call: [list(zip(one["labels"], one["scores"], strict=True)) for one in rows]
                           for call, rows in results.items()}
    text = json.dumps(plain(found), ensure_ascii=False, separators=(",", ":")).replace('},"', '},\n"')
    zero_shot.FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
