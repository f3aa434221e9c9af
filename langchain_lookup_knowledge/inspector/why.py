"""Why a lookup was answered as it was, in sentences; made from its record alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from langchain_lookup_knowledge.inspector.texts import shown, whole
from langchain_lookup_knowledge.lookup.answer.merging import WEAK
from langchain_lookup_knowledge.text.search_terms import is_exact, parts_of, written_terms
from langchain_lookup_knowledge.text.wording import NO_PASSAGE_HOLDS, counted, named_lines
from langchain_lookup_knowledge.types import L1_FAILED, Invocation

MAX_WORDS = 4
"""Maximum number of words that a sentence quotes."""
MAX_UNBROKEN = 24
"""Maximum characters of a quoted word that is never broken over two lines."""
MAX_NEXT = 3
"""Maximum number of entries that are named as what would have come next."""
MAX_FEW = 3
"""Maximum number of passages that are called only a few."""
LEAST_SHARE = 0.05
"""Share of the score below which a layer is not named as a reason."""
_NOT_READ = {
    "ok": "What was read cannot be told: its record is partly unreadable.",
    "no_match": "Not found.",
    "refused": "Not answered.",
    "invalid_query": "Not read.",
}
_NOT_SEARCHED = {"refused": "Refused", "invalid_query": "Not searched"}


def answer_sentence(invocation: Invocation, details: Mapping[str, Any]) -> Markup:
    """Return what was found, where, and why, as a person would say it."""
    status, l1 = invocation["status"], details["l1"]
    if status == "cancelled":
        return Markup("Cancelled before there was an answer.")
    if status in _NOT_SEARCHED:
        return Markup("{}: {}.").format(_NOT_SEARCHED[status], _plain(details["relevance"]))
    if not details["matches"]:
        return Markup("{}").format(_nothing(l1))
    first = details["matches"][0]
    reasons = list(_reasons(invocation, details, first))
    because = Markup(", because {}").format(Markup("; ").join(reasons)) if reasons else ""
    alone = " by keywords alone" if l1["status"] in (*L1_FAILED, "disabled") else ""
    low = details["relevance"]["level"] == "low"
    found = f"The nearest{alone} is" if low else f"Found{alone} in"
    return Markup("{} {}{}{}.").format(found, title_of(first), _lines(first), because)


def read_sentence(
    invocation: Invocation, details: Mapping[str, Any], match: Mapping[str, Any] | None
) -> Markup:
    """Return what a call of the read tool read, or why it read nothing."""
    if match:
        return Markup("Read {}{}.").format(title_of(match), _lines(match))
    reason = details.get("reason")  # it is dropped with a query stored as a hash
    return Markup("{}").format(
        shown(reason, 500) if isinstance(reason, str) else _NOT_READ[str(invocation["status"])]
    )


def vector_search_note(details: Mapping[str, Any]) -> Markup | None:
    """Return what hindered vector search; None if nothing did, or if there are no matches: then
    `answer_sentence` says it.
    """
    l1 = details["l1"]
    if not details["matches"] or l1["status"] == "disabled" or not l1["reason"]:
        return None
    what = "Vector search did not take part" if l1["status"] in L1_FAILED else "Vector search"
    return Markup("{}: {}.").format(what, shown(l1["reason"], 500))


def _plain(relevance: Mapping[str, Any]) -> str:
    return shown(relevance["reason"], 500)


def _why_l1(l1: Mapping[str, Any]) -> str:
    return shown(l1["reason"], 500) if l1["reason"] else str(l1["status"])


def _nothing(l1: Mapping[str, Any]) -> str:
    if l1["status"] in L1_FAILED:
        return (
            "Nothing found: the query names no title, keyword or entity, and vector search did "
            f"not take part ({_why_l1(l1)})."
        )
    if l1["reason"]:
        return f"Nothing found: {shown(l1['reason'], 500)}."
    if l1["status"] == "unknown":
        return "Nothing found."
    return "Nothing found: no passage, title, keyword or entity matched."


def title_of(item: Mapping[str, Any]) -> Markup:
    """Return the title of a match in bold, or its id if its title was not recorded."""
    name = item.get("title") or item["entry_id"]
    return Markup("<strong><bdi>{}</bdi></strong>").format(whole(shown(name, 120)))


def _lines(match: Mapping[str, Any]) -> str:
    if not match["lines"]:
        return ""
    return f", {named_lines(match['lines'])}"


def _reasons(
    invocation: Invocation, details: Mapping[str, Any], match: Mapping[str, Any]
) -> Iterator[Markup]:
    """Yield why a match is first, the layer that gave most to its score first."""
    if details["l1"].get("reranked") is True:
        yield Markup("the reranker put it first")
    least = LEAST_SHARE * (match["score"] or 1.0)
    shares = {} if "reranker" in match["shares"] else match["shares"]
    hints = _declared(details, match)
    words = [
        word
        for word in _held_words(invocation["query"] or "", details, match)
        if not any(word.casefold() in term and word.casefold() != term for term in hints)
    ]
    words.sort(key=lambda word: word.casefold() not in hints)
    both = hints.get(words[0].casefold(), "") if words else ""
    hints = {term: what for term, what in hints.items() if term not in map(str.casefold, words)}
    alone = match["layers"] == ["L0"]  # found by its declared terms, whatever its text holds
    order = ("hints", "words", "meaning") if alone else ("words", "hints", "meaning")
    layers = sorted(order, key=lambda layer: -shares.get(layer, 0.0))
    said = {
        "words": _by_words(words, details, both),
        "hints": _by_hints(hints, match),
        "meaning": _by_meaning(details, match, leads=bool(shares) and layers[0] == "meaning"),
    }
    for layer in layers:
        if said[layer] and (not shares or shares.get(layer, 0.0) >= least):
            yield Markup("; ").join(said[layer])


def _by_meaning(
    details: Mapping[str, Any], match: Mapping[str, Any], *, leads: bool
) -> list[Markup]:
    if match["similarity"] is None:
        return []
    relevance = details["relevance"]
    doubtful = relevance["level"] == "low" or not relevance["semantic_support"]
    others = (*details["candidates"], *details["matches"])
    if leads:
        nearest = all(match["similarity"] >= (one["similarity"] or -1.0) for one in others)
        near = "comes nearest" if nearest else "is near"
        agrees = f"its meaning {near}, {'though only ' if doubtful else ''}at"
    else:
        agrees = f"meaning agrees {'only ' if doubtful else ''}at"
    return [Markup("{} {:.2f}").format(agrees, match["similarity"])]


def _held_words(query: str, details: Mapping[str, Any], match: Mapping[str, Any]) -> list[str]:
    """Return the words of the query that the shown text of a match holds, the rarest first."""
    held = matched_words(match)
    written = {term: word for term, word in written_terms(query).items() if word in held}
    parts = parts_of(written)
    order = sorted(
        (term for term in written if term not in parts),
        key=lambda term: (not is_exact(term), details["rare"].get(term, 1e9)),
    )
    return list(dict.fromkeys(written[term] for term in order)) or sorted(held)


def _by_words(words: Sequence[str], details: Mapping[str, Any], declared: str) -> list[Markup]:
    """Return what the text holds, and how rare the first word is; `declared` says that the match
    declares it, too.
    """
    if not words:
        return []
    number = int(max((details["rare"].get(term, 0) for term in written_terms(words[0])), default=0))
    if not declared and not number:
        return [Markup("it holds {}").format(_quoted(words))]
    few = "only " if number <= MAX_FEW else ""
    only = f"which is in {few}{counted(number, 'passage', 'passages')}"
    said = [Markup("it holds {}, {}").format(_quoted(words[:1]), declared or only)]
    if words[1:]:
        said.append(Markup("it also holds {}").format(_quoted(words[1:])))
    return said


def matched_words(match: Mapping[str, Any]) -> set[str]:
    """Return the words of the query that the shown text of a match contains."""
    texts = (matched["text"] for matched in match["matched"] if matched["field"] == "text")
    return {word for text in texts for word in text.split()}


def _declared(details: Mapping[str, Any], match: Mapping[str, Any]) -> dict[str, str]:
    """Return the declared terms of a match that the query names, and what each is, such as "its
    keyword, which only one file holds".
    """
    terms = {(term["field"], term["text"]): term for term in details["l0_hints"]["terms"]}
    names = {"title": "its title", "keywords": "its keyword", "entities": "its entity"}
    found: dict[str, str] = {}
    title = match.get("title", "")
    by_title = [{"field": "title", "text": title}] if ("title", title) in terms else []
    for matched in [*by_title, *match["matched"]]:
        if name := names.get(matched["field"]):
            term = terms.get((matched["field"], matched["text"]))
            number = int(term["document_frequency"]) if term and term["specific"] else 0
            files = "only one file holds" if number == 1 else f"{number} files hold"
            what = f"{name}, which {files}" if number else name
            found.setdefault(matched["text"].casefold(), what)
    return found


def _by_hints(declared: Mapping[str, str], match: Mapping[str, Any]) -> list[Markup]:
    """Return which declared terms of the match the query names."""
    texts = {matched["text"].casefold(): matched["text"] for matched in match["matched"]}
    texts.setdefault(match.get("title", "").casefold(), match.get("title", ""))
    said = [
        Markup("the query names {}, {}").format(_quoted([texts[term]]), what)
        for term, what in list(declared.items())[:2]
    ]
    for matched in match["matched"]:
        if matched["field"] == "glossary":
            said.append(Markup("the glossary says {}").format(_quoted([matched["text"]])))
    if not said:
        words = [m["text"] for m in match["matched"] if m["field"] == "metadata"]
        said = [Markup("its frontmatter has {}").format(_quoted(words))] if words else []
    return said


def _quoted(words: Sequence[str]) -> Markup:
    listed = [
        Markup('<span class="{}">“<bdi>{}</bdi>”</span>').format(
            "quoted" if len(word) <= MAX_UNBROKEN else "", shown(word, 60)
        )
        for word in words[:MAX_WORDS]
    ]
    more = f" and {len(words) - MAX_WORDS} more" if len(words) > MAX_WORDS else ""
    if len(listed) > 1 and not more:
        return Markup("{} and {}").format(Markup(", ").join(listed[:-1]), listed[-1])
    return Markup(", ").join(listed) + more


def trust_sentence(details: Mapping[str, Any]) -> Markup | None:
    """Return how far the answer may be trusted; None if there is no answer."""
    relevance = details["relevance"]
    said = {
        "high": "The answer claims high relevance",
        "medium": "The answer claims medium relevance",
        "low": "The answer claims low relevance: it may not be in this folder",
    }.get(relevance["level"])
    if said is None:
        return None
    absent = [part for part in relevance["reason"].split("; ") if part.startswith(NO_PASSAGE_HOLDS)]
    return Markup("{}{}.").format(said, f"; {shown(absent[0], 200)}" if absent else "")


def filter_sentence(invocation: Invocation, details: Mapping[str, Any]) -> Markup | None:
    """Return whether a category filter was set, why, and what became of it; None if the lookup did
    not get that far.
    """
    if invocation["status"] in ("cancelled", *_NOT_SEARCHED):
        return None
    choice, hints = details["filter"], details["l0_hints"]
    if choice["category"] is None:
        searched = invocation["l1_status"] not in (*L1_FAILED, "disabled")
        return _no_filter(choice["reason"], hints) if searched else None
    category = Markup("<strong>“<bdi>{}</bdi>”</strong>").format(shown(choice["category"], 80))
    naming = _texts(term for term in hints["terms"] if choice["category"] in term["domains"])
    because = _quoted(naming) if naming else Markup("the query")
    names = "names" if len(naming) < 2 else "name"
    if invocation["l1_status"] in (*L1_FAILED, "disabled"):
        return Markup(
            "{} {} the category {}, but a category limits only vector search: no filter was used."
        ).format(because, names, category)
    if choice["relaxed"]:
        return Markup(
            "{} {} the category {} alone, but a search in it alone hid better candidates, so all "
            "categories were searched."
        ).format(because, names, category)
    outside = details["hidden"]
    note: Markup | str = "."
    if outside["entry_id"]:
        similar = outside["similarity"]
        near = "" if similar is None else f" at {similar:.2f}"
        note = Markup("; the best outside it, {}{}, is not clearly better.").format(
            title_of(outside), near
        )
    return Markup("Only the category {} was searched, because {} {} no other{}").format(
        category, because, names, note
    )


def _texts(terms: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the texts of terms, each once in any case."""
    return list({term["text"].casefold(): term["text"] for term in terms}.values())


