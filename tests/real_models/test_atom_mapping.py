"""Test examples/atom_mapping.py: the atom mappings that rxnmapper's own README and tests publish, with its real ALBERT.

The attention weights of one head decide every pair of atoms, and the confidences are made of them.
"""

import os
import runpy
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..tools.paths import ROOT

INSTALLED = find_spec("rxnmapper")
FOLDER = Path(os.environ.get("ENGINE_RXNMAPPER", Path(INSTALLED.origin).parent if INSTALLED and INSTALLED.origin
                             else ROOT / "models/rxnmapper"))
MISSING = (f"no rxnmapper at {FOLDER}: pip install rdkit; pip install --no-deps --target models rxnmapper==0.4.3. "
           "ENGINE_RXNMAPPER points to another place")

# (reaction, whether it is brought to canonical form first, mapped reaction, confidence): https://github.com/rxn4chemistry/
# rxnmapper, README.md and tests/test_mapper.py
PUBLISHED = [
    ("CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F", True,
     "CN(C)C=O.F[c:5]1[n:6][cH:7][cH:8][cH:9][c:10]1[F:11].O=C([O-])[O-].[CH3:1][CH:2]([CH3:3])[SH:4].[K+].[K+]>>"
     "[CH3:1][CH:2]([CH3:3])[S:4][c:5]1[n:6][cH:7][cH:8][cH:9][c:10]1[F:11]", 0.9565619900376546),
    ("C1COCCO1.CC(C)(C)OC(=O)CONC(=O)NCc1cccc2ccccc12.Cl>>O=C(O)CONC(=O)NCc1cccc2ccccc12", True,
     "C1COCCO1.CC(C)(C)[O:3][C:2](=[O:1])[CH2:4][O:5][NH:6][C:7](=[O:8])[NH:9][CH2:10][c:11]1[cH:12][cH:13][cH:14]"
     "[c:15]2[cH:16][cH:17][cH:18][cH:19][c:20]12.Cl>>[O:1]=[C:2]([OH:3])[CH2:4][O:5][NH:6][C:7](=[O:8])[NH:9]"
     "[CH2:10][c:11]1[cH:12][cH:13][cH:14][c:15]2[cH:16][cH:17][cH:18][cH:19][c:20]12", 0.9704424331552834),
    ("C=CCN=C=S.CNCc1ccc(C#N)cc1.NNC(=O)c1cn2c(n1)CCCC2>>C=CCN1C(C2=CN3CCCCC3=N2)=NN=C1N(C)CC1=CC=C(C#N)C=C1", True,
     "O=[C:5]([c:6]1[cH:7][n:8]2[c:9]([n:10]1)[CH2:11][CH2:12][CH2:13][CH2:14]2)[NH:15][NH2:16].S=[C:17]=[N:4][CH2:3]"
     "[CH:2]=[CH2:1].[NH:18]([CH3:19])[CH2:20][c:21]1[cH:22][cH:23][c:24]([C:25]#[N:26])[cH:27][cH:28]1>>[CH2:1]="
     "[CH:2][CH2:3][n:4]1[c:5](-[c:6]2[cH:7][n:8]3[c:9]([n:10]2)[CH2:11][CH2:12][CH2:13][CH2:14]3)[n:15][n:16]"
     "[c:17]1[N:18]([CH3:19])[CH2:20][c:21]1[cH:22][cH:23][c:24]([C:25]#[N:26])[cH:27][cH:28]1", 0.919023506871605),
    ("CC[O-]~[Na+].BrCC.[Na+]~[H-]>>CCOCC", True,
     "Br[CH2:2][CH3:1].[Na+]~[O-:3][CH2:4][CH3:5].[H-]~[Na+]>>[CH3:1][CH2:2][O:3][CH2:4][CH3:5]", 0.9606074439250337),
    ("C(C)O.BrC(C)>>CCOCC", False,
     "[CH2:2]([CH3:1])[OH:3].Br[CH2:4][CH3:5]>>[CH3:1][CH2:2][O:3][CH2:4][CH3:5]", 0.9754605679009868),
    ("CCOCC>>CC[O-]~[Na+].BrCC", True,
     "[CH3:1][CH2:2][O:6][CH2:5][CH3:4]>>[CH3:1][CH2:2][Br:3].[CH3:4][CH2:5][O-:6]~[Na+:7]", 0.8353619858859898),
]  # fmt: skip


@cache
def example():
    pytest.importorskip("rdkit", reason=MISSING)
    if not FOLDER.exists():
        pytest.skip(MISSING)
    return runpy.run_path(str(ROOT / "examples" / "atom_mapping.py"))


def same_form(mapped):
    """Return a mapped reaction with each compound in the form of this version of RDKit, and the compounds sorted."""
    from rdkit import Chem

    return [sorted(Chem.MolToSmiles(Chem.MolFromSmiles(compound.replace("~", "."))) for compound in side.split("."))
            for side in mapped.split(">>")]


@pytest.mark.parametrize(("reaction", "canonical", "mapped", "confidence"), PUBLISHED, ids=range(len(PUBLISHED)))
def test_the_published_mappings(backend, reaction, canonical, mapped, confidence):
    found, share = example()["AtomMapper"](FOLDER, backend=backend)(reaction, canonical)
    assert same_form(found) == same_form(mapped)
    assert share == pytest.approx(confidence, abs=1e-4)


def test_another_head_does_not_give_them(monkeypatch):
    """The mapping comes from the weights of this head, and not from the rules around them."""
    module = example()
    monkeypatch.setitem(module["AtomMapper"].weights.__globals__, "HEAD", (3, 2))
    reaction, canonical, mapped, confidence = PUBLISHED[2]
    found, share = module["AtomMapper"](FOLDER)(reaction, canonical)
    assert same_form(found) != same_form(mapped)
    assert abs(share - confidence) > 0.1
