"""Make golden/annalog.npz: molecules that the package annalog 1.0.6 generates with its own code under torch.

    pip download --no-deps annalog==1.0.6       and unpack the wheel into a folder
    python -m tests.golden.make.annalog FOLDER

annalog (MIT) is a Transformer of 3 + 3 layers that turns one molecule into similar ones. The script runs its own
`beam_search_decode` without a filter. It writes, in ids of its vocabulary without start and end token:

    sources     int8 [n, 100], the inputs, filled up with -1: ten molecules, and molecules that the model makes of them
    greedy      int8 [n, 100], the result with one beam
    beams       int8 [n, 5, 100], the results with five beams, best first
    scores      float32 [n, 5], their sums of log probabilities, 0 where there are fewer than five results

It takes about ten minutes on one core.
"""

import sys
import types
from collections import deque
from pathlib import Path

import numpy as np
import torch

from tests.tools.paths import DECODERS

INPUTS, WIDTH = 1000, 5
FIRST = (
    "CC(=O)Oc1ccccc1C(=O)O", "CN1C=NC2=C1C(=O)N(C)C(=O)N2C", "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "COc1ccc2nc(S(=O)Cc3ncc(C)c(OC)c3C)[nH]c2c1", "CN1CCC[C@H]1c1cccnc1", "O=C(O)c1cc(-c2ccc(F)cc2F)ccc1O",
    "Cc1ccc(-c2cc(C(F)(F)F)nn2-c2ccc(S(N)(=O)=O)cc2)cc1", "CCOC(=O)C1=C(C)NC(C)=C(C(=O)OC)C1c1cccc(Cl)c1Cl",
    "CC(C)(C)NCC(O)c1ccc(O)c(CO)c1", "Clc1ccc(C(c2ccccc2)N2CCNCC2)cc1",
)


def main() -> None:
    folder = Path(sys.argv[1])
    sys.path.insert(0, str(folder))
    for name in ("rdkit", "rdkit.Chem", "partialsmiles"):      # the filter of valid molecules is not used
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.modules["rdkit"].Chem = sys.modules["rdkit.Chem"]
    from annalog.model_files.multi_gen_final import beam_search_decode
    from annalog.model_handler import SMILESModelHandler

    files = folder / "annalog" / "ckpt_and_vocab"
    vocabulary = str(files / "stereo_experiment_vocab_ttf.pkl")
    handler = SMILESModelHandler(vocabulary, vocabulary, str(files / "Lev_extended.pt"), "cpu")
    source, target, model, device, masking = handler.get_model_and_fields()
    torch.set_num_threads(1)

    def generate(ids: list[int], width: int) -> list[tuple[list[int], float]]:
        tensor = torch.tensor([[2, *ids, 3]])
        found = beam_search_decode(model, tensor, model.make_src_mask(tensor), target, width, handler.max_length,
                                   device, masking)  # fmt: skip
        return [(sequence[1:-1], score) for sequence, score in found]

    waiting = deque(source.process([source.preprocess(smiles)])[0].tolist()[1:-1] for smiles in FIRST)
    seen = {tuple(ids) for ids in waiting}
    sources, greedy = [], []
    beams, scores = np.full((INPUTS, WIDTH, 100), -1, np.int8), np.zeros((INPUTS, WIDTH), np.float32)
    for n in range(INPUTS):
        ids = waiting.popleft()
        for i, (result, score) in enumerate(generate(ids, WIDTH)):
            beams[n, i, : len(result)], scores[n, i] = result, score
            if tuple(result) not in seen and len(result) <= 100:
                seen.add(tuple(result))
                waiting.append(result)
        sources.append(ids)
        best = generate(ids, 1)
        greedy.append(best[0][0] if best else [])       # none without an end token
        if n % 50 == 49:
            print(f"{n + 1} of {INPUTS} molecules", flush=True)
    rows = np.full((2, INPUTS, 100), -1, np.int8)
    for row, lists in zip(rows, (sources, greedy), strict=True):
        for i, ids in enumerate(lists):
            row[i, : len(ids)] = ids
    np.savez_compressed(DECODERS / "annalog.npz", sources=rows[0], greedy=rows[1], beams=beams,
                        scores=scores)


if __name__ == "__main__":
    main()
