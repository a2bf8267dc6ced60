"""Writing a file replaces regular files only, keeps what it can of the old file, and says why it fails."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import WeightsError
from engine.cli import main as cli
from engine.files.writing import replacing

from ..tools.encoders import load_encoder, save_encoder
from ..tools.model_files import same
from ..tools.threads import begin
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text


def write(path: Path, data: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(data)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_symbolic_link_stays(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("home/file")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "home" / "file").read_bytes() == b"new"
    (tmp_path / "dangling").symlink_to("home/other")
    write(tmp_path / "dangling")
    assert names(tmp_path / "home") == ["file", "other"]
    assert names(tmp_path) == ["dangling", "home", "link"]


def test_permissions_stay(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o640)
    write(tmp_path / "file")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_temporary_file_has_no_wider_permissions(tmp_path):
    """It is private where it replaces a file, and has the usual permissions where it does not."""
    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    (tmp_path / "usual").touch()
    (tmp_path / "secret").touch()
    (tmp_path / "secret").chmod(0o640)
    (tmp_path / ".secret.tmp").write_bytes(b"of a process that was killed")
    (tmp_path / ".secret.tmp").chmod(0o644)
    with (tmp_path / ".secret.tmp").open("rb") as opened:
        for _ in range(2):
            with replacing(tmp_path / "secret") as file:
                file.write(b"secret")
                [temporary] = set(names(tmp_path)) - {"usual", "secret"}
                assert mode(temporary) == 0o600
        assert opened.read() == b"of a process that was killed"
    assert (names(tmp_path), mode("secret")) == (["secret", "usual"], 0o640)
    with replacing(tmp_path / "new") as file:
        file.write(b"new")
        assert mode(".new.tmp") == mode("usual")
    assert mode("new") == mode("usual")


@pytest.mark.parametrize("save", [
    lambda path: save_encoder(random_model(), path), lambda path: cli.main(["encode", str(path.with_name("m.npz")),
                                                                        str(path.with_name("text")), "-o", str(path)])])
def test_a_fifo_is_written_through(tmp_path, save):
    save_encoder(random_model(tiny_text()), tmp_path / "m.npz")
    (tmp_path / "text").write_text("the cat\n")
    fifo = tmp_path / "fifo.npy"
    os.mkfifo(fifo)
    reader = begin(fifo.read_bytes)
    save(fifo)
    read = reader.result(10)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    (tmp_path / "result.npz").write_bytes(read)
    if read.startswith(b"PK"):
        assert same(load_encoder(tmp_path / "result.npz"), random_model())
    else:
        assert np.load(tmp_path / "result.npz").shape == (1, 12)


def test_a_device_is_written_through(tmp_path):
    write(Path("/dev/null"))
    save_encoder(random_model(), "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_named(tmp_path, capsys):
    with pytest.raises(WeightsError, match="/dev/full: cannot be written: No space left on device"):
        save_encoder(random_model(), "/dev/full")
    save_encoder(random_model(tiny_text()), tmp_path / "m.npz")
    (tmp_path / "text").write_text("the cat\n")
    (tmp_path / "full.npy").symlink_to("/dev/full")
    assert cli.main(["encode", str(tmp_path / "m.npz"), str(tmp_path / "text"), "-o", str(tmp_path / "full.npy")]) == 1
    assert "No space left on device: " in capsys.readouterr().err


def test_a_limit_of_the_file_size_is_named(tmp_path):
    code = ("import resource, signal, sys; from engine.files.writing import replacing; from pathlib import Path\n"
            "import numpy as np\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
            "with replacing(Path(sys.argv[1])) as file: np.save(file, np.zeros(100_000))\n")
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out.npy")], capture_output=True, text=True)
    assert "File too large: '" in result.stderr
    assert names(tmp_path) == []


KILLED = """
import sys, time
from pathlib import Path
from engine.files.writing import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"partial" * 10_000)
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_kills_leave_one_temporary_file_which_is_used_again(tmp_path):
    target = tmp_path / "model.npz"
    target.write_bytes(b"old")
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert names(tmp_path) == [".model.npz.tmp", "model.npz"]
    assert target.read_bytes() == b"old"
    write(target)
    assert (target.read_bytes(), names(tmp_path)) == (b"new", ["model.npz"])


def test_two_writers_of_one_path_do_not_mix(tmp_path):
    with replacing(tmp_path / "file") as first:
        first.write(b"first")
        with replacing(tmp_path / "file") as second:
            second.write(b"second")
        assert (tmp_path / "file").read_bytes() == b"second"
    assert (tmp_path / "file").read_bytes() == b"first"
    assert names(tmp_path) == ["file"]


def test_a_temporary_file_of_another_kind_is_left_alone(tmp_path):
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / ".file.tmp").symlink_to("other")
    write(tmp_path / "file")
    os.link(tmp_path / "other", tmp_path / ".name.tmp")
    write(tmp_path / "name")
    assert (tmp_path / "other").read_bytes() == b"other"
    assert (tmp_path / "name").read_bytes() == b"new"


def test_a_long_name(tmp_path):
    write(tmp_path / ("ü" * 120))
    assert names(tmp_path) == ["ü" * 120]
