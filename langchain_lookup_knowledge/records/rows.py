"""Reading rows without failing, whatever they contain.

Another program, another version or a damaged disk may have left anything in a row. Values that
cannot be read are left out and named under `unreadable`.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, cast

from langchain_lookup_knowledge.records.invocations import is_hashed, to_json, utc
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.types import L1_FAILED, Invocation

ANSWERED = ("ok", "no_match")
"""Statuses of lookups that were answered as configured."""
READ_STATUSES = ("ok", "no_match", "refused", "invalid_query")
"""Statuses of calls of the read tool."""
LOOKUP_PARTS = ("l0_hints", "relevance")
"""Parts of the details that every lookup has, and no call of the read tool."""
_COMPARED = ("matches", "relevance", "filter", "filters", "scope", "l0_hints")
"""Parts of the details that a replay compares or depends on."""


def text_of(value: Any) -> str | None:
    """Return a value of a text column as text; bytes that are not UTF-8 become U+FFFD."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number_of(value: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if usable and math.isfinite(value) else None
    except OverflowError:
        return None


def moment_of(value: Any) -> datetime | None:
    """Return a time in UTC, or None for text that is not a time."""
    try:
        return utc(datetime.fromisoformat(text_of(value) or ""))
    except (ValueError, OverflowError):
        return None


