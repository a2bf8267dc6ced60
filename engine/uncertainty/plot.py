"""Draw attention weights, entropies of heads and reliability: as SVG pictures, or as matplotlib figures.

SVG needs no other package.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any
from unicodedata import category, east_asian_width

import numpy as np

from ..base.errors import InputError, UnsupportedError, shown
from .measures import Bin, Measures

__all__ = ["attention", "heads", "reliability"]

LONGEST = 18
"""Characters of a token that a label shows."""
MOST = 512
"""Most tokens on a side of a picture: a quarter of a million cells are more than a browser draws at ease."""

_STYLE = """
.attention text { font-family: ui-monospace, Menlo, Consolas, monospace; fill: #24292f }
.attention .soft { fill: #6e7781 }
.attention .cell { fill: #0a58ca }
.attention .strong { fill: #ffffff }
.attention .frame { fill: none; stroke: #8c959f; stroke-opacity: 0.5 }
@media (prefers-color-scheme: dark) {
.attention text { fill: #e6edf3 }
.attention .soft { fill: #9198a1 }
.attention .cell { fill: #58a6ff }
.attention .strong { fill: #0d1117 }
}"""


class Picture(str):
    """A picture in SVG: its text, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def __dir__() -> list[str]:
    """Return the functions, for completion: the names that this module imports are no part of it."""
    return __all__


def attention(weights: Any, tokens: Sequence[str], *, keys: Sequence[str] | None = None, title: str = "",
              maximum: float | None = None, as_figure: bool = False) -> Any:
    """Draw the attention weights of one head as a table of cells: a row for each token, a column for each of its keys.

    weights    [T,S], as `Engine.forward(..., output_attentions=[(layer, head)])` gives them, without padding
    tokens     the T tokens as text
    keys       the S tokens of the columns, where they are not the same
    title      a line above the picture
    maximum    the weight that has the full colour; None for the largest. A smaller one makes small weights visible
    as_figure  return a matplotlib figure, which needs matplotlib

    Returns an SVG picture as a string, which a notebook shows. Its background is transparent, and its colours follow
    the light or dark theme of the reader. A cell shows its weight where the mouse rests on it, and always if there are
    at most 12 columns.
    Raises `InputError` if the arguments do not fit, and `UnsupportedError` for a figure without matplotlib.
    """
    rows, columns = _labels("tokens", tokens), _labels("keys", tokens if keys is None else keys)
    table = _table(weights, len(rows), len(columns))
    draw = _figure if as_figure else _svg
    return draw(table, rows, columns, _checked_title(title), _maximum(maximum, table), _WEIGHTS)


def heads(shares: Any, *, title: str = "", as_figure: bool = False) -> Any:
    """Draw one number from 0 to 1 of each head as a table of cells: a row for each layer, a column for each head.

    shares     [L,H], such as the mean of `Look.shares` over tokens: entropies as shares of their maximum
    title      a line above the picture
    as_figure  return a matplotlib figure, which needs matplotlib

    Returns an SVG picture as a string, which a notebook shows. Raises `InputError` for shares of another form, and
    `UnsupportedError` for a figure without matplotlib.
    """
    table = np.asarray(shares)
    if table.ndim != 2:
        raise InputError(f"shares must be numbers of the shape [L, H], one for each head, not {shown(shares)}")
    L, H = table.shape
    rows = _labels("shares", [f"layer {i}" for i in range(L)])
    columns = _labels("shares", [f"{i}" for i in range(H)])
    draw = _figure if as_figure else _svg
    return draw(_table(table, L, H), rows, columns, _checked_title(title), 1.0, _SHARES)


def reliability(before: Measures | Sequence[Bin], after: Measures | Sequence[Bin] | None = None, *, title: str = "",
                as_figure: bool = False) -> Any:
    """Draw how often labels are right against how sure the model is of them, in bins of equal mass.

    before     the measures of a report of `engine.calibrate`, or bins; points on the diagonal are calibrated
    after      others, to compare them with
    title      a line above the picture
    as_figure  return a matplotlib figure, which needs matplotlib

    Returns an SVG picture as a string, which a notebook shows. Raises `InputError` if there are no bins, and
    `UnsupportedError` for a figure without matplotlib.
    """
    curves = {"before": _bins("before", before)} | ({} if after is None else {"after": _bins("after", after)})
    return (_reliability_figure if as_figure else _reliability_svg)(curves, _checked_title(title))


_WEIGHTS = ("token", "reads", "attention weight")
_SHARES = ("", "head", "of the largest entropy")
"""What the rows, the columns and the colours of a table are."""


def _bins(name: str, value: Any) -> list[Bin]:
    bins = list(value.reliability) if isinstance(value, Measures) else value
    if not isinstance(bins, (list, tuple)) or not bins or not all(isinstance(one, Bin) for one in bins):
        raise InputError(f"{name} must be the measures of a report of engine.calibrate, or a list of their bins, not "
                         f"{shown(value)}")
    return list(bins)


def _reliability_svg(curves: dict[str, list[Bin]], title: str) -> Picture:
    """Return a square with a point for each bin, confidence to the right and accuracy upwards, in pixels."""
    left, top, side = 52, 14 + 22 * bool(title), 260        # where the square begins, and its width, in pixels
    width, height = left + side + 130, top + side + 46
    parts = [f'<rect class="frame" x="{left}" y="{top}" width="{side}" height="{side}"/>',
             f'<line class="frame" x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}"/>']
    for i in range(0, 11, 2):
        tick, away = f"{i / 10:.1f}", i * side / 10       # the label, and its distance from the label 0
        parts.append(_text(tick, left + away, top + side + 15, size=10, style="soft", anchor="middle"))
        parts.append(_text(tick, left - 5, top + side - away + 3.5, size=10, style="soft", anchor="end"))
    parts.append(_text("confidence", left + side / 2, top + side + 34, size=11, style="soft", anchor="middle"))
    parts.append(f'<g transform="translate(13 {top + side / 2:.1f}) rotate(-90)">'
                 f'{_text("accuracy", x=0, y=0, size=11, style="soft", anchor="middle")}</g>')
    for n, (name, bins) in enumerate(curves.items()):
        opacity = 1.0 if n == len(curves) - 1 else 0.4       # "before" is faint beside "after"
        for one in bins:
            parts.append(f'<g><title>{name}, {one.count} texts: confidence {one.confidence:.3f}, accuracy '
                         f'{one.accuracy:.3f}</title><circle class="cell" cx="{left + one.confidence * side:.1f}" '
                         f'cy="{top + (1 - one.accuracy) * side:.1f}" r="4.5" fill-opacity="{opacity}"/></g>')
        y = top + 12 + 46 * n
        parts.append(f'<circle class="cell" cx="{left + side + 18}" cy="{y}" r="4.5" fill-opacity="{opacity}"/>')
        parts.append(_text(name, left + side + 28, y + 4, size=11, style=""))
        parts += [_text(text, left + side + 28, y + 4 + 13 * line, size=10, style="soft")
                  for line, text in enumerate(_counts(bins), 1)]
    return _picture(parts, width, height, title, what="reliability")


def _counts(bins: list[Bin]) -> tuple[str, str]:
    """Say how many texts a picture of reliability shows, and how many each of its points."""
    counts = [one.count for one in bins]
    least, most = min(counts), max(counts)
    return f"{sum(counts):,} texts,", f"{least:,}{f' to {most:,}' * (most > least)} a point"


def _reliability_figure(curves: dict[str, list[Bin]], title: str) -> Any:
    """Return the curves as a figure of matplotlib."""
    figure = _new_figure(4.6, 4.4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for name, bins in curves.items():
        axes.plot([one.confidence for one in bins], [one.accuracy for one in bins], "o-",
                  label=" ".join((name + ":", *_counts(bins))))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.legend()
    axes.set_title(title.replace("$", r"\$"), fontsize="medium")
    return figure


def _labels(name: str, tokens: Any) -> list[str]:
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"{name} must be a list of strings, one for each token, not {shown(tokens)}")
    if not 1 <= len(tokens) <= MOST:
        raise InputError(f"{name} must be 1 to {MOST} tokens, not {len(tokens)}; draw a part of the weights")
    return [_printable(token) for token in tokens]


def _checked_title(title: Any) -> str:
    if not isinstance(title, str):
        raise InputError(f"title must be a string, not {shown(title)}")
    return title


def _printable(token: str) -> str:
    """Return a token as a short line of printable characters: XML forbids most control characters."""
    text = _printable_line(token)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _printable_line(text: str) -> str:
    return "".join("\ufffd" if category(c) in ("Cc", "Cs", "Cn") else c for c in text)


def _table(weights: Any, T: int, S: int) -> np.ndarray:
    """Return attention weights as float64 [T, S]; raises `InputError`."""
    table = np.asarray(weights)
    if table.shape != (T, S) or table.dtype.kind not in "fiu":
        raise InputError(f"weights must be numbers of the shape [{T}, {S}], one for each pair of tokens, not "
                         f"{table.dtype} of the shape {list(table.shape)}; leave out padding, and pass one head")
    table = table.astype(np.float64)
    if not ((table >= 0) & (table <= 1 + 1e-3)).all():
        raise InputError("weights must be numbers from 0 to 1, as the softmax of attention gives them")
    return table


def _maximum(maximum: Any, table: np.ndarray) -> float:
    if maximum is None:
        return float(table.max()) or 1.0
    if isinstance(maximum, bool) or not isinstance(maximum, (int, float)) or not 0 < maximum <= 1:
        raise InputError(f"maximum must be None or a number above 0 and at most 1, not {shown(maximum)}")
    return float(maximum)


def _width(text: str, size: float) -> float:
    """Return about how wide a text is in a monospaced font of this size."""
    return size * sum(1.0 if east_asian_width(c) in "WF" else 0.62 for c in text)


def _svg(table: np.ndarray, rows: list[str], columns: list[str], title: str, top: float,
         captions: tuple[str, str, str]) -> Picture:
    """Return a table of cells [T,S] with labels. top: weight of the full colour. captions: of rows, columns, cells."""
    T, S = table.shape
    cell = min(34, max(14, 760 // max(T, S)))       # the side of a cell in pixels
    size = min(12, cell - 3)        # of the font of labels
    side = max(_width(label, size) for label in rows) + 30          # left of the table, with the caption of the rows
    angle = 45 if cell >= 20 else 65        # of the column labels: steep ones have room in narrow columns
    longest = max(_width(label, size) for label in columns)
    rise, run = longest * math.sin(math.radians(angle)), longest * math.cos(math.radians(angle))
    above = rise + size + 26 + 22 * bool(title)     # over the table, with the labels and the caption of the columns
    width = side + S * cell + max(run + 12, 16)
    height = above + T * cell + 44      # with the legend below the table
    parts = [_text(label, side - 6, above + (t + 0.5) * cell + size * 0.35, size, style="", anchor="end")
              for t, label in enumerate(rows)]
    parts += [f'<g transform="translate({side + (s + 0.5) * cell + size * 0.3:.1f} {above - 6:.1f}) rotate(-{angle})">'
              f"{_text(label, x=0, y=0, size=size, style='')}</g>" for s, label in enumerate(columns)]
    parts.append(f'<g transform="translate({size + 2} {above + T * cell / 2:.1f}) rotate(-90)">'
                 f'{_text(captions[0], x=0, y=0, size=11, style="soft", anchor="middle")}</g>')
    parts.append(_text(captions[1], side + S * cell / 2, above - rise - size - 8, 11, style="soft", anchor="middle"))
    parts += [_cell(table[t, s], top, f"{rows[t]} {captions[1]} {columns[s]}", side + s * cell, above + t * cell, cell,
                    numbered=S <= 12)
              for t in range(T) for s in range(S)]
    parts.append(f'<rect class="frame" x="{side:.1f}" y="{above:.1f}" width="{S * cell}" height="{T * cell}"/>')
    parts += _legend(top, side, above + T * cell + 16, captions[2])
    return _picture(parts, width, height, title, what=captions[2])


def _picture(parts: Iterable[str], width: float, height: float, title: str, what: str) -> Picture:
    """Return the picture of some parts, "" for none, with a title above it; what: it shows, where it has no title."""
    line = _printable_line(title)
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" class="attention" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{escape(line or what, quote=False)}</title><style>{_STYLE}\n</style>",
            _text(line, x=8, y=18, size=13, style="", weight="600") if title else ""]
    return Picture("\n".join(part for part in (*head, *parts) if part) + "\n</svg>\n")


def _cell(weight: float, top: float, name: str, x: float, y: float, side: int, numbered: bool) -> str:
    """Return one cell with its corner at (x, y), or "" if it would be too faint. numbered: whether it has a number."""
    share = min(1.0, weight / top)
    if share < 0.005:
        return ""
    number = ""
    if numbered:
        style = "strong" if share > 0.5 else ""
        short = f"{weight:.2f}" if weight >= 0.995 else f"{weight:.2f}"[1:]
        number = _text(short, x + side / 2, y + side / 2 + 3.5, 10, style, anchor="middle")
    return (f'<g><title>{escape(name, quote=False)}: {weight:.3f}</title><rect class="cell" x="{x + 0.5:.1f}" '
            f'y="{y + 0.5:.1f}" width="{side - 1}" height="{side - 1}" fill-opacity="{share:.3f}"/>{number}</g>')


def _legend(top: float, x: float, y: float, what: str) -> list[str]:
    """Return a bar of the colours from 0 to the weight of the full colour."""
    steps = [f'<rect class="cell" x="{x + 14 + 8 * i:.1f}" y="{y:.1f}" width="8" height="10" '
             f'fill-opacity="{(i + 1) / 12:.3f}"/>' for i in range(12)]
    return [_text("0", x, y + 9, 11, "soft"), *steps, _text(f"{top:.2g} {what}", x + 118, y + 9, 11, "soft")]


def _text(text: str, x: float, y: float, size: float, style: str, anchor: str = "start", weight: str = "") -> str:
    """Return a text at the place (x, y) in pixels, where its `anchor` is. style: a class of `_STYLE`; "" for none."""
    kind = f' class="{style}"' if style else ""
    bold = f' font-weight="{weight}"' if weight else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{kind}{bold} '
            f'xml:space="preserve">{escape(text, quote=False)}</text>')


def _new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of this size in inches; raises `UnsupportedError`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError("a figure needs the package matplotlib, which is not installed; leave out as_figure for "
                               "an SVG picture, which needs nothing") from error
    return Figure(figsize=(width, height), layout="constrained")


def _figure(table: np.ndarray, rows: list[str], columns: list[str], title: str, top: float,
            captions: tuple[str, str, str]) -> Any:
    """Return a table of weights as a figure of matplotlib, the darker the larger a weight is."""
    T, S = table.shape
    figure = _new_figure(2.2 + 0.28 * S, 1.8 + 0.28 * T)
    axes = figure.add_subplot()
    image = axes.imshow(table, cmap="Blues", vmin=0.0, vmax=top)
    # A dollar sign would begin a formula.
    axes.set_xticks(range(S), [label.replace("$", r"\$") for label in columns], rotation=45, ha="left")
    axes.set_yticks(range(T), [label.replace("$", r"\$") for label in rows])
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.set_ylabel(captions[0])
    axes.set_title(f"{title}\n{captions[1]}".strip().replace("$", r"\$"), fontsize="medium")
    figure.colorbar(image, ax=axes, shrink=0.6)
    return figure
