"""Draw attention weights, entropies of heads and reliability: as SVG pictures, which need no package, or by matplotlib.

Users call `attention`, `heads` and `reliability`. Sizes and places in SVG are in pixels, y downwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any
from unicodedata import category, east_asian_width

import numpy as np

from ..base.arguments import is_number
from ..base.errors import InputError, UnsupportedError, shown
from .measures import Bin, Measures

__all__ = ["attention", "heads", "reliability"]

LONGEST_LABEL = 18
"""The most characters of a token that a label shows."""
MOST_TOKENS = 512
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
    """The text of an SVG picture, a string that a notebook shows as the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:        # the method by which Jupyter asks for SVG
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
    return draw(table, rows, columns, _checked_title(title), _maximum(maximum, table), _WEIGHT_CAPTIONS)


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
    return draw(_table(table, L, H), rows, columns, _checked_title(title), 1.0, _SHARE_CAPTIONS)


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


_WEIGHT_CAPTIONS = ("token", "reads", "attention weight")
_SHARE_CAPTIONS = ("", "head", "of the largest entropy")
"""The captions of the rows, of the columns and of the colours of a table."""


def _bins(name: str, value: Any) -> list[Bin]:
    """Return the bins of the argument `name`, which is measures or bins; raises `InputError`."""
    bins = list(value.reliability) if isinstance(value, Measures) else value
    if not isinstance(bins, (list, tuple)) or not bins or not all(isinstance(each, Bin) for each in bins):
        raise InputError(f"{name} must be the measures of a report of engine.calibrate, or a list of their bins, not "
                         f"{shown(value)}")
    return list(bins)


def _reliability_svg(curves: dict[str, list[Bin]], title: str) -> Picture:
    """Return a square with a point for each bin, confidence to the right and accuracy upwards; curves: bins by name."""
    left, top, side = 52, 14 + 22 * bool(title), 260        # the corner of the square, and its width
    width, height = left + side + 130, top + side + 46      # room for the legend at the right, and for labels below
    parts = [f'<rect class="frame" x="{left}" y="{top}" width="{side}" height="{side}"/>',
             f'<line class="frame" x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}"/>']
    for i in range(0, 11, 2):
        tick, offset = f"{i / 10:.1f}", i * side / 10       # the label, and its distance from the label 0.0
        parts.append(_text(tick, left + offset, top + side + 15, size=10, style="soft", anchor="middle"))
        parts.append(_text(tick, left - 5, top + side - offset + 3.5, size=10, style="soft", anchor="end"))
    parts.append(_text("confidence", left + side / 2, top + side + 34, size=11, style="soft", anchor="middle"))
    parts.append(f'<g transform="translate(13 {top + side / 2:.1f}) rotate(-90)">'
                 f'{_text("accuracy", x=0, y=0, size=11, style="soft", anchor="middle")}</g>')
    for n, (name, bins) in enumerate(curves.items()):
        opacity = 1.0 if n == len(curves) - 1 else 0.4       # "before" is faint beside "after"
        for each in bins:
            parts.append(f'<g><title>{name}, {each.count} texts: confidence {each.confidence:.3f}, accuracy '
                         f'{each.accuracy:.3f}</title><circle class="cell" cx="{left + each.confidence * side:.1f}" '
                         f'cy="{top + (1 - each.accuracy) * side:.1f}" r="4.5" fill-opacity="{opacity}"/></g>')
        y = top + 12 + 46 * n       # the legend has a point, a name and two lines for each curve
        parts.append(f'<circle class="cell" cx="{left + side + 18}" cy="{y}" r="4.5" fill-opacity="{opacity}"/>')
        parts.append(_text(name, left + side + 28, y + 4, size=11, style=""))
        parts += [_text(text, left + side + 28, y + 4 + 13 * line, size=10, style="soft")
                  for line, text in enumerate(_describe_counts(bins), 1)]
    return _picture(parts, width, height, title, what="reliability")


def _describe_counts(bins: list[Bin]) -> tuple[str, str]:
    """Return two lines for the legend: how many texts a curve has, and how many each of its points stands for."""
    counts = [each.count for each in bins]
    least, most = min(counts), max(counts)
    return f"{sum(counts):,} texts,", f"{least:,}{f' to {most:,}' * (most > least)} a point"


