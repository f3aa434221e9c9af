"""OpenTelemetry metrics of lookups, where `opentelemetry-api` is installed (extra `otel`).

They go to the meter provider of the process. Names, units and attributes are in
`docs/monitoring.md`; no attribute holds a text of a query or an entry.
"""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from langchain_lookup_knowledge.health import is_answering
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.records.recorder import SQLInvocationRecorder
from langchain_lookup_knowledge.types import Invocation, InvocationRecorder, Recorded

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation

_watched: WeakKeyDictionary[KnowledgeBase, InvocationRecorder | None] = WeakKeyDictionary()
_Value = int | None


class _Instruments(NamedTuple):
    lookups: "Counter"
    seconds: "Histogram"
    l1_seconds: "Histogram"


@cache
def _instruments() -> _Instruments | None:
    """Return the instruments, made once in a process; None if OpenTelemetry is not installed."""
    try:
        from opentelemetry import metrics  # noqa: PLC0415
    except ImportError:
        return None
    meter = metrics.get_meter("langchain_lookup_knowledge")
    for name, description, value, worst in (
        ("l1.up", "Whether vector search answers: 1, or 0 if it fails or is paused", _l1_up, min),
        ("index.up", "Whether the index matches its folder: 1 or 0", _index_up, min),
        ("spool.records", "Records that wait for the database", _waiting, max),
    ):
        meter.create_observable_gauge(
            f"lookup_knowledge.{name}", [partial(_observed, value, worst)], description=description
        )
    return _Instruments(
        meter.create_counter("lookup_knowledge.lookups", description="Lookups by their outcome"),
        meter.create_histogram(
            "lookup_knowledge.lookup.duration", unit="s", description="Time of a whole lookup"
        ),
        meter.create_histogram(
            "lookup_knowledge.l1.duration", unit="s", description="Time of its vector search"
        ),
    )


def watch(kb: KnowledgeBase, recorder: InvocationRecorder | None) -> None:
    """Report the state of a knowledge base, and of the recorder of its lookups, from now on."""
    if _instruments() is not None:
        _watched[kb] = recorder or _watched.get(kb)


def is_metered() -> bool:
    """Return whether lookups are counted."""
    return _instruments() is not None


def count(invocation: Invocation, recorded: Recorded) -> None:
    """Count a lookup and its times."""
    instruments = _instruments()
    if instruments is None:
        return
    details = invocation["retrieval_details"]
    tool = {"tool": invocation["tool_name"]}
    outcome = {
        "status": invocation["status"],
        "layer": invocation["retrieval_layer"],
        "l1": invocation["l1_status"],
        "relevance": details["relevance"]["level"],
        "recorded": recorded,
    }
    instruments.lookups.add(1, {**tool, **outcome})
    instruments.seconds.record(invocation["duration_ms"] / 1000, tool)
    if elapsed := details["l1"]["elapsed_ms"]:
        instruments.l1_seconds.record(elapsed / 1000, {**tool, "l1": invocation["l1_status"]})


def _observed(
    value: Callable[[KnowledgeBase, InvocationRecorder | None], _Value],
    worst: Callable[[Iterable[int]], int],
    _: "CallbackOptions",
) -> "Iterable[Observation]":
    """Return one value for each folder name: the worst one, if several knowledge bases share the
    name.
    """
    from opentelemetry.metrics import Observation  # noqa: PLC0415

    values: dict[str, list[int]] = {}
    for reference in _watched.keyrefs():  # a copy: an exporter reads in a thread of its own
        kb = reference()
        if kb is not None and (found := value(kb, _watched.get(kb))) is not None:
            values.setdefault(kb.folder.name, []).append(found)
    return [Observation(worst(found), {"knowledge_base": name}) for name, found in values.items()]


def _l1_up(kb: KnowledgeBase, _: InvocationRecorder | None) -> _Value:
    state = kb.health()["l1"]
    return None if state == "disabled" else int(state not in ("failing", "paused"))


def _index_up(kb: KnowledgeBase, _: InvocationRecorder | None) -> _Value:
    health = kb.health()
    return None if health["index"] == "off" else int(is_answering({**health, "l1": "ok"}))


def _waiting(_: KnowledgeBase, recorder: InvocationRecorder | None) -> _Value:
    return recorder.waiting() if isinstance(recorder, SQLInvocationRecorder) else None
