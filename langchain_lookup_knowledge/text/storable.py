"""JSON data that every database and every encoding accepts."""

import math
import re
from datetime import date
from typing import Any

import orjson

_MAX_INTEGER = 2**63
_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_STRICT_INTEGER
)
"""With these options, orjson refuses values that it would encode differently from `storable`."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Convert a value to JSON data that every database accepts.

    NaN and infinities become null, NUL and lone surrogates become U+FFFD, dates become ISO 8601
    text, integers beyond 64 bits become floats, and values that are not JSON become their text.
    """
    if isinstance(value, dict | list):  # a walk over each value takes six times as long
        try:
            written = orjson.dumps(value, option=_OPTIONS)
        except TypeError:
            return _walked(value)
        return _walked(value) if b"\\u0000" in written else orjson.loads(written)
    return _walked(value)


def _walked(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return _storable_integer(value)
    if isinstance(value, dict):
        return {
            _walked(key if isinstance(key, str) else str(key)): _walked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_walked(item) for item in value]
    return value.isoformat() if isinstance(value, date) else _walked(str(value))


def _storable_integer(value: int) -> int | float | None:
    if -_MAX_INTEGER <= value < _MAX_INTEGER:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return None
