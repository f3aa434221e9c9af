"""An answer in a console and in a notebook."""

from collections.abc import Iterator, Sequence
from html import escape

from langchain_lookup_knowledge.text.search_terms import search_terms, term_spans
from langchain_lookup_knowledge.text.wording import counted, line_range
from langchain_lookup_knowledge.types import (
    L1_FAILED,
    LookupResult,
    Match,
    PrimaryMatch,
    Status,
)

NOT_SEARCHED: dict[Status, str] = {"refused": "Not answered", "invalid_query": "Not searched"}
"""What is shown for a lookup that made no search, by its status."""
SHOWN = ("query", "status", "matches", "relevance", "l1")
"""The parts of a result that are shown."""
_ONE = {"keywords": "keyword", "entities": "entity"}
_HOLDS = {"text": "its text has", "metadata": "its title or frontmatter has"}
_DECLARED = ("title", "keywords", "entities")


class Answer:
    """A result of a lookup that a notebook shows: each match with its path, the reason for it, and
    its text, with the words of the query marked; terms that the entry declares are bold, too.
    """

    def __init__(self, result: LookupResult) -> None:
        self.result = result

    def __repr__(self) -> str:
        matches = self.result["matches"]
        first = f", first {place_of(matches[0])}" if matches else ""
        return f"<Answer to {self.result['query']!r}: {trust_of(self.result)}{first}>"

    def _repr_html_(self) -> str:
        matches = "".join(self._shown(match) for match in self.result["matches"])
        trust = escape(trust_of(self.result))
        # prices in dollars are no formulas
        return f'<div class="tex2jax_ignore mathjax_ignore">{matches}<p>{trust}</p></div>'

    def _shown(self, match: Match) -> str:
        declared = [one["text"] for one in match["matched"] if one["field"] in _DECLARED]
        strong = set().union(*map(search_terms, declared))
        words = strong.union(search_terms(self.result["query"]))
        is_open = " open" if match is self.result["matches"][0] else ""
        title, place = _marked(match["title"], words, strong), escape(place_of(match))
        return (
            f"<details{is_open}><summary><b>{title}</b> <code>{place}</code></summary>"
            f"<p>because: {escape(why(match))}</p>"
            f"{''.join(_passages(match, words, strong))}</details>"
        )


def _passages(match: Match, words: set[str], strong: set[str]) -> Iterator[str]:
    """Yield the passages of a match as HTML, in the order of the file. The location of a passage is
    shown if there are several, or if it is embedded.
    """
    passages = sorted(match["passages"], key=lambda passage: passage["span"])
    for passage in passages:
        source = passage.get("path", match["source"])
        if len(passages) > 1 or source != match["source"]:
            heading = f" {escape(passage['heading'])}" if passage["heading"] else ""
            yield f"<p><code>{escape(source + line_range(passage['lines']))}</code>{heading}</p>"
        text = match["snippet"][slice(*passage["span"])].strip()
        yield f"<blockquote>{_marked(text, words, strong)}</blockquote>"
    if not passages:
        yield f"<blockquote>{_marked(match['snippet'], words, strong)}</blockquote>"


def _marked(text: str, words: set[str], strong: set[str]) -> str:
    """Return a text as HTML, with the given search terms marked, and the strong ones in bold."""
    parts, last = [], 0
    for start, end in term_spans(text, words):
        word = escape(text[start:end])
        bold = f"<b>{word}</b>" if strong.intersection(search_terms(text[start:end])) else word
        parts += [escape(text[last:start]), f"<mark>{bold}</mark>"]
        last = end
    return "".join([*parts, escape(text[last:])]).replace("\n", "<br>")


def place_of(match: PrimaryMatch) -> str:
    """Return the path and the lines of a match."""
    return match["source"] + line_range(match["lines"])


def why(match: PrimaryMatch) -> str:
    """Return why an entry matched: declared terms, words in its text, and its similarity."""
    return "; ".join(_reasons(match)) or "the order of the list"


def _reasons(match: PrimaryMatch) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for matched in match["matched"]:
        found.setdefault(matched["field"], []).append(matched["text"])
    for field, texts in found.items():
        if phrase := _HOLDS.get(field):
            yield f"{phrase} {_quoted(' '.join(texts).split())}"
        else:
            yield f"{_ONE.get(field, field)} {_quoted(texts)}"
    if match["similarity"] is not None:
        yield f"similarity {match['similarity']:.2f}"


def _quoted(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words))


def trust_of(result: LookupResult) -> str:
    """Return how many matches there are, how relevant they claim to be, and what failed."""
    l1, relevance = result["l1"], result["relevance"]
    missing = l1["status"] in L1_FAILED
    failed = f" Vector search did not take part: {l1['reason']}." if missing else ""
    if what := NOT_SEARCHED.get(result["status"]):
        return f"{what}: {relevance['reason']}."
    if not result["matches"]:
        reason = l1["reason"]
        because = f": {reason}" if reason and not missing and l1["status"] != "disabled" else ""
        off = f" Vector search is off ({reason})." if l1["status"] == "disabled" else failed
        return f"Nothing found{because}.{off}"
    count = counted(len(result["matches"]), "match", "matches")
    doubt = " The answer may not be in this folder." if relevance["level"] == "low" else ""
    has_note = l1["status"] == "ok" and l1["reason"] and l1["reason"] not in relevance["reason"]
    note = f" Note: {l1['reason']}." if has_note else ""
    return f"{count}, relevance {relevance['level']} ({relevance['reason']}).{doubt}{failed}{note}"
