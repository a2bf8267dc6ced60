"""A build of wheels that was stopped goes on: it keeps a wheel that is there and was made from the same."""

from tools.wheels.build import finished, record
from tools.wheels.targets import TARGETS


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
