"""CHANGELOG.md tells users of every change of the bits that tests/golden/digests.json has on record."""

import json

import pytest

digests = pytest.importorskip("tests.tools.digests", reason="the compiled kernels are not built")

RECORDED, LOG = (json.loads(path.read_text(encoding="utf-8")) for path in (digests.FILE, digests.LOG))
CHANGELOG = digests.CHANGELOG.read_text(encoding="utf-8")
SENTENCE = "Bits of int8\n  change once."


def test_a_sentence_of_the_changelog_explains_all_bits():
    """`python -m tests.tools.digests` asks for the sentence."""
    assert digests.problems(RECORDED, LOG, CHANGELOG) == []


def test_changed_bits_need_a_new_sentence():
    changed = RECORDED | {"bounded/int8": RECORDED["bounded/int8"] | {"tanh": "0" * 16}}
    assert digests.problems(changed, LOG, CHANGELOG) == ["no sentence explains the bits of bounded/int8"]
    for sentence in (None, " ", LOG[0]["sentence"], LOG[0]["sentence"].replace(" ", "\n  ")):
        with pytest.raises(SystemExit, match="the bits of bounded/int8 change"):
            digests.logged(RECORDED, changed, LOG, sentence)
    log = digests.logged(RECORDED, changed, LOG, SENTENCE)
    told = f"{CHANGELOG}\n- {SENTENCE}\n"
    assert digests.problems(changed, log, told) == []
    quoted = "the sentence 'Bits of int8 change once.'"
    assert digests.problems(changed, log, CHANGELOG) == [f"{quoted} is not in CHANGELOG.md"]
    assert digests.problems(changed, [*log, log[-1]], told) == [f"two changes have {quoted}"]
    assert digests.logged(RECORDED, RECORDED, LOG, None) is LOG
    without = {name: found for name, found in RECORDED.items() if name != "wide/int8"}
    assert digests.problems(without, LOG, CHANGELOG) == ["the log has wide/int8, which is not on record"]
