"""The filter decision: which category, if any, the hints allow L1 to be narrowed to, and when that is taken back."""

from collections.abc import Sequence

from langchain_lookup_knowledge.types import Candidate, FilterChoice, FilterMode, Hints

GUARD_MARGIN = 0.03
"""How much more similar (dense cosine) an unfiltered candidate must be for the filter to be relaxed. Margins of 0.02 to
0.05 lost nothing against no filter on two English knowledge bases (benchmarks/quality.py)."""


def choose_filter(hints: Hints, mode: FilterMode) -> FilterChoice:
    """Return the one domain of the hints as the filter; with none, with several, or in mode "off", no filter."""
    domains = [domain for domain in hints["domains"] if domain.strip()]
    if mode == "off":
        return {"category": None, "reason": "off", "relaxed": False}
    if len(domains) == 1:
        return {"category": domains[0], "reason": "single_domain", "relaxed": False}
    return {"category": None, "reason": "several_domains" if domains else "no_domain", "relaxed": False}


def hides_better(filtered: Sequence[Candidate], unfiltered: Sequence[Candidate]) -> bool:
    """Say whether a filter leaves nothing while there is something, or only what is clearly less similar."""
    if not filtered:
        return bool(unfiltered)
    return best_similarity(unfiltered) > best_similarity(filtered) + GUARD_MARGIN


def best_similarity(candidates: Sequence[Candidate]) -> float:
    """Return the highest dense cosine, or -1 when no candidate has one."""
    return max((c["similarity"] for c in candidates if c["similarity"] is not None), default=-1.0)
