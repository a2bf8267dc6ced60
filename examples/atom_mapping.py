"""Map the atoms of a chemical reaction from the attention weights of one head of rxnmapper's ALBERT.

    pip install rdkit
    pip install --no-deps --target models rxnmapper==0.4.3
    python examples/atom_mapping.py models/rxnmapper "CC(C)S.Fc1cccnc1F>>CC(C)Sc1ncccc1F"

The model was trained to guess hidden tokens of reactions, and nobody told it which atom goes where. Head 5 of layer 10
turned out to look from each atom of a product at the atom that it comes from. The weights and the method are those of
Schwaller et al., "Extraction of organic chemistry grammar from unsupervised learning of chemical reactions", Science
Advances 7 (2021), eabe4166. rxnmapper needs PyTorch to run its model; this needs NumPy, and RDKit for the chemistry.
"""

import re
import sys
from pathlib import Path

import numpy as np
from rdkit import Chem

from engine import Engine

HEAD = (10, 5)
NEIGHBOURS = 90.0
"""How much more likely a pair of atoms becomes once a pair of their neighbours is mapped."""
TOKEN = re.compile(r"\[[^\]]+\]|Br?|Cl?|[NOSPFIbcnops]|[().=#+\\/:~@?*$-]|>>?|%[0-9]{2}|[0-9]")
MODEL = "models/transformers/albert_heads_8_uspto_all_1310k"


class AtomMapper:
    """An engine, and the vocabulary of its model: `folder` is that of the package rxnmapper."""

    def __init__(self, folder: Path, **options):
        self.engine = Engine.load(folder / MODEL, **options)
        words = (folder / MODEL / "vocab.txt").read_text(encoding="utf-8").split("\n")
        self.ids = {word: i for i, word in enumerate(words)}

    def __call__(self, reaction: str, canonical: bool = True) -> tuple[str, float]:
        """Return the reaction with a number at each mapped atom, and the confidence, between 0 and 1.

        reaction: SMILES "reactants>>products" or "reactants>reagents>products"; `~` joins the parts of one compound.
        canonical: whether compounds are sorted and written in RDKit's form first, as the model has seen them.
        """
        left, middle, right = reaction.split(">")
        sides = [sorted_compounds(side) if canonical else side.split(".")
                 for side in (".".join(filter(None, (left, middle))), right)]
        compounds = [[Chem.MolFromSmiles(compound.replace("~", ".")) for compound in side] for side in sides]
        weights = self.weights([".".join(side) for side in sides])
        types, bonds = zip(*map(atoms_and_bonds, compounds), strict=True)
        if weights.shape != (len(types[1]), len(types[0])):
            raise ValueError(f"the tokens of {reaction} are {weights.shape[::-1]} atoms, and RDKit reads "
                             f"{len(types[0]), len(types[1])}; write hydrogen atoms inside the brackets of others")
        origins, confidences = match(weights * (types[1][:, None] == types[0]), bonds[1], bonds[0])
        return mapped(compounds, origins, canonical), float(np.prod(confidences))

    def weights(self, sides: list[str]) -> np.ndarray:
        """Return how much each product atom and each reactant atom look at each other: [product, reactant]."""
        tokens = ["[CLS]", *TOKEN.findall(">>".join(sides)), "[SEP]"]
        unknown = self.ids["[UNK]"]
        output = self.engine.forward([[self.ids.get(token, unknown) for token in tokens]], output_attentions=[HEAD])
        table, arrow = output.attentions[HEAD][0], tokens.index(">>")
        atoms = [i for i, token in enumerate(tokens) if is_atom(token)]
        reactant, product = [i for i in atoms if i < arrow], [i for i in atoms if i > arrow]
        return table[np.ix_(product, reactant)] + table[np.ix_(reactant, product)].T


def is_atom(token: str) -> bool:
    return token not in ("[CLS]", "[SEP]") and (token[0].isalpha() or token[0] == "[")


def sorted_compounds(side: str) -> list[str]:
    """Return the compounds of one side of a reaction in RDKit's form, without atom numbers, sorted."""
    found = []
    for compound in side.split("."):
        mol = Chem.MolFromSmiles(re.sub(r":[0-9]+\]", "]", compound.replace("~", ".")))
        found.append(Chem.MolToSmiles(mol))
    return [compound.replace(".", "~") for compound in sorted(found)]


def atoms_and_bonds(compounds: list[Chem.Mol]) -> tuple[np.ndarray, np.ndarray]:
    """Return the atomic numbers [n] of all atoms of a side, and which of them are neighbours, bool [n,n]."""
    types = np.array([atom.GetAtomicNum() for mol in compounds for atom in mol.GetAtoms()])
    bonds = np.zeros((len(types), len(types)), bool)
    first = 0
    for mol in compounds:
        last = first + mol.GetNumAtoms()
        bonds[first:last, first:last] = Chem.GetAdjacencyMatrix(mol) != 0
        first = last
    return types, bonds


def match(weights: np.ndarray, product_bonds: np.ndarray, reactant_bonds: np.ndarray) -> tuple[list[int], list[float]]:
    """Pair atoms greedily; weights [product, reactant] are 0 for atoms of different elements.

    Each step takes the pair with the largest share of a product atom's weights, and favours the pairs of its
    neighbours. Returns the reactant atom of each product atom, -1 for none, and the shares, 1 for none.
    """
    factors = np.ones(weights.shape)
    origins, confidences = [-1] * len(weights), [1.0] * len(weights)
    for _ in origins:
        scores = weights * factors
        totals = scores.sum(axis=1, keepdims=True)
        shares = np.divide(scores, totals, out=np.zeros_like(scores), where=totals != 0)
        product, reactant = np.unravel_index(shares.argmax(), shares.shape)
        if np.isclose(shares[product, reactant], 0.0):
            break
        origins[product], confidences[product] = int(reactant), float(shares[product, reactant])
        factors[np.ix_(product_bonds[product], reactant_bonds[reactant])] *= NEIGHBOURS
        factors[product] = 0
        factors[:, reactant] = 0
    return origins, confidences


def mapped(compounds: list[list[Chem.Mol]], origins: list[int], canonical: bool) -> str:
    """Return the reaction with the number i + 1 at product atom i and at the reactant atom that it comes from."""
    numbers = [{origin: i + 1 for i, origin in enumerate(origins) if origin >= 0},
               {i: i + 1 for i in range(len(origins))}]
    sides = []
    for mols, number in zip(compounds, numbers, strict=True):
        atoms = [atom for mol in mols for atom in mol.GetAtoms()]
        for i, atom in enumerate(atoms):
            atom.SetAtomMapNum(number.get(i, 0))
        sides.append(".".join(Chem.MolToSmiles(mol, canonical=canonical).replace(".", "~") for mol in mols))
    return ">>".join(sides)


if __name__ == "__main__":
    mapper = AtomMapper(Path(sys.argv[1]))
    for smiles in sys.argv[2:]:
        result, confidence = mapper(smiles)
        print(f"{confidence:.4f}  {result}")