def _reliability_figure(curves: dict[str, list[Bin]], title: str) -> Any:
    """Return the curves as a figure of matplotlib."""
    figure = _new_figure(4.6, 4.4)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    for name, bins in curves.items():
        axes.plot([each.confidence for each in bins], [each.accuracy for each in bins], "o-",
                  label=" ".join((name + ":", *_describe_counts(bins))))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy")
    axes.legend()
    axes.set_title(title.replace("$", r"\$"), fontsize="medium")
    return figure


def _labels(name: str, tokens: Any) -> list[str]:
    """Return the labels of rows or columns for the argument `name`; raises `InputError` unless it lists texts."""
    if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
        raise InputError(f"{name} must be a list of strings, one for each token, not {shown(tokens)}")
    if not 1 <= len(tokens) <= MOST_TOKENS:
        raise InputError(f"{name} must be 1 to {MOST_TOKENS} tokens, not {len(tokens)}; draw a part of the weights")
    return [_printable(token) for token in tokens]


def _checked_title(title: Any) -> str:
    """Return a title; raises `InputError` unless it is a string."""
    if not isinstance(title, str):
        raise InputError(f"title must be a string, not {shown(title)}")
    return title


def _printable(token: str) -> str:
    """Return a token as a printable label of at most `LONGEST_LABEL` characters."""
    text = _printable_line(token)
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _printable_line(text: str) -> str:
    """Replace control characters, which XML forbids, and what is no character, by U+FFFD."""
    return "".join("\ufffd" if category(c) in ("Cc", "Cs", "Cn") else c for c in text)


def _table(weights: Any, T: int, S: int) -> np.ndarray:
    """Return attention weights as float64 [T, S]; raises `InputError` for another shape, or numbers not from 0 to 1."""
    table = np.asarray(weights)
    if table.shape != (T, S) or table.dtype.kind not in "fiu":
        raise InputError(f"weights must be numbers of the shape [{T}, {S}], one for each pair of tokens, not "
                         f"{table.dtype} of the shape {list(table.shape)}; leave out padding, and pass one head")
    table = table.astype(np.float64)
    if not ((table >= 0) & (table <= 1 + 1e-3)).all():
        raise InputError("weights must be numbers from 0 to 1, as the softmax of attention gives them")
    return table


def _maximum(maximum: Any, table: np.ndarray) -> float:
    """Return the weight of the full colour: the caller's, or the largest one of the table; raises `InputError`."""
    if maximum is None:
        return float(table.max()) or 1.0        # cells are divided by it, also where all weights are 0
    if not is_number(maximum) or not 0 < maximum <= 1:
        raise InputError(f"maximum must be None or a number above 0 and at most 1, not {shown(maximum)}")
    return float(maximum)


def _width(text: str, size: float) -> float:
    """Return the approximate width of a text in a monospaced font of this size, in pixels."""
    return size * sum(1.0 if east_asian_width(c) in "WF" else 0.62 for c in text)


