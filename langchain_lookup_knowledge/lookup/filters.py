"""The filter decision: which category, if any, L1 (vector search) is limited to, and when the
filter is withdrawn.
"""

import math
from collections.abc import Sequence

from langchain_lookup_knowledge.types import Candidate, FilterChoice, FilterMode, Hints, Match

GUARD_DEPTH = 3
"""Number of top unfiltered candidates that are checked in case a filter hides one wrongly."""
GUARD_MARGIN = 0.03
"""Minimum lead in dense cosine of an unfiltered candidate for which a filter is relaxed."""
GUARD_MIN_SIMILARITY = 0.3
"""Minimum dense cosine of an unfiltered candidate for its lead to count.

90 % of the unrelated question/passage pairs of the sample handbook have a lower cosine.
"""


def choose_filter(hints: Hints, mode: FilterMode) -> FilterChoice:
    """Return the filter: the domain of the hints, if there is exactly one.

    With no domain, with several, or in mode "off", there is no filter.
    """
    domains = [domain for domain in hints["domains"] if domain.strip()]
    if mode == "off":
        return {"category": None, "reason": "off", "relaxed": False}
    if len(domains) == 1:
        return {"category": domains[0], "reason": "single_domain", "relaxed": False}
    return {
        "category": None,
        "reason": "several_domains" if domains else "no_domain",
        "relaxed": False,
    }


def no_filter() -> FilterChoice:
    """Return that no filter was chosen, because the lookup ended before its query was read."""
    return {"category": None, "reason": "skipped", "relaxed": False}


def hides_better(
    filtered: Sequence[Candidate], unfiltered: Sequence[Candidate], hints: Hints
) -> bool:
    """Return whether a filter hides candidates that should be found.

    It does in each of these cases:

    - no candidate passes the filter, though there are unfiltered ones;
    - a candidate with at least `GUARD_MIN_SIMILARITY` is clearly more similar than all candidates
    that pass;
    - the filter hides one of the best candidates that is also hinted at;
    - the filter hides one of the best candidates that has no category and is about as similar as
      the candidates that pass.
    """
    if not filtered:
        return bool(unfiltered)
    best, best_kept = _comparable(unfiltered), _comparable(filtered)
    if best >= GUARD_MIN_SIMILARITY and best > best_kept + GUARD_MARGIN:
        return True
    kept = {candidate["entry_id"] for candidate in filtered}
    hinted = {entry["entry_id"] for entry in hints["entries"]}
    hidden = [
        candidate for candidate in unfiltered[:GUARD_DEPTH] if candidate["entry_id"] not in kept
    ]
    return any(
        candidate["entry_id"] in hinted
        or (not candidate["categories"] and _comparable([candidate]) >= best_kept - GUARD_MARGIN)
        for candidate in hidden
    )


def best_similarity(found: Sequence[Candidate] | Sequence[Match]) -> float | None:
    """Return the highest dense cosine, or None if nothing found has a cosine."""
    return max(
        (item["similarity"] for item in found if item["similarity"] is not None), default=None
    )


def _comparable(found: Sequence[Candidate]) -> float:
    """Return the highest dense cosine, or minus infinity if no candidate has a cosine."""
    best = best_similarity(found)
    return -math.inf if best is None else best
