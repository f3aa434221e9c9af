"""Tables for notebooks."""

from collections.abc import Iterable
from html import escape


def html_table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; all texts are escaped, and line feeds become line breaks."""

    def row(cells: Iterable[str], tag: str) -> str:
        texts = (escape(cell).replace("\n", "<br>") for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    titles = tuple(head)
    first = row(titles, "th") if any(titles) else ""
    lines = first + "".join(row(cells, "td") for cells in rows)
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"
