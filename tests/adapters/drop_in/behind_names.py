"""A plugin of pytest for sentence-transformers' own tests: put the engine's classes behind the names of the package.

tests/adapters/test_package_suite.py loads it, in a process whose package `tests` is that of sentence-transformers.
Environment:

    DROP_IN_CLASSES     "engine" to put the engine's classes in place of the package's; else these stay
    DROP_IN_OUTCOMES    the file that gets the outcome of each test, as JSON: its id, and why it failed or ""
"""

import json
import os
import sys

import sentence_transformers

NAMES = ("SentenceTransformer", "CrossEncoder", "SparseEncoder")
OUTCOMES: dict[str, str] = {}

if os.environ["DROP_IN_CLASSES"] == "engine":
    from engine.adapters import sentence_transformers as ours

    for name in NAMES:
        for module in (sentence_transformers, sys.modules[getattr(sentence_transformers, name).__module__]):
            setattr(module, name, getattr(ours, name))


def pytest_runtest_logreport(report):
    """Note what became of a test, in which any of its three phases may fail."""
    if report.outcome != "passed":
        crash = getattr(report.longrepr, "reprcrash", None)
        OUTCOMES[report.nodeid] = str(crash.message if crash else report.longrepr)[:400] or report.outcome
    else:
        OUTCOMES.setdefault(report.nodeid, "")


def pytest_sessionfinish():
    """Write the outcomes."""
    with open(os.environ["DROP_IN_OUTCOMES"], "w", encoding="utf-8") as file:
        json.dump(OUTCOMES, file, indent=1)
