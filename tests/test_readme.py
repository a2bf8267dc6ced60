"""The README's recipe for exporting a model by hand works as it is written."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_export_by_hand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export, load = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1:]
    names: dict = {}
    exec(export, names)
    exec(load, names)
    assert capsys.readouterr().out == "(1, 4, 64)\n"
