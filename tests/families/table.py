"""The tables of families in docs/families.md, made from the code. Run this file as a module to write them anew:

    python -m tests.families.table
"""

import importlib
import json

from engine.backends.numba_cuda.support import check
from engine.base.errors import UnsupportedError
from engine.families import ARCHITECTURES, BY_POSITIONS, FAMILIES, REFUSED, get_family
from engine.model.config import ModelConfig
from engine.model.precision import LOADABLE
from engine.programs import program_of
from tests.families.cases import CASES, CONFIGS, Case
from tests.tools.golden_models import config_of
from tests.tools.paths import DECODERS, ROOT

from ..tools.encoders import module_of

DOCUMENT = ROOT / "docs" / "families.md"
START, END = "<!-- made by python -m tests.families.table -->", "<!-- end -->"
GENERATING = "<!-- the table of language models, made by python -m tests.families.table -->"

FAMILY_CASES: dict[str, list[Case]] = {}
"""The rows of families that encode, by the name of the module."""
for case in CASES:
    if case.types or case.shared:
        FAMILY_CASES.setdefault(case.module, []).append(case)


def golden(module: str) -> list[str]:
    """Return the golden encoders of a family."""
    return [name for case in FAMILY_CASES[module] for name in case.golden]


def model_types() -> dict[str, set[str]]:
    """Return the values of model_type of the encoders of a family, by the name of its module."""
    types: dict[str, set[str]] = {}
    for values in CONFIGS.values():
        types.setdefault(module_of(get_family(dict(values))), set()).add(values["model_type"])
    return types


def cuda(config: ModelConfig) -> bool:
    """Return whether the cuda backend runs a model."""
    try:
        check(program_of(config))
    except UnsupportedError:
        return False
    return True


def table() -> str:
    """Return the table as Markdown."""
    rows = ["| family | `model_type` | published models | golden models | CPU | cuda |", "|---|---|---|---|---|---|"]
    for module, of_module in sorted(model_types().items()):
        document = importlib.import_module(f"engine.families.{module}").__doc__ or ""
        title = " ".join(document.partition("\n\n")[0].split()).removeprefix("Read ").rstrip(".").replace("|", "\\|")
        types = ", ".join(f"`{name}`" for name in sorted(of_module))
        if positions := [f"`{positions}`" for (_, positions), family in BY_POSITIONS.items()
                         if module_of(family) == module]:
            types += f", by `position_embedding_type` {positions[0]}"
        published = ", ".join(case.published for case in FAMILY_CASES[module])
        on_cuda = {cuda(config_of(name)) for name in golden(module)}
        words = {frozenset({True}): "yes", frozenset({False}): "no", frozenset({True, False}): "in part"}
        rows.append(f"| {title} | {types} | {published} | {len(golden(module))} | {', '.join(LOADABLE)} | "
                    f"{words[frozenset(on_cuda)]} |")
    refused = [f"- `{name}`: {reason}." for name, reason in REFUSED.items()]
    return "\n".join([*rows, "", "These `model_type` are refused:", "", *refused])


def language_models() -> str:
    """Return the table of decoders without an encoder as Markdown."""
    rows = ["| models | `model_type` | golden models | `general.architecture` of GGUF files |", "|---|---|---|---|"]
    for case in sorted(CASES, key=lambda case: min(case.generates, default="")):
        found = [name for name in case.generates if (DECODERS / name).is_dir() and _is_language_model(name)]
        if found:
            types = ", ".join(f"`{name}`" for name in sorted(found))
            files = [f"`{name}`" for name, kind in ARCHITECTURES.items()
                     if kind.model_type in found and not kind.encodes]
            rows.append(f"| {case.published} | {types} | {len(case.generating)} | {', '.join(files)} |")
    return "\n".join(rows)


def _is_language_model(name: str) -> bool:
    family = FAMILIES[name]
    values = json.loads((DECODERS / name / "config.json").read_text(encoding="utf-8"))
    return family.read_generator is not None and family.read_generator(values).encoder is None


def document() -> str:
    """Return docs/families.md with its tables made anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for start, made in ((START, table()), (GENERATING, language_models())):
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{made}\n\n{END}{rest.partition(END)[2]}"
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
