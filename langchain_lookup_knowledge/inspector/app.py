"""The inspector: pages that show lookups, how answers were found, and what the folder lacks.

Pages are served to this machine or written to a file. They contain no scripts, and all recorded
data is escaped as text. Starlette routes requests, uvicorn serves them, and Jinja renders pages.
"""

import base64
import hashlib
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, get_args
from urllib.parse import urlencode

import jinja2
from starlette.applications import Starlette

from langchain_lookup_knowledge.errors import LookupKnowledgeError
from langchain_lookup_knowledge.health import Health
from langchain_lookup_knowledge.inspector import charts, why
from langchain_lookup_knowledge.inspector.evidence import ShownPassage, TodaysEntries
from langchain_lookup_knowledge.inspector.gaps import (
    GAP_ROWS,
    Gap,
    Proof,
    QueryVectors,
    gaps_in,
    grouped,
    may_get_keywords,
    missing_words,
    proven,
)
from langchain_lookup_knowledge.inspector.serving import Attempts
from langchain_lookup_knowledge.inspector.texts import marked, shown, whole
from langchain_lookup_knowledge.inspector.trying import (
    OTHER,
    Settings,
    compared,
    difference,
    looked_up,
    pairs,
)
from langchain_lookup_knowledge.inspector.web import Web
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.records import feedback
from langchain_lookup_knowledge.records.history import DETAILED_ROWS, History
from langchain_lookup_knowledge.records.invocations import is_hashed
from langchain_lookup_knowledge.records.rows import can_be_compared, readable_details, scope_of
from langchain_lookup_knowledge.records.selection import UNANSWERED, Selection
from langchain_lookup_knowledge.replay import format_changes, replay
from langchain_lookup_knowledge.text.search_terms import search_terms
from langchain_lookup_knowledge.types import (
    L1_FAILED,
    STEPS,
    Invocation,
    L1Status,
    RecordedStatus,
    RelevanceLevel,
)

logger = logging.getLogger("langchain_lookup_knowledge")

LAYERS = ("L0+L1", "L1", "L0", "none")
STATUSES = get_args(RecordedStatus)
LEVELS = get_args(RelevanceLevel)
MAX_GROUPS = 50
"""Maximum number of groups of gaps on a page."""
STYLE = (files(__package__) / "pages" / "style.css").read_text("utf-8")


