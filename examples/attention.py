"""Draw what a head of all-MiniLM-L6-v2 reads, and print which heads look at few tokens.

    python examples/attention.py models/all-MiniLM-L6-v2.npz attention.svg
    python examples/attention.py models/all-MiniLM-L6-v2.npz attention.svg --layer 0 --head 7 --text "any text"
"""

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import engine

TEXT = "The young cat is napping on the couch because it is tired."


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the attention weights of one head as an SVG picture.")
    parser.add_argument("model", help="an .npz file or a model folder, with a tokenizer")
    parser.add_argument("picture", type=Path, help="the .svg file to write")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--head", type=int, default=1)
    parser.add_argument("--text", default=TEXT)
    arguments = parser.parse_args()

    model = engine.Engine.load(arguments.model)
    encoding = Tokenizer.from_buffer(model.text.tokenizer_json).encode(arguments.text)
    real = encoding.attention_mask.count(1)  # a tokenizer.json can ask for padding
    ids, tokens = encoding.ids[:real], encoding.tokens[:real]

    chosen = (arguments.layer, arguments.head)
    output = model.forward([ids], output_attentions=[chosen], output_entropies=True)
    weights = output.attentions[chosen][0]
    title = f"layer {arguments.layer}, head {arguments.head}"
    arguments.picture.write_text(engine.plot.attention(weights, tokens, title=title), encoding="utf-8")
    print(f"wrote {arguments.picture}: {title}, {len(tokens)} tokens\n")

    for token, row in zip(tokens, weights, strict=True):
        best = np.argsort(-row)[:3]
        print(f"    {token:12} reads " + ", ".join(f"{tokens[s]} {row[s]:.2f}" for s in best))
    print_entropies(model, output.entropies, len(tokens))


def print_entropies(model: engine.Engine, entropies: dict, length: int) -> None:
    """Print for each head how many tokens a token reads on average: e to the power of the entropy."""
    layers, heads = model.config.num_layers, model.config.num_heads
    print(f"\nHow many of the {length} tokens a token reads in each head (e to the power of the mean entropy):\n")
    print("             " + "".join(f"head {h:<3}" for h in range(heads)).rstrip())
    for layer in range(layers):
        means = [float(np.exp(entropies[layer, h][0].mean())) for h in range(heads)]
        print(f"    layer {layer:<2} " + "".join(f"{mean:6.1f}  " for mean in means).rstrip())


if __name__ == "__main__":
    main()
