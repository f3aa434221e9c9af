"""What L0 and L1 find, as the pure functions of a lookup take it."""

from langchain_lookup_knowledge.lookup.answer.merging import FoundEntry
from langchain_lookup_knowledge.lookup.state import no_hints

NO_HINTS = no_hints()


def passage(text, score=0.5, number=0, *, heading="", similarity=0.5, rare=(), lines=None):
    """Return a passage of a candidate."""
    return {
        "number": number,
        "heading": heading,
        "text": text,
        "lines": lines,
        "score": score,
        "similarity": similarity,
        "rare": list(rare),
    }


def candidate(entry_id, similarity=0.5, score=0.01, passages=None):
    """Return a candidate, with one passage where none are given."""
    return {
        "entry_id": entry_id,
        "title": entry_id.upper(),
        "categories": [],
        "source": entry_id,
        "score": score,
        "similarity": similarity,
        "passages": passages or [passage(f"text of {entry_id}", similarity=similarity)],
    }


def hints(*entries, specific=True, domains=()):
    """Return hints in which each entry has a keyword of its own."""
    terms = [{"text": f"kw-{i}", "field": "keywords", "specific": specific} for i in entries]
    listed = [
        {
            "entry_id": i,
            "title": i,
            "categories": [],
            "keywords": [f"kw-{i}"],
            "entities": [],
            "score": 1.0,
        }
        for i in entries
    ]
    return {**NO_HINTS, "entries": listed, "terms": terms, "domains": list(domains)}


def found_entry(*passages, entry_id="a.md", score=1.0, **changes):
    """Return an entry of an answer."""
    values = {
        "entry_id": entry_id,
        "title": entry_id,
        "categories": ["c"],
        "score": score,
        "similarity": 0.5,
        "layers": ("L1",),
        "matched": (),
        "passages": list(passages),
    }
    return FoundEntry(**(values | changes))