def details_of(value: Any) -> dict[str, Any] | None:
    """Return the details in a JSON text, or None if it holds no JSON object."""
    try:
        found = storable(json.loads(text_of(value) or "", parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def whole_number_of(value: Any) -> int:
    """Return a number of entries, or 0 for a value that is not a number."""
    text = text_of(value) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def scope_of(value: Any) -> dict[str, str]:
    """Return a recorded scope, an object or its JSON text, as fields and values to be shown.

    No scope is empty. A value that is not text is shown as JSON. A scope that is not an object gets
    the field "?", so that it is never taken for no scope.
    """
    if value is None:
        return {}
    found = details_of(value) if isinstance(value, str | bytes) else value
    if not isinstance(found, dict):
        found = {"?": text_of(value) if isinstance(value, bytes) else value}
    return {name: one if isinstance(one, str) else to_json(one) for name, one in found.items()}


def as_invocation(row: Any) -> Invocation:
    """Return a row of `raw_columns` as an invocation.

    A value that cannot be read becomes None (the details become empty), and
    `retrieval_details["unreadable"]` names its column. Nulls, as in a migrated table, become None.
    """
    read: dict[str, Any] = {name: text_of(value) for name, value in row.items()}
    details = details_of(row["retrieval_details"])
    moment, count = moment_of(row["created_at"]), number_of(row["result_count"])
    read |= {
        "created_at": moment and moment.isoformat(),
        "result_count": None if count is None else int(count),
        "duration_ms": number_of(row["duration_ms"]),
        "retrieval_details": details,
    }
    odd = [name for name, value in row.items() if value is not None and read[name] is None]
    details = {} if details is None else details
    read["retrieval_details"] = {**details, "unreadable": sorted(odd)} if odd else details
    return cast(Invocation, read)


def is_read(invocation: Invocation) -> bool:
    """Return whether this is a call of the read tool, not a lookup; `selection` asks the same of
    rows in SQL.
    """
    details = invocation["retrieval_details"]
    return (
        (invocation["retrieval_layer"], invocation["l1_status"]) == ("none", "skipped")
        and invocation["status"] in READ_STATUSES
        and isinstance(details.get("matches"), list)
        and not details.keys() & {*LOOKUP_PARTS}
    )


def unreadable(invocation: Invocation) -> list[str]:
    """Return the columns, and the parts of the details, that could not be read."""
    return cast(list[str], readable_details(invocation["retrieval_details"])["unreadable"])


def can_be_compared(invocation: Invocation) -> bool:
    """Return whether the lookup can be compared with a new one.

    That is: it was answered, L1 did not fail, its query was recorded and not hashed, and the parts
    that are compared can be read.
    """
    if invocation["status"] not in ANSWERED or invocation["l1_status"] in (None, *L1_FAILED):
        return False
    details = readable_details(invocation["retrieval_details"])
    odd = {place.split(".")[0] for place in details["unreadable"]}
    recorded = details["relevance"]["level"] != "unknown" and not odd & {*_COMPARED}
    query = invocation["query"]
    return recorded and query is not None and not is_hashed(query)


# The expected types of details

_ODD: Any = object()
"""Replaces an odd value: a value that cannot be read because its type is unexpected."""
_Read = Callable[[Any, str, list[str]], Any]
"""Returns a value if its type is right; else adds its place to the list and returns `_ODD`."""


def _reader(check: Callable[[Any], bool]) -> _Read:
    def read(value: Any, place: str, odd: list[str]) -> Any:
        if check(value):
            return value
        odd.append(place)
        return _ODD

    return read


def _is_span(value: Any) -> bool:
    whole = isinstance(value, list) and [type(place) for place in value] == [int, int]
    return whole and 0 <= value[0] <= value[1]


_text = _reader(lambda value: isinstance(value, str))
_text_or_none = _reader(lambda value: value is None or isinstance(value, str))
_flag = _reader(lambda value: isinstance(value, bool))
_number = _reader(lambda value: number_of(value) is not None)
_number_or_none = _reader(lambda value: value is None or number_of(value) is not None)
_span = _reader(_is_span)


def _list(of: _Read) -> _Read:
    def read(value: Any, place: str, odd: list[str]) -> Any:
        if not isinstance(value, list):
            odd.append(place)
            return _ODD
        found = [of(item, place, odd) for item in value]
        return [item for item in found if item is not _ODD]

    return read


def _mapping(of: _Read) -> _Read:
    def read(value: Any, place: str, odd: list[str]) -> Any:
        if not isinstance(value, dict) or not all(map(str.strip, value)):
            odd.append(place)
            return _ODD
        found = {name: of(item, f"{place}.{name}", odd) for name, item in value.items()}
        return {name: item for name, item in found.items() if item is not _ODD}

    return read


def _record(
    parts: Mapping[str, tuple[_Read, Any]],
    needed: str | None = None,
    renamed: Mapping[str, str] | None = None,
) -> _Read:
    """Return a reader of objects; a part that is missing or unreadable gets its default.

    If the key `needed` is missing or unreadable, the whole object counts as unreadable. `renamed`
    maps key names of older versions to current ones.
    """

    def read(value: Any, place: str, odd: list[str]) -> Any:
        if not isinstance(value, dict) or (needed and needed not in value):
            odd.append(place)
            return _ODD
        given = {(renamed or {}).get(name, name): item for name, item in value.items()}
        for name, (kind, default) in parts.items():
            found = kind(given[name], f"{place}.{name}", odd) if name in given else default
            if found is _ODD and name == needed:
                return _ODD
            given[name] = default if found is _ODD else found
        return given

    return read


_texts = _list(_text)
_filter = _reader(lambda value: isinstance(value, list | dict))
_scored: dict[str, tuple[_Read, Any]] = {
    "entry_id": (_text, ""),
    "score": (_number_or_none, None),
    "similarity": (_number_or_none, None),
}
_lines = _reader(lambda value: value is None or (_is_span(value) and value[0] > 0))
_passage: dict[str, tuple[_Read, Any]] = {
    "lines": (_lines, None),
    "chars": (_number, 0),
    "digest": (_text, ""),
    "heading": (_text_or_none, None),
    "path": (_text_or_none, None),
}
_match: dict[str, tuple[_Read, Any]] = {
    **_scored,
    "layers": (_texts, ()),
    "title": (_text, ""),
    "heading": (_text, ""),
    "lines": (_lines, None),
    "matched": (_list(_record({"field": (_text, ""), "text": (_text, "")}, "text")), ()),
    "passages": (_list(_record(_passage)), ()),
    "shares": (_mapping(_number), {}),
}
_hinted: dict[str, tuple[_Read, Any]] = {
    "entry_id": (_text, ""),
    "title": (_text, ""),
    "categories": (_texts, ()),
}
_term: dict[str, tuple[_Read, Any]] = {
    "text": (_text, ""),
    "field": (_text, ""),
    "span": (_span, (0, 0)),
    "kind": (_text, ""),
    "document_frequency": (_number, 0),
    "specific": (_flag, False),
    "domains": (_texts, ()),
    "reason": (_text, ""),
}
_hints: dict[str, tuple[_Read, Any]] = {
    **dict.fromkeys(("titles", "keywords", "domains", "entities"), (_texts, ())),
    "entries": (_list(_record(_hinted, "entry_id", {"domains": "categories"})), ()),
    "terms": (_list(_record(_term, renamed={"files": "document_frequency"})), ()),
}
_PARTS: dict[str, _Read] = {
    "l0_hints": _record(_hints),
    "filter": _record(
        {
            "category": (_text_or_none, None),
            "reason": (_text, "unknown"),
            "relaxed": (_flag, False),
        }
    ),
    "l1": _record(
        {
            "status": (_text, "unknown"),
            "reason": (_text_or_none, None),
            "candidates": (_number, 0),
            "elapsed_ms": (_number, 0.0),
        }
    ),
    "relevance": _record(
        {
            "level": (_text, "unknown"),
            "reason": (_text, "not recorded"),
            "semantic_support": (_flag, True),
        }
    ),
    "candidates": _list(_record(_scored, "entry_id")),
    "matches": _list(_record(_match, "entry_id")),
    "hidden": _record(_scored | {"title": (_text, "")}),
    "rare": _mapping(_number),
    "steps": _mapping(_number),
    "scope": _mapping(_text),
    "filters": _mapping(_filter),
    "options": _mapping(_reader(lambda value: not isinstance(value, list | dict))),
    "unreadable": _texts,
}
_LISTS = ("candidates", "matches", "unreadable")


def readable_details(details: Any) -> dict[str, Any]:
    """Return details in which every part has the expected type, to be shown or compared.

    A part that was not recorded or cannot be read gets a default ("unknown", empty, None);
    unreadable items of lists are left out. `unreadable` lists the columns that `as_invocation`
    names, and the places of other unreadable values, such as `candidates` or `filter.category`.
    """
    given = details if isinstance(details, dict) else {}
    odd: list[str] = []
    read: dict[str, Any] = {}
    for name, kind in _PARTS.items():
        found = kind(given[name], name, odd) if given.get(name) is not None else _ODD
        empty: Any = [] if name in _LISTS else {}
        read[name] = kind(empty, name, odd) if found is _ODD else found
    read["unreadable"] = sorted({*read["unreadable"], *odd})
    return {**given, **read}


def hints_of(hints: Any) -> dict[str, Any]:
    """Return hints in which every part has the expected type and its current name."""
    return cast(dict[str, Any], readable_details({"l0_hints": hints})["l0_hints"])