class Inspector:
    """The pages of a history.

    Args:
        history: the records, and the scope to which they are limited.
        open_kb: opens the knowledge base when a lookup is first replayed; None if there is no
            knowledge base. If the history has a scope, the knowledge base is not opened, because it
            also holds entries outside the scope.
        look_kb: opens the knowledge base read-only, to read its entries.
        name: the name of the knowledge base; empty if it is not known.
        opener: how links open a file: a key of `evidence.OPENERS`; None makes no links.
    """

    def __init__(
        self,
        history: History,
        open_kb: Callable[[], KnowledgeBase] | None = None,
        look_kb: Callable[[], KnowledgeBase] | None = None,
        *,
        name: str = "",
        opener: str | None = None,
    ) -> None:
        self.history = history
        self.name = name
        self.style = STYLE
        self._open_kb = None if history.scope else open_kb
        self._today = TodaysEntries(None if history.scope else look_kb, opener)
        self._opening = Attempts()
        self._vectors = QueryVectors()
        self._kb: KnowledgeBase | None = None
        self._lock = threading.Lock()
        loader = jinja2.PackageLoader(__package__, "pages")
        self._pages = jinja2.Environment(
            loader=loader,
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._pages.filters |= {
            "shown": shown,
            "whole": whole,
            "when": _when,
            "anchor": _anchor,
            "share": _share,
            "decimals": _decimals,
            "scope_of": scope_of,
        }
        self._pages.globals |= {
            "swatch": charts.swatch,
            "owed": charts.owed,
            "bar": charts.bar,
            "title_of": why.title_of,
            "missing_words": missing_words,
            "may_get_keywords": may_get_keywords,
            "fills": charts.FILLS,
            "layers": LAYERS,
            "l1_failed": L1_FAILED,
            "statuses": (*STATUSES, UNANSWERED),
            "levels": LEVELS,
            "l1_statuses": get_args(L1Status),
            "can_try": self._open_kb is not None,
        }

    def close(self) -> None:
        """Close the knowledge bases that were opened."""
        self._today.close()
        if self._kb is not None:
            self._kb.close()

    def render(self, body: str, title: str, **values: Any) -> str:
        """Return the HTML of a page."""
        given = {"style": None, "form_token": "", "scope": self.history.scope, "name": self.name}
        return self._pages.get_template("page.html").render(
            {**given, **values, "body": body, "title": title}
        )

    def overview(self, selection: Selection) -> dict[str, Any]:
        """Return the values of the overview page."""
        counts = self.history.overview(selection)
        drawn = {
            "layer": charts.stacked("layers", "Lookups by layer", counts["time"], LAYERS),
            "status": charts.stacked("statuses", "Lookups by status", counts["time"], STATUSES),
            "relevance": charts.stacked("claims", "Lookups by relevance", counts["claims"], LEVELS),
        }
        days = {"since": selection.since, "until": selection.until}
        period = {name: str(day) for name, day in days.items() if day}

        def to_lookups(**chosen: object) -> str:
            return "/lookups?" + urlencode({**period, **chosen})

        total = sum(counts["statuses"].values())
        return {"counts": counts, "total": total, "drawn": drawn, "to_lookups": to_lookups}

    def mark_gap(self, keys: Sequence[str], selection: Selection, *, done: bool) -> None:
        """Mark gaps of the gaps page, given by their keys, as done, or as open again.

        Raises:
            ValueError: the page lists none of them.
        """
        listed = {gap.key for gap in self._gaps(selection)}.intersection(keys)
        if not listed:
            raise ValueError("No such gap is listed: load the page of gaps again.")
        feedback.mark_done(self.history.recorder, listed, done=done)

    def _gaps(self, selection: Selection) -> list[Gap]:
        recorder, rows = self.history.recorder, self.history.asked(selection, limit=GAP_ROWS)
        done, judged = feedback.done_at(recorder), feedback.judgments(recorder)
        return gaps_in(rows, done, judged)

    def gaps(self, selection: Selection) -> dict[str, Any]:
        """Return the values of the gaps page.

        `groups` holds the proven gaps, the most certain first, and `doubtful` the queries whose
        answers claim low relevance, but may be right. `never` holds the entries that no lookup
        found; it is None if there is no knowledge base. `entries` holds all entries by their ids.
        """
        never, kb = None, self._today.kb()
        if kb is not None:
            found = self.history.found_entries(selection)
            never = [entry for entry in kb.entries if entry.entry_id not in found]
        gaps = self._gaps(selection)

        def vectors(queries: Sequence[str]) -> list[Sequence[float]] | None:
            return None if kb is None else self._vectors.of(kb.embedding, queries)

        near = 1.0 if kb is None else kb.l1.medium_similarity
        read = proven([gap for gap in gaps if not gap.closed], self.history.invocations)
        certain = [gap for gap in read if gap.proof is not Proof.NONE]
        return {
            "groups": grouped(certain, vectors, near)[:MAX_GROUPS],
            "doubtful": [gap for gap in read if gap.proof is Proof.NONE],
            "closed": [gap for gap in gaps if gap.closed],
            "never": never,
            "entries": {} if kb is None else {entry.entry_id: entry for entry in kb.entries},
            "terms": self.history.common_terms(selection),
            "filters": self.history.filters(selection),
            "gap_rows": GAP_ROWS,
            "detailed_rows": DETAILED_ROWS,
        }

    def lookup(self, invocation: Invocation) -> dict[str, Any]:
        """Return the values of the page of one lookup, even if its record is partly unreadable."""
        details = readable_details(invocation["retrieval_details"])
        hints = details["l0_hints"]
        before = {item["entry_id"]: item for item in details["candidates"]}
        after = {item["entry_id"]: item for item in details["matches"]}
        order = [*after, *(entry_id for entry_id in before if entry_id not in after)]
        steps = {step: details["steps"][step] for step in STEPS if step in details["steps"]}
        given = feedback.feedback_on(self.history.recorder, [invocation["id"]])
        return {
            "invocation": invocation,
            "details": details,
            "hints": hints,
            "marked": marked(invocation["query"] or "", hints["terms"]),
            "answer": why.answer_sentence(invocation, details),
            "trust": why.trust_sentence(details),
            "l1_said": why.vector_search_note(details),
            "filter_said": why.filter_sentence(invocation, details),
            "next_ones": why.next_ones(details),
            "matches": [(match, self._passages(invocation, match)) for match in details["matches"]],
            "table": [(entry_id, before.get(entry_id), after.get(entry_id)) for entry_id in order],
            "ranks": [
                {entry_id: rank for rank, entry_id in enumerate(side, 1)}
                for side in (before, after)
            ],
            "steps": steps,
            "longest": max(steps.values(), default=0.0) or 1.0,
            "recorded": True,
            "feedback": given.get(invocation["id"]),
            "again": None,
            "can_run": self._open_kb is not None and can_be_compared(invocation),
        }

    def read(self, invocation: Invocation) -> dict[str, Any]:
        """Return the values of the page of a call of the read tool."""
        details = readable_details(invocation["retrieval_details"])
        match, passage = next(iter(details["matches"]), None), None
        if match:
            lost = any(place.split(".")[0] == "scope" for place in details["unreadable"])
            known = not lost and not details.get("truncated")
            title, passage = self._today.read(match, details["scope"] if known else None)
            match = {**match, "title": match["title"] or title}
        return {
            "invocation": invocation,
            "details": details,
            "answer": why.read_sentence(invocation, details, match),
            "passage": passage,
        }

    def _passages(self, invocation: Invocation, match: Mapping[str, Any]) -> list[ShownPassage]:
        query = invocation["query"] or ""
        words = set() if is_hashed(query) else set(search_terms(query))
        fields = ("title", "keywords", "entities")
        declared = [m["text"] for m in match["matched"] if m["field"] in fields]
        return self._today.passages(match, words, declared)

    def tried(self, query: str, given: Mapping[str, str]) -> dict[str, Any]:
        """Look up a query in today's folder, without a record; return the values of its page.

        With `compare`, it is looked up with two settings; `sides` has the values of both.

        Raises:
            ValueError: there is no knowledge base, or a setting cannot be used.
        """
        first, second = (Settings.of_form(given, ending) for ending in ("", OTHER))
        compare, written = bool(given.get("compare")), given.get("scope_given", "").strip()
        form = {"query": query, "scope_given": written, **first.fields(), **second.fields(OTHER)}
        page = {"given": form, "compare": compare, "sides": []}
        if not query:
            return page
        scope = dict(pairs(written, "scope"))
        chosen = [first, second] if compare else [first]
        with self._lock:
            kb = self._current_kb()
            if kb is None:
                raise ValueError("There is no knowledge base to ask: start the inspector with one.")
            found = [looked_up(kb, query, settings, scope) for settings in chosen]
        sides = [
            {**self.lookup(one), "recorded": False, "settings": str(settings)}
            for one, settings in zip(found, chosen, strict=True)
        ]
        if not compare:
            return {**page, **sides[0], "sides": sides}
        entries = compared([side["details"] for side in sides])
        return {**page, "sides": sides, "entries": entries, "difference": difference(entries)}

    def again(self, invocation: Invocation) -> list[str]:
        """Run a lookup again on today's folder and index; return one line per change."""
        if not can_be_compared(invocation):
            raise ValueError(
                "This lookup cannot be run again: it was not answered, L1 failed, "
                "or its query was not kept or cannot be read."
            )
        with self._lock:
            kb = self._current_kb()
            if kb is None:
                raise ValueError("There is no knowledge base to ask: start the inspector with one.")
            ((_, changed),) = replay(kb, [invocation])
            health = kb.health()
        unfit = health["index"] in ("behind", "missing", "damaged")
        index = [f"The index is {health['index']}: {health['message']}"] if unfit else []
        return [*index, *format_changes(changed)]

    def health(self) -> Health | None:
        """Return the health of the knowledge base; None if there is none. A knowledge base that is
        not open yet is opened read-only; after a failure, only after a pause.

        Raises:
            LookupKnowledgeError: it cannot be opened.
        """
        kb = self._kb or self._opening.at(self._today.knowledge_base)
        return kb.health() if kb else None

    def _current_kb(self) -> KnowledgeBase | None:
        """Return the knowledge base, if any, synced with its folder.

        A collection on a server is not synced here, only by `lookup-knowledge index`.
        """
        if self._kb is None:
            self._kb = self._open_kb() if self._open_kb else None
        elif self._kb.index is None or self._kb.index.embedded:
            try:
                self._kb.sync()
            except LookupKnowledgeError:  # such as another model: health() says why
                logger.debug("the index was not brought up to date", exc_info=True)
        return self._kb

    def report(self, limit: int) -> str:
        """Return one self-contained page: all counts, and the newest `limit` lookups in detail."""
        everything = Selection()
        rows = self.history.lookups(everything, limit=limit)
        pictures = [
            self.lookup(found) for found in self.history.invocations([row["id"] for row in rows])
        ]
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        )
        overview, gaps = self.overview(everything), self.gaps(everything)
        made = {"rows": rows, "pictures": pictures, "can_run": False, **overview, **gaps}
        return self.render(
            "report.html",
            "Lookup report",
            style=STYLE,
            policy=policy,
            written=datetime.now(UTC),
            **made,
        )

    def serve(
        self, host: str, port: int, token: str | None, *, started: Callable[[str], None]
    ) -> None:
        """Serve the pages until interrupted; call `started` with the URL to open in a browser.

        Raises:
            ValueError: other machines can reach the host, and there is no token.
            OSError: the address cannot be bound.
        """
        Web(self).serve(host, port, token, started=started)

    def app(self, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
        """Return the ASGI app; requests need a host name of `host` and the token, if any."""
        return Web(self).app(host, token)


def _when(moment: str | datetime | None) -> str:
    return str(moment or "–")[:19].replace("T", " ")


def _anchor(invocation_id: str | None) -> str:
    return "i" + re.sub(r"[^\w-]", "_", invocation_id or "")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}".replace("%", "\u202f%") if whole else "–"


def _decimals(number: float | None, places: int) -> str:
    return "–" if number is None else f"{number:.{places}f}"
