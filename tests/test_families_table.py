"""The table in docs/families.md is the one that the code gives."""

from engine.families import FAMILIES

from . import families_table


def test_the_table_is_of_today():
    written = families_table.DOCUMENT.read_text(encoding="utf-8")
    assert written == families_table.document(), "run python -m tests.families_table"


def test_every_family_has_a_row():
    found = families_table.configs()
    assert found.keys() == families_table.MODELS.keys()
    assert {name for types in found.values() for name in types} == FAMILIES.keys()
    assert families_table.table().count("\n| ") == len(found)


def test_every_family_has_three_golden_models():
    golden = families_table.golden_models()
    assert golden.keys() == families_table.MODELS.keys()
    assert {module: names for module, names in golden.items() if len(names) < 3} == {}
