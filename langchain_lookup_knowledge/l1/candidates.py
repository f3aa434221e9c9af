"""Turning ranked entries into candidates: which passages are read and shown, and whether the stored
payloads are valid.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from langchain_lookup_knowledge.l1.fusion import (
    RARE,
    PointId,
    Ranked,
    RankedEntry,
    RankedPassage,
)
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.types import Candidate, CandidatePassage

MAX_PASSAGES = (5, 5, 3, 3, 3, 2)
"""Maximum passages of the first, second, ... candidate; the last number applies to all others.
Further passages are added if they contain a rare term that these passages lack.
"""


def choose(ranked: Sequence[RankedEntry], found: Ranked, limit: int) -> list[RankedEntry]:
    """Return the best `limit` entries. For each rare term that is in none of them, add the best
    entry that contains it.

    Each entry keeps only the passages that may be shown.
    """
    chosen = [_trimmed(entry, place) for place, entry in enumerate(ranked[:limit])]
    held = {term for entry in chosen for passage in entry.passages for term in passage.rare}
    for term, hits in found.terms.items():
        if 0 < len(hits) <= RARE and term not in held:
            more = (e for e in ranked[limit:] if any(term in p.rare for p in e.passages))
            if entry := next(more, None):
                chosen.append(_trimmed(entry, len(chosen)))
                held.update(term for passage in chosen[-1].passages for term in passage.rare)
    return chosen


def _trimmed(entry: RankedEntry, place: int) -> RankedEntry:
    """Return an entry with its best passages, and with further ones that add rare terms."""
    most = MAX_PASSAGES[min(place, len(MAX_PASSAGES) - 1)]
    kept = entry.passages[:most]
    held = {term for passage in kept for term in passage.rare}
    for passage in entry.passages[most:]:
        if not held.issuperset(passage.rare):
            kept.append(passage)
            held.update(passage.rare)
    return entry._replace(passages=kept)


def point_ids(chosen: Sequence[RankedEntry]) -> Iterator[PointId]:
    """Yield the point ids of the passages of entries."""
    return (passage.point_id for entry in chosen for passage in entry.passages)


def candidates(
    chosen: Sequence[RankedEntry], stored: Mapping[PointId, Mapping[str, Any]]
) -> list[Candidate]:
    """Return candidates with the stored texts of their passages, without entries that have no
    stored passage.
    """
    return [
        _candidate(entry, passages)
        for entry in chosen
        if (passages := [(p, stored[p.point_id]) for p in entry.passages if p.point_id in stored])
    ]


def _candidate(
    entry: RankedEntry, passages: Sequence[tuple[RankedPassage, Mapping[str, Any]]]
) -> Candidate:
    metadata = passages[0][1]["metadata"]
    return {
        "entry_id": entry.entry_id,
        "title": metadata["title"],
        "categories": list(metadata["categories"]),
        "source": metadata["source"],
        "score": round(entry.score, 6),
        "similarity": _rounded(entry.similarity),
        "meaning": round(entry.meaning, 6),
        "passages": [_passage(passage, payload) for passage, payload in passages],
    }


def _passage(passage: RankedPassage, payload: Mapping[str, Any]) -> CandidatePassage:
    metadata = payload["metadata"]
    lines = metadata.get("lines")
    found: CandidatePassage = {
        "number": metadata.get("passage"),
        "heading": metadata["heading"],
        "text": payload["page_content"],
        "lines": list(lines) if lines else None,
        "score": round(passage.score, 6),
        "similarity": _rounded(passage.similarity),
        "rare": list(passage.rare),
    }
    if sources := metadata.get("sources"):
        found["path"] = sources[-1]
    if "place" in metadata:
        found["place"] = metadata["place"]
    return found


def _rounded(similarity: float | None) -> float | None:
    return None if similarity is None else round(similarity, 6)


def brand_of(payload: Mapping[str, Any]) -> str | None:
    """Return the brand (fingerprint hash) of the index that a stored passage was written for, or
    None if the passage has no brand.
    """
    metadata = payload.get("metadata")
    found = metadata.get("fingerprint") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) else None


def is_seen_among(payload: Mapping[str, Any], visible: Container[str]) -> bool:
    """Return whether all entries from which a passage was embedded are visible; True for a passage
    that was not embedded from another entry.
    """
    return all(source in visible for source in payload["metadata"].get("sources", ()))


def is_sound(payload: Mapping[str, Any], brand: str | None) -> bool:
    """Return whether a stored passage has this brand (fingerprint hash of its index) and can be
    shown.
    """
    metadata = payload.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("fingerprint") != brand:
        return False
    categories, number, lines = (metadata.get(name) for name in ("categories", "passage", "lines"))
    texts = [
        payload.get("page_content"),
        *(metadata.get(key) for key in ("title", "source", "heading")),
    ]
    sources = metadata.get("sources", [])
    texts += sources if isinstance(sources, list) else [None]
    texts += categories if isinstance(categories, list) else [None]
    places = [number if number is not None else 0, *(lines if isinstance(lines, list) else ())]
    return (
        type(metadata.get("place", 0)) is int
        and all(isinstance(text, str) and storable(text) == text for text in texts)
        and all(type(place) is int and place >= 0 for place in places)
        and (lines is None or len(places) == 3)
    )
