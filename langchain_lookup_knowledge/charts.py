"""Charts as inline SVG, drawn here so that a page needs no script: readable without colour, by keyboard and screen reader.

Fills are patterns that the page defines once; colours come from its stylesheet, by class, for light and dark.
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

WIDTH = 640
FILLS = ("solid", "stripes", "dots", "cross", "empty")
"""The classes of series, in order; the first is filled, the last only outlined, the others have a pattern of that name."""


def _tag(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return an SVG element, everything in it escaped; `class_` stands for `class`, and `_` for `-`."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup("").join(children))


def _figure(name: str, title: str, description: str, size: tuple[int, int], *children: Markup) -> Markup:
    labels = _tag("title", title, id=f"{name}-title"), _tag("desc", description, id=f"{name}-desc")
    return _tag(
        "svg",
        *(*labels, *children),
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
    )


def _filled(fill: str, title: str, x: float, y: float, width: float, height: float) -> Markup:
    pattern = {} if fill in ("solid", "empty") else {"fill": f"url(#{fill})"}
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return _tag("rect", _tag("title", title), class_=f"series {fill}", **place, **pattern)


def swatch(fill: str) -> Markup:
    """Return the sample of a series for a legend."""
    return _tag("svg", _filled(fill, "", 1, 1, 14, 14), viewBox="0 0 16 16", class_="swatch", aria_hidden="true")


def stacked(name: str, title: str, counts: Mapping[str, Mapping[str, int]], series: Sequence[str]) -> Markup:
    """Return bars over time, one for each key of `counts`, in which the series stand on each other."""
    height, left, bottom = 190, 44, 160
    totals = [sum(parts.get(one, 0) for one in series) for parts in counts.values()]
    top = _round_up(max(totals, default=1))
    step = (WIDTH - left) / max(1, len(counts))
    drawn = [_level(left, bottom - share * 150, f"{top * share:,.0f}") for share in (0, 0.5, 1)]
    for place, (moment, parts) in enumerate(counts.items()):
        y = float(bottom)
        for one, fill in zip(series, FILLS, strict=False):
            if number := parts.get(one, 0):
                tall = 150 * number / top
                y -= tall
                label = f"{moment}: {number:,} {one}"
                drawn.append(_filled(fill, label, left + step * (place + 0.12), y, min(step * 0.76, 60), tall))
    moments = list(counts)
    for place in sorted({0, len(moments) // 2, len(moments) - 1} if moments else ()):
        x = left + step * place + min(step, 78) / 2
        anchor = "end" if place and place == len(moments) - 1 and step < 78 else "start" if step < 78 else "middle"
        drawn.append(_tag("text", moments[place], x=f"{x:.1f}", y=height - 8, text_anchor=anchor))
    described = f"{sum(totals):,} lookups in {len(counts)} units of time; the table below has the numbers."
    return _figure(name, title, described, (WIDTH, height), *drawn)


def _round_up(number: int) -> int:
    """Return the next even number that is round in its first two digits."""
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return max(2, -(-number // (2 * unit)) * 2 * unit)


def _level(left: float, y: float, label: str) -> Markup:
    line = _tag("line", class_="level", x1=left, x2=WIDTH, y1=f"{y:.1f}", y2=f"{y:.1f}")
    return line + _tag("text", label, x=left - 6, y=f"{y + 4:.1f}", text_anchor="end")


def bars(name: str, title: str, values: Mapping[str, float], unit: str) -> Markup:
    """Return one horizontal bar for each value, with its label and number."""
    top = max([*values.values(), 1e-9])
    drawn = []
    for place, (label, value) in enumerate(values.items()):
        y = 24 * place
        drawn.append(_tag("text", label, x=170, y=y + 16, text_anchor="end"))
        drawn.append(_filled("solid", f"{label}: {value:.2f} {unit}", 180, y + 4, max(1, 360 * value / top), 15))
        drawn.append(_tag("text", f"{value:.2f} {unit}", x=f"{188 + 360 * value / top:.1f}", y=y + 16))
    listed = ", ".join(f"{label} {value:.2f} {unit}" for label, value in values.items())
    return _figure(name, title, listed, (WIDTH, 24 * len(values) + 4), *drawn)


def slopes(name: str, title: str, before: Sequence[str], after: Sequence[str]) -> Markup:
    """Return two rankings side by side, a line from each item of `before` to its place in `after`.

    A line that falls is dashed; an item that is gone is hollow, one that is new a square.
    """
    drawn = [_tag("text", "L1's ranking", x=340, y=16, text_anchor="end", class_="heading")]
    drawn.append(_tag("text", "the answer", x=460, y=16, class_="heading"))
    for rank, item in enumerate(before):
        y = 40 + 26 * rank
        if item in after:
            course = "falls" if after.index(item) > rank else "rises" if after.index(item) < rank else "stays"
            drawn.append(_tag("line", class_=f"slope {course}", x1=362, y1=y, x2=438, y2=40 + 26 * after.index(item)))
        drawn.append(_tag("circle", class_="place kept" if item in after else "place", cx=354, cy=y, r=6))
        drawn.append(_tag("text", f"{_short(item)}  {rank + 1}", x=340, y=y + 5, text_anchor="end"))
    for rank, item in enumerate(after):
        y = 40 + 26 * rank
        shape = {"cx": 446, "cy": y, "r": 6} if item in before else {"x": 440, "y": y - 6, "width": 12, "height": 12}
        drawn.append(_tag("circle" if item in before else "rect", class_="place kept", **shape))
        drawn.append(_tag("text", f"{rank + 1}  {_short(item)}", x=460, y=y + 5, class_="first" if rank == 0 else ""))
    described = f"{len(before)} candidates, {len(after)} matches; the table below has their places and scores."
    return _figure(name, title, described, (800, 30 + 26 * max(len(before), len(after))), *drawn)


def _short(text: str, limit: int = 42) -> str:
    return text if len(text) <= limit else "…" + text[1 - limit :]
