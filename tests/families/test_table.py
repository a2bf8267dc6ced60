"""The table in docs/families.md is the one that the code gives, and every family has golden models."""

from ..tools.encoders import ENCODERS
from ..tools.golden_models import GOLDEN
from . import table as families_table
from .cases import CASES

ENCODING = [case for case in CASES if case.types or case.shared]


def test_the_table_is_of_today():
    written = families_table.DOCUMENT.read_text(encoding="utf-8")
    assert written == families_table.document(), "run python -m tests.families.table"


def test_every_family_has_a_row():
    found = families_table.model_types()
    assert found.keys() == families_table.FAMILY_CASES.keys()
    assert set().union(*found.values()) == ENCODERS.keys()
    assert families_table.table().count("\n| ") == len(found)


def test_golden_models():
    """Three at least of each family."""
    families = families_table.FAMILY_CASES
    assert [module for module in families if len(families_table.golden(module)) < 3] == []


def test_every_golden_model_is_in_a_row():
    folders = {path.parent.name for path in GOLDEN.glob("*/config.json")}
    assert folders - {"marian_tokenizer", "reranker"} == {name for case in ENCODING for name in case.golden}
