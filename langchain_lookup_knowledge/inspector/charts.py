"""Charts as inline SVG, so that a page needs no script.

They can be read without color, by keyboard and with a screen reader. The page defines the fill
patterns once; its stylesheet sets the colors by class, for light and dark mode. Sizes are shares of
the width, so that a chart fits any screen without scaling its texts.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

FILLS = ("solid", "stripes", "dots", "cross", "rows", "empty")
"""The CSS classes that distinguish the series of a chart, in order.

The first is a solid fill, the last only an outline; the others are patterns named by the class.
"""
LAYER_FILLS = {"reranker": "cross", "meaning": "solid", "words": "stripes", "hints": "dots"}
"""The fill for the share of a score that each layer gave."""


def _tag(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return an escaped element; `class_` becomes `class`, and other `_` become `-`."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup("").join(children))


def _filled(fill: str, x: float, y: float, width: float, height: float, *title: Markup) -> Markup:
    """Return a filled rectangle; its place and size are percentages."""
    pattern = {} if fill in ("solid", "empty") else {"fill": f"url(#{fill})"}
    sides = {"x": x, "y": y, "width": width, "height": height}
    place = {name: f"{value:.2f}%" for name, value in sides.items()}
    return _tag("rect", *title, class_=f"series {fill}", **place, **pattern)


def swatch(fill: str) -> Markup:
    """Return a small sample of a fill, for a legend."""
    return _tag("svg", _filled(fill, 6, 6, 88, 88), class_="swatch", aria_hidden="true")


def bar(share: float, fill: str = "solid") -> Markup:
    """Return a horizontal bar as long as a share of the width, 0 to 1; its number is next to it."""
    width = 100 * min(1.0, max(0.0, share))
    return _tag("svg", _filled(fill, 0, 0, width, 100), class_="bar", aria_hidden="true")


def owed(shares: Mapping[str, float], best: float) -> list[tuple[str, Markup, str]]:
    """Return what each layer gave to a score: its name, and a bar and a percentage of the best
    score.
    """
    if sum(shares.values()) <= 0 or best <= 0:
        return []
    others = {"meaning", "words"} if "reranker" in shares else {"reranker"}
    names = [name for name in LAYER_FILLS if name not in others]
    parts = {name: shares.get(name, 0.0) / best for name in names}
    return [(name, bar(part, LAYER_FILLS[name]), f"{part:.0%}") for name, part in parts.items()]


def stacked(
    name: str, title: str, counts: Mapping[str, Mapping[str, int]], series: Sequence[str]
) -> Markup:
    """Return a chart of stacked bars over time, with one bar per key of `counts`."""
    totals = [sum(parts.get(one, 0) for one in series) for parts in counts.values()]
    top = _round_up(max(totals, default=1))
    step = 100 / max(1, len(counts))
    drawn = [
        _tag("line", class_="level", x1=0, x2="100%", y1=f"{y}%", y2=f"{y}%") for y in (0, 50, 100)
    ]
    for place, (moment, parts) in enumerate(counts.items()):
        y = 100.0
        for one, fill in zip(series, FILLS, strict=False):
            if number := parts.get(one, 0):
                tall = 100 * number / top
                y -= tall
                label = _tag("title", f"{moment}: {number:,} {one}")
                left, wide = step * (place + 0.1), min(step * 0.8, 12)
                drawn.append(_filled(fill, left, y, wide, tall, label))
    described = (
        f"{sum(totals):,} lookups in {len(counts)} units of time; the table below has the numbers."
    )
    labels = (
        _tag("title", title, id=f"{name}-title"),
        _tag("desc", described, id=f"{name}-desc"),
    )
    picture = _tag(
        "svg",
        *labels,
        *drawn,
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )
    levels = (_tag("span", f"{top * share:,.0f}") for share in (1, 0.5, 0))
    moments = [*counts]
    ends = dict.fromkeys(moments[place] for place in (0, -1)) if moments else {}
    return _tag(
        "div",
        _tag("div", *levels, class_="levels", aria_hidden="true"),
        picture,
        _tag("div", *(_tag("span", end) for end in ends), class_="moments", aria_hidden="true"),
        class_="chart",
    )


def _round_up(number: int) -> int:
    """Round up to an even number with at most two significant digits."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return max(2, -(-number // (2 * unit)) * 2 * unit)
