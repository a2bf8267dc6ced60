"""Which wheels are built, from whose headers, and that a build that was stopped keeps what was made from the same."""

import pytest

from tools.wheels import targets
from tools.wheels.build import finished, record
from tools.wheels.targets import TARGETS, chosen, headers


def test_every_word_has_to_choose_a_wheel():
    assert chosen([]) == TARGETS
    assert {target.python for target in chosen(["cp310", "cp312-musllinux"])} == {"3.10", "3.12"}
    with pytest.raises(SystemExit, match="no wheel is called cp312-muslinux; choose among cp310"):
        chosen(["cp310", "cp312-muslinux"])


def test_headers_of_a_relative_path_are_found_from_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "python3.14").mkdir()
    (tmp_path / "python3.14/Python.h").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(targets, "pythons", dict)
    monkeypatch.setenv("PYTHON_HEADERS", "python3.14")
    assert headers() == {"3.14": tmp_path / "python3.14"}


def test_a_wheel_is_kept_only_if_it_was_made_from_the_same(tmp_path):
    target, other = TARGETS[:2]
    assert finished(target, "digest", tmp_path) is None
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"whole")
    assert finished(target, "digest", tmp_path) is None, "nothing says what it was made from"
    record(target, "digest", wheel)
    record(other, "of the other", wheel)
    assert finished(target, "digest", tmp_path) == wheel
    assert finished(target, "of a changed file", tmp_path) is None
    wheel.unlink()
    assert finished(target, "digest", tmp_path) is None
