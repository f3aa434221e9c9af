"""Preparing an invocation for storage: storable values, bounded sizes and, on request, hashes."""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import orjson

from langchain_lookup_knowledge.text.wording import NO_PASSAGE_HOLDS
from langchain_lookup_knowledge.types import Invocation

MAX_DETAILS_BYTES = 65_536
"""Maximum size of `retrieval_details` as ASCII JSON, which is its longest encoding."""
MAX_TEXT_CHARS = 20_000
"""Maximum length of a query or another text of an invocation."""
_MAX_REASON_CHARS = 1000
_HASHED = re.compile("sha256:[0-9a-f]{64}")
_DETAILS = {"l0_hints", "filter", "l1", "matches", "relevance", "scope", "filters", "options"}
_EVIDENCE = {"entry_id", "score", "similarity", "layers"}
_QUERY_FIELDS = ("text", "metadata", "glossary")
"""Fields of `matched` whose texts are words of the query."""


def to_json(value: Any) -> str:
    """Return storable data as JSON; non-ASCII letters are not escaped."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # an integer beyond 64 bits
        return json.dumps(value, ensure_ascii=False, allow_nan=False)


def bounded(invocation: Invocation) -> Invocation:
    """Return the invocation with storable values, cut to sizes that always fit.

    Raises:
        KeyError: the invocation lacks a key.
    """
    given: dict[str, Any] = {**invocation}
    kept: dict[str, Any] = {
        key: _text(given[key]) for key in Invocation.__annotations__ if key != "retrieval_details"
    }
    kept["retrieval_details"] = capped(invocation["retrieval_details"])
    kept["result_count"] = min(max(0, int(invocation["result_count"] or 0)), 2**31 - 1)
    kept["duration_ms"] = float(invocation["duration_ms"] or 0.0)
    return cast(Invocation, kept)


def utc(moment: datetime) -> datetime:
    """Return a time in UTC; a time without a zone is taken as UTC.

    Raises:
        OverflowError: in UTC, the time is before the year 1 or after 9999.
    """
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:MAX_TEXT_CHARS]


def capped(details: dict[str, Any]) -> dict[str, Any]:
    """Return at most `MAX_DETAILS_BYTES` of details, with `"truncated": true` if some were dropped.

    Parts are dropped in this order: texts of matches and candidates, such as snippets; parts that
    no reader of records needs, largest first; terms and entries of the hints. Finally, reasons, the
    lists of the hints, and the matches are shortened.
    """
    if _certainly_fits(details) or _size(details) <= MAX_DETAILS_BYTES:
        return details
    kept: dict[str, Any] = json.loads(json.dumps(details)) | {"truncated": True}
    for _ in _droppings(kept):
        if _size(kept) <= MAX_DETAILS_BYTES:
            return kept
    return {"truncated": True}


def _certainly_fits(details: dict[str, Any]) -> bool:
    """Return whether details certainly fit, judging by the size of their UTF-8 JSON without spaces.
    As ASCII JSON, they are at most three times as long, unless they contain the control character
    DEL.
    """
    try:
        written = orjson.dumps(details)
    except TypeError:
        return False
    return 3 * len(written) <= MAX_DETAILS_BYTES and b"\x7f" not in written


def _size(details: dict[str, Any]) -> int:
    return len(json.dumps(details))


def _droppings(details: dict[str, Any]) -> Iterator[None]:
    """Drop one part after another, the least important first, and yield after each drop."""
    for name in ("matches", "candidates"):
        if isinstance(details.get(name), list):
            details[name] = [_evidence(found) for found in details[name]]
    yield
    for name in sorted(
        details.keys() - _DETAILS - {"truncated"}, key=lambda name: -len(json.dumps(details[name]))
    ):
        del details[name]
        yield
    hints = details.get("l0_hints")
    for name in ("terms", "entries"):
        if isinstance(hints, dict):
            hints.pop(name, None)
            yield
    for part in ("l1", "relevance", "filter"):
        _shorten_texts(details.get(part))
    yield
    while isinstance(hints, dict) and _halve_longest(hints):
        yield
    while _halve_longest(details):
        yield


def _evidence(found: Any) -> Any:
    return (
        {key: value for key, value in found.items() if key in _EVIDENCE}
        if isinstance(found, dict)
        else found
    )


def _shorten_texts(part: Any) -> None:
    if isinstance(part, dict):
        part |= {
            key: value[:_MAX_REASON_CHARS] for key, value in part.items() if isinstance(value, str)
        }


def _halve_longest(part: dict[str, Any]) -> bool:
    """Halve the longest list; return False if no list has at least two items."""
    lists = [name for name, value in part.items() if isinstance(value, list) and len(value) > 1]
    if not lists:
        return False
    longest = max(lists, key=lambda name: len(json.dumps(part[name])))
    part[longest] = part[longest][: len(part[longest]) // 2]
    return True


def is_hashed(query: str) -> bool:
    """Return whether a query is already a hash written by `hash_query`."""
    return _HASHED.fullmatch(query) is not None


def hash_query(invocation: Invocation) -> Invocation:
    """Return an invocation without its query, for `SQLInvocationRecorder(..., redact=hash_query)`.

    The query becomes `sha256:` and the hash of its text, so that equal queries can still be
    counted. The terms, the words that matched and the words that no passage holds are dropped,
    because they are words of the query. Titles, keywords and entities are kept, because they come
    from the knowledge base. Anyone can check a guessed query against its hash; to prevent this,
    pass your own function with a keyed hash.
    """
    details = dict(invocation["retrieval_details"])
    details.pop("rare", None)
    details.pop("reason", None)  # of a call that read nothing: it quotes what was asked for
    hints = details.pop("l0_hints", None)
    if isinstance(hints, dict):  # other keys may contain the query
        kept = {key: value for key, value in hints.items() if key not in ("terms", "glossary")}
        details["l0_hints"] = kept
    if isinstance(matches := details.get("matches"), list):
        details["matches"] = [_without_words(match) for match in matches]
    relevance = details.get("relevance")
    if isinstance(relevance, dict) and isinstance(reason := relevance.get("reason"), str):
        parts = [part for part in reason.split("; ") if not part.startswith(NO_PASSAGE_HOLDS)]
        details["relevance"] = {**relevance, "reason": "; ".join(parts)}
    return {**invocation, "query": hash_of(invocation["query"]), "retrieval_details": details}


def hash_of(query: str) -> str:
    """Return the hash of a query, or the query itself if it is a hash already."""
    if is_hashed(query):
        return query
    return "sha256:" + hashlib.sha256(query.encode("utf-8", "replace")).hexdigest()


def _without_words(match: Any) -> Any:
    """Return a match without the words of the query; an unreadable list of them is dropped."""
    if not isinstance(match, dict) or "matched" not in match:
        return match
    matched = match["matched"] if isinstance(match["matched"], list) else []
    kept = [
        one
        for one in matched
        if isinstance(one, dict) and one.get("field") not in (*_QUERY_FIELDS, None)
    ]
    return {**match, "matched": kept}
