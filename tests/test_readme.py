"""The recipe for exporting a model by hand works as docs/npz.md shows it."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "npz.md").read_text(encoding="utf-8")


def test_export_by_hand(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export, load = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]
    names: dict = {}
    exec(export, names)
    exec(load, names)
    assert capsys.readouterr().out == "(1, 4, 64)\n"
