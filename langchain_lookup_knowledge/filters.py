"""The filter decision: which category, if any, the hints allow L1 to be narrowed to, and when that is taken back."""

from collections.abc import Sequence

from langchain_lookup_knowledge.types import Candidate, FilterChoice, FilterMode, Hints, Match

NO_SIMILARITY = -2.0
"""Lower than any cosine: what has none compares as worse."""
GUARD_DEPTH = 3
"""How many of the best unfiltered candidates are looked at for what a filter must not hide."""
GUARD_MARGIN = 0.03
"""How much more similar (dense cosine) an unfiltered candidate must be for the filter to be relaxed."""

GUARD_LEAST = 0.3
"""Dense cosine from which on it counts that a candidate is more similar: of the pairs of a question of the sample handbook and
a passage that does not answer it, nine in ten are less similar."""


def choose_filter(hints: Hints, mode: FilterMode) -> FilterChoice:
    """Return the one domain of the hints as the filter; with none, with several, or in mode "off", no filter."""
    domains = [domain for domain in hints["domains"] if domain.strip()]
    if mode == "off":
        return {"category": None, "reason": "off", "relaxed": False}
    if len(domains) == 1:
        return {"category": domains[0], "reason": "single_domain", "relaxed": False}
    return {"category": None, "reason": "several_domains" if domains else "no_domain", "relaxed": False}


def hides_better(filtered: Sequence[Candidate], unfiltered: Sequence[Candidate], hints: Hints) -> bool:
    """Say whether a filter hides what should be seen.

    It does if it leaves nothing while there is something, or only what is clearly less similar than something of at least
    `GUARD_LEAST`, or if it hides one of the best candidates that the hints found too, or that is as similar and has no
    category for a filter to go by.
    """
    if not filtered:
        return bool(unfiltered)
    best = best_similarity(unfiltered)
    if best >= GUARD_LEAST and best > best_similarity(filtered) + GUARD_MARGIN:
        return True
    kept = {candidate["entry_id"] for candidate in filtered}
    hinted = {entry["entry_id"] for entry in hints["entries"]}
    hidden = [candidate for candidate in unfiltered[:GUARD_DEPTH] if candidate["entry_id"] not in kept]
    least = best_similarity(filtered) - GUARD_MARGIN
    return any(
        candidate["entry_id"] in hinted or (not candidate["categories"] and best_similarity([candidate]) >= least)
        for candidate in hidden
    )


def best_similarity(found: Sequence[Candidate] | Sequence[Match]) -> float:
    """Return the highest dense cosine, or `NO_SIMILARITY`, lower than any, when none has one."""
    return max((item["similarity"] for item in found if item["similarity"] is not None), default=NO_SIMILARITY)
