"""Make molecules that are similar to given ones, with annalog's Transformer of 3 + 3 layers.

    pip install tokenizers
    pip install --no-deps --target models annalog==1.0.6
    python examples/similar_molecules.py models/annalog "CC(=O)Oc1ccccc1C(=O)O"

The model is the first Transformer whole: encoder, decoder, and a beam search over its logits. annalog (MIT, Wei Dai)
trained it on pairs of molecules in SMILES, and runs it with PyTorch; this needs NumPy. The engine reads its state dict,
and gets a tokenizer made of its vocabulary.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

from engine import GenerationConfig, Generator, TextConfig, read_checkpoint, read_pickle, read_pytorch_seq2seq

TOKEN = r"\[[^\]]*\]|%[0-9]{2}|Br|Cl|[\s\S]"
UNKNOWN, PADDING, START, END = "<unk>", "<pad>", "<sos>", "<eos>"


def load(folder: Path, **options) -> Generator:
    """Return a generator of annalog's model; options are those of `Generator`."""
    files = folder / "ckpt_and_vocab"
    vocabulary, _ = read_pickle(memoryview((files / "stereo_experiment_vocab_ttf.pkl").read_bytes()), {})
    ids = vocabulary["stoi"]
    text = TextConfig(tokenizer_of(ids), max_seq_length=102, feeds_token_types=False)
    settings = GenerationConfig(decoder_start_token_id=ids[START], eos_token_id=ids[END], max_length=102,
                                suppress_tokens=[ids[UNKNOWN], ids[PADDING], ids[START]], length_penalty=0.0)
    model = read_pytorch_seq2seq(read_checkpoint(files / "Lev_extended.pt"), num_heads=8)
    model = model.map(lambda part: replace(part, text=text))
    return Generator(replace(model, generation=settings), **options)


def tokenizer_of(ids: dict[str, int]) -> bytes:
    """Return a tokenizer.json that cuts SMILES into the tokens of a vocabulary."""
    special = [{"id": ids[token], "content": token, "special": True, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False} for token in (UNKNOWN, PADDING, START, END)]
    frame = {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (START, END)}
    single = [{"SpecialToken": {"id": START, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": END, "type_id": 0}}]
    return json.dumps({
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": TOKEN}, "behavior": "Isolated", "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": frame},
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": UNKNOWN},
    }).encode()


def main() -> None:
    folder, *molecules = sys.argv[1:]
    generator = load(Path(folder))
    unknown = {token for smiles in molecules for token in re.findall(TOKEN, smiles)} - known(generator)
    if unknown:
        raise SystemExit(f"the model does not know {', '.join(sorted(unknown))}")
    for smiles, found in zip(molecules, generator.generate(molecules, num_beams=5, num_return_sequences=5),
                             strict=True):
        print(smiles)
        for result in found:
            print(f"  {result.score:8.3f}  {result.text}")


def known(generator: Generator) -> set[str]:
    """Return the tokens of the vocabulary."""
    return set(json.loads(generator.text.tokenizer_json)["model"]["vocab"])


if __name__ == "__main__":
    main()
