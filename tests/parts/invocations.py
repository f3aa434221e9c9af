"""Invocations as the graph hands them to a recorder."""

from datetime import UTC, datetime, timedelta

INVOCATION = {
    "id": "i1",
    "tool_name": "lookup_knowledge",
    "query": "退款 🚀 עזרה",
    "status": "ok",
    "retrieval_layer": "L0+L1",
    "retrieval_details": {
        "l0_hints": {"keywords": ["退款"]},
        "matches": [{"entry_id": "a.md", "score": 0.5}],
    },
    "l1_status": "ok",
    "result_count": 1,
    "primary_entry_id": "a.md",
    "duration_ms": 3.5,
    "thread_id": None,
    "run_id": "r1",
    "tool_call_id": "c1",
    "created_at": "2026-01-02T03:04:05.678900+00:00",
}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def details_of(size):
    """Details as large as asked for, in every part."""
    number = size // 400
    texts = [f"Größe {n} 🚀" * 3 for n in range(number)]
    return {
        "l0_hints": {
            "titles": texts, "keywords": texts, "domains": ["Billing"], "entities": texts,
            "entries": [
                {"entry_id": f"{n}.md", "title": texts[n], "score": 0.5} for n in range(number)
            ],
            "terms": [{"text": texts[n], "span": [n, n + 1]} for n in range(number)],
        },
        "filter": {"category": None, "reason": "no_domain", "relaxed": False},
        "l1": {"status": "ok", "reason": None, "candidates": 3, "elapsed_ms": 1.5},
        "matches": [{"entry_id": f"{n}.md", "score": 0.5, "layers": ["L0"]} for n in range(100)],
        "relevance": {"level": "low", "semantic_support": False, "reason": "x"},
        "candidates": [
            {"entry_id": f"{n}.md", "score": 0.5, "similarity": 0.25} for n in range(110)
        ],
        "steps": {"l0_hints": 0.1},
    }  # fmt: skip


def read_call(number, status="ok", **changes):
    """Return a call of the read tool, without the digest of what it read."""
    match = {"entry_id": "a.md", "heading": "A > Steps", "lines": [3, 5], "layers": []}
    made = invocation(
        number,
        tool_name="read_vault",
        query=f"read {number}",
        status=status,
        retrieval_layer="none",
        l1_status="skipped",
        primary_entry_id="a.md" if status == "ok" else None,
    )
    details = {"matches": [match]} if status == "ok" else {"matches": [], "reason": "Not found: x."}
    return made | {"retrieval_details": details} | changes


def invocation(number, **changes):
    """Return an invocation, one an hour; keys of its details may be given as well."""
    made = {
        "id": f"i{number:04}",
        "tool_name": "lookup_knowledge",
        "query": f"query {number}",
        "status": "ok",
        "retrieval_layer": "L0+L1",
        "l1_status": "ok",
        "result_count": 1,
        "primary_entry_id": "a.md",
        "duration_ms": float(number),
        "thread_id": f"t{number % 3}",
        "run_id": None,
        "tool_call_id": None,
        "created_at": (START + timedelta(hours=number)).isoformat(),
    }
    details = {
        "l0_hints": {
            "titles": [],
            "keywords": [],
            "domains": [],
            "entities": [],
            "entries": [],
            "terms": [],
        },
        "filter": {"category": None, "reason": "no_domain", "relaxed": False},
        "l1": {"status": "ok", "reason": None, "candidates": 1, "elapsed_ms": 1.0},
        "candidates": [{"entry_id": "a.md", "score": 1.0, "similarity": 0.7}],
        "matches": [
            {
                "entry_id": "a.md",
                "title": "A",
                "heading": "A > Steps",
                "lines": [3, 5],
                "score": 1.0,
                "similarity": 0.7,
                "layers": ["L1"],
                "matched": [{"field": "text", "text": "query"}],
                "passages": [
                    {
                        "lines": [3, 5],
                        "chars": 9,
                        "digest": "0" * 12,
                        "heading": None,
                        "path": None,
                    }
                ],
                "shares": {"meaning": 0.7, "words": 0.3, "hints": 0.0},
            }
        ],
        "relevance": {
            "level": "high",
            "semantic_support": True,
            "reason": "best similarity 0.70 reaches 0.60",
        },
    }
    for name in details.keys() & changes.keys():
        details[name] = (
            details[name] | changes[name] if isinstance(details[name], dict) else changes[name]
        )
    details |= {name: changes[name] for name in ("scope", "options") if name in changes}
    return (
        made
        | {name: value for name, value in changes.items() if name in made}
        | {"retrieval_details": details}
    )
