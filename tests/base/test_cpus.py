"""Test the limits on CPUs, read from artificial kernel files."""

import os

import pytest

from engine.base.cpus import choose_threads, cpu_limits, thread_limits, usable_cpus
from engine.base.errors import InputError


@pytest.fixture(autouse=True)
def _sixteen_cpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def quotas(tmp_path, cgroup, *mounts):
    """Return the limits other than affinity; mounts are (path in the hierarchy, folder, filesystem type, options)."""
    lines = [
        f"3{i} 24 0:2{i} {root} {folder} rw,nosuid - {kind} none {options}\n"
        for i, (root, folder, kind, options) in enumerate(mounts)
    ]
    write(tmp_path / "proc/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(lines))
    write(tmp_path / "proc/cgroup", cgroup)
    return [limit.cpus for limit in cpu_limits(str(tmp_path / "proc"))[1:]]


def test_affinity_alone(tmp_path):
    [limit] = cpu_limits(str(tmp_path / "absent"))
    assert (limit.cpus, limit.source) == (16, "CPU affinity")


def test_without_affinity(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert [limit.cpus for limit in cpu_limits(str(tmp_path / "absent"))] == [3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200000 100000", [2]),
        ("150000 100000", [2]),
        ("1000 100000", [1]),
        ("max 100000", []),
        ("", []),
        ("200000 0", []),
        ("nonsense", []),
    ],
)
def test_version_2(tmp_path, text, expected):
    mount = tmp_path / "cgroup"
    write(mount / "cpu.max", text)
    assert quotas(tmp_path, "0::/\n", ("/", mount, "cgroup2", "rw")) == expected


def test_every_group_above_counts(tmp_path):
    mount = tmp_path / "cgroup"
    write(mount / "a/b/cpu.max", "max 100000")
    write(mount / "a/cpu.max", "300000 100000")
    write(mount / "cpu.max", "900000 100000")
    write(mount / "other/cpu.max", "100000 100000")
    assert quotas(tmp_path, "0::/a/b\n", ("/", mount, "cgroup2", "rw")) == [3, 9]


def test_version_1(tmp_path):
    mount = tmp_path / "cpu,cpuacct"
    write(mount / "job/cpu.cfs_quota_us", "250000\n")
    write(mount / "job/cpu.cfs_period_us", "100000\n")
    write(mount / "cpu.cfs_quota_us", "-1\n")
    write(mount / "cpu.cfs_period_us", "100000\n")
    memory = tmp_path / "memory"
    write(memory / "job/cpu.cfs_quota_us", "100000\n")
    write(memory / "job/cpu.cfs_period_us", "100000\n")
    cgroup = "5:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/job\n"
    mounts = ("/", mount, "cgroup", "rw,cpu,cpuacct"), ("/", memory, "cgroup", "rw,memory")
    assert quotas(tmp_path, cgroup, *mounts) == [3]


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/docker/f00", "/docker/f00"),
        ("/docker/f00", "/docker/f00/"),
        ("/", "/docker/f00"),
        ("/docker", "/dockers"),
        ("/", "/../escaped"),
    ],
)
def test_a_container_sees_its_own_group_at_the_mount(tmp_path, root, path):
    mount = tmp_path / "cgroup with space"
    write(mount / "cpu.max", "200000 100000")
    write(tmp_path / "escaped/cpu.max", "100000 100000")
    assert quotas(tmp_path, f"0::{path}\n", (root, str(mount).replace(" ", "\\040"), "cgroup2", "rw")) == [2]


def test_threads_are_capped(monkeypatch):
    monkeypatch.setattr("engine.base.cpus._quotas", lambda proc: iter(()))
    assert usable_cpus() == 16
    assert [choose_threads(asked) for asked in (None, 1, 16, 100)] == [16, 1, 16, 16]


@pytest.mark.parametrize(("value", "threads"), [
    ("3", 3), (" 3 ", 3), ("4,2", 4), ("4 , 2, 1", 4), ("100", 16),
    ("", 16), ("0", 16), ("0,2", 16), ("-2", 16), ("two", 16), ("4,", 16), ("4,x", 16), ("2.0", 16), ("٣", 16),
    ("9" * 5000, 16),
])  # fmt: skip
def test_omp_num_threads_limits_the_choice_and_threads_overrides_it(monkeypatch, value, threads):
    monkeypatch.setattr("engine.base.cpus._quotas", lambda proc: iter(()))
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert choose_threads(None) == threads
    assert choose_threads(8) == 8
    assert usable_cpus() == 16
    assert ("OMP_NUM_THREADS" in [limit.source for limit in thread_limits()]) == (threads < 16 or value == "100")


@pytest.mark.parametrize("asked", [0, -1, 2.0, "2", True])
def test_impossible_threads(asked):
    with pytest.raises(InputError, match="threads must be"):
        choose_threads(asked)