def _no_filter(reason: str, hints: Mapping[str, Any]) -> Markup:
    if reason == "several_domains":
        return Markup("All categories were searched, because the query names several: {}.").format(
            _quoted(hints["domains"])
        )
    if reason == "off":
        return Markup("All categories were searched: the category filter is switched off.")
    if reason == "unknown":
        return Markup("Whether a category filter was set was not recorded.")
    common = _texts(term for term in hints["terms"] if not term["specific"])
    if common:
        return Markup("All categories were searched, because {} {} too common to name one.").format(
            _quoted(common), "is" if len(common) == 1 else "are"
        )
    return Markup("All categories were searched, because no keyword in the query names one.")


def next_ones(details: Mapping[str, Any]) -> list[Markup]:
    """Return what would have come after the matches, and why each is not among them."""
    matches, level = details["matches"], details["relevance"]["level"]
    shown_ids = {match["entry_id"] for match in matches}
    rest = [one for one in details["candidates"] if one["entry_id"] not in shown_ids]
    best = matches[0]["score"] if matches else None
    return [
        Markup("{}: {}.").format(
            title_of(one), _why_not(one["score"], best, len(matches), level, details["options"])
        )
        for one in rest[:MAX_NEXT]
    ]


def _why_not(
    score: float | None, best: float | None, count: int, level: str, options: Mapping[str, Any]
) -> str:
    share = score / best if score is not None and best else None
    scores = "" if share is None else f"it scores {share:.0%} of the first"
    if count and count == options.get("k"):
        takes = counted(count, "match", "matches")
        return f"{scores or 'it came next'}, and an answer takes {takes}"
    if options.get("drop_weak") is True and share is not None and share < WEAK:
        return f"{scores}, and less than {WEAK:.0%} is left out"
    if options.get("drop_weak") is True and level == "low" and count == 2:
        return f"{scores}, and an answer of low relevance takes two matches at most"
    return scores or "it came next"
