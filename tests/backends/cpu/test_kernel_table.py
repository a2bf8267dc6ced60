"""table.pxd alone states the order of products and of formats: what Python makes of them agrees."""

import re

from engine.backends.cpu.native.native import PRODUCT_PLACES, product_name
from engine.model.precision import COMPUTED, LOADABLE

from ...tools.paths import ROOT

BACKENDS = ROOT / "engine" / "backends"


def names_of(enum):
    """The names of an enum of table.pxd, in their order."""
    text = (BACKENDS / "cython_cpu" / "table.pxd").read_text(encoding="utf-8")
    return re.findall(r"^    (\w+)", re.search(rf"^cdef enum {enum}:\n((?:    .*\n)+)", text, re.MULTILINE)[1],
                      re.MULTILINE)


def test_products_are_where_the_table_has_them():
    *products, count = names_of("ProductKind")
    assert count == "PRODUCTS"
    assert {name.removesuffix("_PRODUCT").lower(): i for i, name in enumerate(products)} == PRODUCT_PLACES


def test_each_product_serves_a_precision():
    assert PRODUCT_PLACES.keys() == {product_name(precision, decodes, portable) for precision in {*COMPUTED, *LOADABLE}
                                     for decodes in (False, True) for portable in (False, True)}


def test_formats_have_the_order_of_precisions():
    assert [name.lower() for name in names_of("Storage")] == list(COMPUTED)


def test_the_recipe_of_a_precision_names_files_that_are_there():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    recipe = text.split("**A precision**")[1].split("**A backend.**")[0]
    named = re.findall(r"`([\w/.]+\.(?:pxi|pxd|pyx|py|h|md))`", recipe)
    places = (ROOT, ROOT / "engine", BACKENDS)
    assert len(named) > 20
    assert not [name for name in named if not any((place / name).is_file() for place in places)]
