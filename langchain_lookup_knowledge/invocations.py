"""What is kept of an invocation: values every database takes, of bounded size, and on request without the query."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, cast

from langchain_lookup_knowledge.types import Invocation

MAX_DETAILS_BYTES = 65_536
"""Most bytes of `retrieval_details` as JSON in ASCII, which is as long as any encoding of it."""
MAX_TEXT_CHARS = 20_000
"""Most characters of a query or another text of an invocation."""
_MAX_REASON_CHARS = 1000
_MAX_INTEGER = 2**63
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_HASHED = re.compile("sha256:[0-9a-f]{64}")
_DETAILS = {"l0_hints", "filter", "l1", "matches", "relevance", "scope", "options"}
_EVIDENCE = {"entry_id", "score", "similarity", "layers"}


def storable(value: Any) -> Any:
    """Return JSON data that every database takes.

    NaN and infinities become null, NUL and lone surrogates U+FFFD, dates ISO 8601, integers beyond 64 bits floats, and what is
    not JSON its text.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return _storable_integer(value)
    if isinstance(value, dict):
        return {storable(key if isinstance(key, str) else str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value.isoformat() if isinstance(value, date) else storable(str(value))


def _storable_integer(value: int) -> int | float | None:
    if -_MAX_INTEGER <= value < _MAX_INTEGER:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return None


def to_json(value: Any) -> str:
    """Return strict JSON: no NaN, and every letter as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def bounded(invocation: Invocation) -> Invocation:
    """Return a storable invocation cut to sizes that always fit.

    Raises:
        KeyError: it lacks a key.
    """
    given: dict[str, Any] = {**invocation}
    kept: dict[str, Any] = {key: _text(given[key]) for key in Invocation.__annotations__ if key != "retrieval_details"}
    kept["retrieval_details"] = capped(invocation["retrieval_details"])
    kept["result_count"] = min(max(0, int(invocation["result_count"] or 0)), 2**31 - 1)
    kept["duration_ms"] = float(invocation["duration_ms"] or 0.0)
    return cast(Invocation, kept)


def utc(moment: datetime) -> datetime:
    """Return a time in UTC; one without a zone is in UTC already.

    Raises:
        OverflowError: it is in UTC before the year 1, or after 9999.
    """
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:MAX_TEXT_CHARS]


def capped(details: dict[str, Any]) -> dict[str, Any]:
    """Return details of at most `MAX_DETAILS_BYTES`, with `"truncated": true` where something was dropped.

    First to go are snippets and other texts of matches and candidates, then what is none of the parts that a
    record is read by (the largest first), then the hints' terms and entries; then reasons, the hints' lists and the matches are
    shortened.
    """
    if _size(details) <= MAX_DETAILS_BYTES:
        return details
    kept: dict[str, Any] = json.loads(json.dumps(details)) | {"truncated": True}
    for _ in _droppings(kept):
        if _size(kept) <= MAX_DETAILS_BYTES:
            return kept
    return {"truncated": True}


def _size(details: dict[str, Any]) -> int:
    return len(json.dumps(details))


def _droppings(details: dict[str, Any]) -> Iterator[None]:
    """Drop one thing after the other, least important first; pause after each."""
    for name in ("matches", "candidates"):
        if isinstance(details.get(name), list):
            details[name] = [_evidence(found) for found in details[name]]
    yield
    for name in sorted(details.keys() - _DETAILS - {"truncated"}, key=lambda name: -len(json.dumps(details[name]))):
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
    return {key: value for key, value in found.items() if key in _EVIDENCE} if isinstance(found, dict) else found


def _shorten_texts(part: Any) -> None:
    if isinstance(part, dict):
        part |= {key: value[:_MAX_REASON_CHARS] for key, value in part.items() if isinstance(value, str)}


def _halve_longest(part: dict[str, Any]) -> bool:
    """Keep the first half of the largest list that has more than one item; say whether there was one."""
    lists = [name for name, value in part.items() if isinstance(value, list) and len(value) > 1]
    if not lists:
        return False
    longest = max(lists, key=lambda name: len(json.dumps(part[name])))
    part[longest] = part[longest][: len(part[longest]) // 2]
    return True


def is_hashed(query: str) -> bool:
    """Say whether a query is one that `hash_query` wrote."""
    return _HASHED.fullmatch(query) is not None


def hash_query(invocation: Invocation) -> Invocation:
    """Return an invocation without its query: `SQLInvocationRecorder(..., redact=hash_query)`.

    The query becomes `sha256:` and the hash of its text, so that equal queries can still be counted; the terms, which say
    what stood where in the query, are dropped. Titles, keywords and entities stay: they are the knowledge base's own words.
    Who guesses a query can check the guess; for a hash with a key, give a function of your own.
    """
    details = dict(invocation["retrieval_details"])
    if isinstance(details.get("l0_hints"), dict):
        details["l0_hints"] = {key: value for key, value in details["l0_hints"].items() if key != "terms"}
    query = invocation["query"]
    if not is_hashed(query):
        query = "sha256:" + hashlib.sha256(query.encode("utf-8", "replace")).hexdigest()
    return {**invocation, "query": query, "retrieval_details": details}
