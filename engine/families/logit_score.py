"""Read which tokens the reranker in a folder of sentence-transformers scores: its module LogitScore."""

from __future__ import annotations

from pathlib import Path

from ..errors import UnsupportedError, WeightsError, shown
from ..weights.files import has_file, read_list, read_object

_MODULE = ".LogitScore"


def read_logit_score(folder: Path) -> tuple[int, ...] | None:
    """Return the id of the token that means "relevant", and of the one that means the contrary, if there is one.

    None for a folder without the module. Raises `WeightsError`, and `UnsupportedError` for another input of it.
    """
    path = folder / "modules.json"
    entries = read_list(path) if has_file(path) else []
    own = [entry for entry in entries if isinstance(entry, dict) and str(entry.get("type")).endswith(_MODULE)]
    if not own:
        return None
    name = own[0].get("path")
    if not isinstance(name, str) or not name.replace("_", "").isalnum():
        raise WeightsError(f"{path}: the path of LogitScore must be the name of a folder, not {shown(name)}")
    config = folder / name / "config.json"
    values = read_object(config)
    if values.get("module_input_name", "causal_logits") != "causal_logits":
        raise UnsupportedError(f"{config}: module_input_name {shown(values['module_input_name'])} is not supported; "
                               "only 'causal_logits' is")
    ids = [values.get("true_token_id"), values.get("false_token_id")]
    given = tuple(number for number in ids if number is not None)
    if ids[0] is None or not all(type(number) is int and 0 <= number < 2**31 for number in given):
        raise WeightsError(f"{config}: true_token_id and false_token_id must be token ids, not {shown(ids)}")
    return given