def _svg(table: np.ndarray, rows: list[str], columns: list[str], title: str, full_weight: float,
         captions: tuple[str, str, str]) -> Picture:
    """Return a table of cells [T,S] with labels. captions: of rows, columns, colours."""
    T, S = table.shape
    cell = min(34, max(14, 760 // max(T, S)))       # the side of a cell: cells fill 760 pixels, within limits
    size = min(12, cell - 3)        # the font size of labels
    left = max(_width(label, size) for label in rows) + 30          # the table begins here, after labels and caption
    angle = 45 if cell >= 20 else 65        # of the column labels, in degrees: steep ones fit narrow columns
    longest = max(_width(label, size) for label in columns)
    rise, run = longest * math.sin(math.radians(angle)), longest * math.cos(math.radians(angle))
    top = rise + size + 26 + 22 * bool(title)     # the table begins here, below labels and caption of the columns
    width = left + S * cell + max(run + 12, 16)
    height = top + T * cell + 44      # with the legend below the table
    parts = [_text(label, left - 6, top + (t + 0.5) * cell + size * 0.35, size, style="", anchor="end")
              for t, label in enumerate(rows)]
    parts += [f'<g transform="translate({left + (s + 0.5) * cell + size * 0.3:.1f} {top - 6:.1f}) rotate(-{angle})">'
              f"{_text(label, x=0, y=0, size=size, style='')}</g>" for s, label in enumerate(columns)]
    parts.append(f'<g transform="translate({size + 2} {top + T * cell / 2:.1f}) rotate(-90)">'
                 f'{_text(captions[0], x=0, y=0, size=11, style="soft", anchor="middle")}</g>')
    parts.append(_text(captions[1], left + S * cell / 2, top - rise - size - 8, 11, style="soft", anchor="middle"))
    parts += [_cell(table[t, s], full_weight, f"{rows[t]} {captions[1]} {columns[s]}", left + s * cell, top + t * cell,
                    cell, numbered=S <= 12)
              for t in range(T) for s in range(S)]
    parts.append(f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{S * cell}" height="{T * cell}"/>')
    parts += _legend(full_weight, left, top + T * cell + 16, captions[2])
    return _picture(parts, width, height, title, what=captions[2])


def _picture(parts: Iterable[str], width: float, height: float, title: str, what: str) -> Picture:
    """Return a picture of SVG elements ("" is none) below a title. what: replaces an empty title in the description."""
    line = _printable_line(title)
    opening = [f'<svg xmlns="http://www.w3.org/2000/svg" class="attention" width="{width:.0f}" height="{height:.0f}" '
               f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
               f"<title>{escape(line or what, quote=False)}</title><style>{_STYLE}\n</style>",
               _text(line, x=8, y=18, size=13, style="", weight="600") if title else ""]
    return Picture("\n".join(part for part in (*opening, *parts) if part) + "\n</svg>\n")


def _cell(weight: float, full_weight: float, name: str, x: float, y: float, side: int, numbered: bool) -> str:
    """Return a cell of width `side` with its upper left corner at (x, y), or "" if its colour would be too faint.

    full_weight: that of the full colour. name: what the mouse shows before the weight. numbered: prints the weight.
    """
    share = min(1.0, weight / full_weight)
    if share < 0.005:
        return ""
    number = ""
    if numbered:
        style = "strong" if share > 0.5 else ""
        short = f"{weight:.2f}" if weight >= 0.995 else f"{weight:.2f}"[1:]     # 1.00, or .25 without the 0
        number = _text(short, x + side / 2, y + side / 2 + 3.5, 10, style, anchor="middle")
    return (f'<g><title>{escape(name, quote=False)}: {weight:.3f}</title><rect class="cell" x="{x + 0.5:.1f}" '
            f'y="{y + 0.5:.1f}" width="{side - 1}" height="{side - 1}" fill-opacity="{share:.3f}"/>{number}</g>')


def _legend(full_weight: float, x: float, y: float, what: str) -> list[str]:
    """Return a bar at (x, y) of 12 colours from 0 to `full_weight`, labelled; what: the name of the weights."""
    steps = [f'<rect class="cell" x="{x + 14 + 8 * i:.1f}" y="{y:.1f}" width="8" height="10" '
             f'fill-opacity="{(i + 1) / 12:.3f}"/>' for i in range(12)]
    return [_text("0", x, y + 9, 11, "soft"), *steps, _text(f"{full_weight:.2g} {what}", x + 118, y + 9, 11, "soft")]


def _text(text: str, x: float, y: float, size: float, style: str, anchor: str = "start", weight: str = "") -> str:
    """Return a text whose start, middle or end, as `anchor` says, is at (x, y). style: a class of `_STYLE`, or ""."""
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


def _figure(table: np.ndarray, rows: list[str], columns: list[str], title: str, full_weight: float,
            captions: tuple[str, str, str]) -> Any:
    """Return the picture of `_svg` as a figure of matplotlib, whose sizes are in inches."""
    T, S = table.shape
    figure = _new_figure(2.2 + 0.28 * S, 1.8 + 0.28 * T)
    axes = figure.add_subplot()
    image = axes.imshow(table, cmap="Blues", vmin=0.0, vmax=full_weight)
    # A dollar sign would begin a formula.
    axes.set_xticks(range(S), [label.replace("$", r"\$") for label in columns], rotation=45, ha="left")
    axes.set_yticks(range(T), [label.replace("$", r"\$") for label in rows])
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.set_ylabel(captions[0])
    axes.set_title(f"{title}\n{captions[1]}".strip().replace("$", r"\$"), fontsize="medium")
    figure.colorbar(image, ax=axes, shrink=0.6)
    return figure
