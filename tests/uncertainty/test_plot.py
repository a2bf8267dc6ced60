"""Test the pictures of attention weights."""

import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import engine
from engine.base.errors import InputError, UnsupportedError

SVG = "{http://www.w3.org/2000/svg}"


def softmaxes(T, S, seed=0):
    weights = np.exp(np.random.default_rng(seed).standard_normal((T, S), np.float32))
    return weights / weights.sum(1, keepdims=True)


def cells(picture):
    """Return {(row, column): (title, opacity)} of a picture's cells, by their titles' order."""
    root = ET.fromstring(picture)
    found = []
    for group in root.iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        if title is not None:
            found.append((title.text, float(rect.get("fill-opacity"))))
    return found


def test_a_cell_for_each_pair():
    tokens = ["[CLS]", "a", "cat", "[SEP]"]
    weights = softmaxes(4, 4)
    found = cells(engine.plot.attention(weights, tokens))
    assert len(found) == 16
    assert found[6] == (f"a reads cat: {weights[1, 2]:.3f}", pytest.approx(weights[1, 2] / weights.max(), abs=1e-3))
    assert max(opacity for _, opacity in found) == 1


def test_a_notebook_shows_a_picture_and_completes_the_functions_alone():
    picture = engine.plot.heads(softmaxes(2, 3))
    assert picture._repr_svg_() == picture
    assert type(picture._repr_svg_()) is str
    assert dir(engine.plot) == ["attention", "heads", "reliability"]


def test_tokens_are_escaped():
    tokens = ["<b>", "&amp;", '"', "]]>", "\x00\x1b", "\ud800", "日本語", "e" * 100]
    picture = engine.plot.attention(softmaxes(8, 8), tokens, title="a < b & \x01")
    root = ET.fromstring(picture)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    for token in ("<b>", "&amp;", '"', "]]>", "\ufffd\ufffd", "\ufffd", "日本語", "e" * 17 + "…", "a < b & \ufffd"):
        assert token in texts
    assert not list(root.iter(f"{SVG}b"))
    picture.encode("utf-8")


@pytest.mark.parametrize("T", [1, 5, 60, 512])
def test_the_picture_holds_its_texts(T):
    """No label is left of the picture, above it, or right of it."""
    root = ET.fromstring(engine.plot.attention(np.eye(T), [f"token{t}" for t in range(T)], title="title"))
    width, height = (float(root.get(name)) for name in ("width", "height"))
    frame = next(rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "frame")
    x, y, w, h = (float(frame.get(name)) for name in ("x", "y", "width", "height"))
    size = float(root.find(f"{SVG}text").get("font-size"))
    label = 0.62 * size * len(f"token{T - 1}")
    assert x > label
    assert y > 0.7 * label
    assert x + w + 0.7 * label < width + size
    assert y + h + 20 < height


def test_other_keys_and_a_maximum():
    weights = softmaxes(2, 3)
    picture = engine.plot.attention(weights, ["a", "b"], keys=["x", "y", "z"], maximum=0.05)
    found = cells(picture)
    assert [title[:10] for title, _ in found] == [f"{t} reads {s}:" for t in "ab" for s in "xyz"]
    assert {opacity for _, opacity in found} == {1.0}
    assert "0.05 attention weight" in picture


@pytest.mark.parametrize(("weights", "tokens", "options", "told"), [
    (np.eye(3), ["a", "b"], {}, r"shape \[2, 2\].* not float64 of the shape \[3, 3\]; leave out padding"),
    (np.eye(2)[None], ["a", "b"], {}, "pass one head"),
    (np.eye(2) * 2, ["a", "b"], {}, "from 0 to 1"),
    (np.full((1, 1), np.nan), ["a"], {}, "from 0 to 1"),
    (np.eye(2), "ab", {}, "a list of strings"),
    (np.eye(2), [101, 102], {}, "a list of strings"),
    (np.eye(2), ["a", "b"], {"keys": []}, "keys must be 1 to 512 tokens, not 0"),
    (np.zeros((513, 513)), ["a"] * 513, {}, "draw a part"),
    (np.eye(2), ["a", "b"], {"maximum": 0}, "maximum must be"),
    (np.eye(2), ["a", "b"], {"maximum": True}, "maximum must be"),
    (np.eye(2), ["a", "b"], {"title": 3}, "title must be a string, not 3"),
], ids=range(11))  # fmt: skip
def test_what_cannot_be_drawn(weights, tokens, options, told):
    with pytest.raises(InputError, match=told):
        engine.plot.attention(weights, tokens, **options)


def test_a_figure_needs_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match="needs the package matplotlib"):
        engine.plot.attention(np.eye(2), ["a", "b"], as_figure=True)


def test_a_figure():
    pytest.importorskip("matplotlib", reason="pip install matplotlib")
    figure = engine.plot.attention(softmaxes(3, 4), ["a", "$b", "c"], keys=list("wxyz"), title="head", as_figure=True)
    axes = figure.axes[0]
    assert axes.images[0].get_array().shape == (3, 4)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", r"\$b", "c"]
    figure.canvas.draw()
