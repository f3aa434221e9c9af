"""Reading an entry or a part of it: bounded, within the scope of the caller, and recorded."""

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from typing_extensions import TypedDict

from langchain_lookup_knowledge.errors import EntryNotFoundError, ScopeError
from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.answer.rendering import (
    NAME_CHARS,
    escaped,
    fenced,
    new_mark,
    quoted,
)
from langchain_lookup_knowledge.lookup.caller_scope import caller_scope
from langchain_lookup_knowledge.lookup.invocation import passage_digest
from langchain_lookup_knowledge.lookup.recording import UNRECORDED, caller, keep, milliseconds
from langchain_lookup_knowledge.reading.parts import Part, parse_lines
from langchain_lookup_knowledge.scope import Scope
from langchain_lookup_knowledge.text.storable import storable
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.text.wording import line_range, named_lines, shorten
from langchain_lookup_knowledge.types import (
    Invocation,
    InvocationRecorder,
    LookupOptions,
    Recorded,
    Status,
)

_FRAME_CHARS = 300
"""Characters around the text, not counting its title and location."""


class ReadResult(TypedDict):
    """The artifact of the tool `read_knowledge`; only plain JSON types.

    `lines` are the first and last line of the file that are in `text`; `rest` are the first and
    last of the lines that did not fit. `reason` says why the status is not "ok"; `source` and
    `lines` are then None.
    """

    invocation_id: str
    status: Status
    source: str | None
    title: str
    heading: str
    lines: list[int] | None
    text: str
    rest: list[int] | None
    metadata: dict[str, Any]
    reason: str | None
    recorded: Recorded


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads parts of the entries of a knowledge base for a model.

    Args:
        kb: the knowledge base.
        recorder: where each call is recorded; None records nothing.
        options: `max_chars`, `record_mode` and `scope_fields` are used.
        name: the `tool_name` in the record.
    """

    kb: KnowledgeBase
    recorder: InvocationRecorder | None
    options: LookupOptions
    name: str

    def read(
        self,
        source: str,
        heading: str | None,
        lines: str | None,
        config: RunnableConfig,
        runtime: object,
    ) -> tuple[str, ReadResult]:
        """Return the text for the model, at most `max_chars` long, and the result.

        Expected failures are returned as a status: "no_match" for an unknown entry or section,
        "refused" for an unknown caller, "invalid_query" for invalid line numbers.
        """
        started, moment = time.perf_counter(), datetime.now(UTC)
        scope: Scope = ()
        asked = _asked(source, heading, lines)
        try:
            scope = caller_scope(self.options, config, runtime)
            part = self.kb.section(
                source, heading, lines=None if lines is None else parse_lines(lines), scope=scope
            )
            text, result = self._shown(part, scope)
        except EntryNotFoundError as error:
            text, result = _failed("no_match", f"Not found: {error}.")
        except ScopeError as error:
            text, result = _failed("refused", f"Not answered: {error}.")
        except ValueError as error:
            text, result = _failed("invalid_query", f"Not read: {error}.")
        invocation: Invocation = {
            "id": result["invocation_id"],
            "tool_name": self.name,
            "query": asked,
            "status": result["status"],
            "retrieval_layer": "none",
            "retrieval_details": _details(result, scope),
            "l1_status": "skipped",
            "result_count": int(result["status"] == "ok"),
            "primary_entry_id": result["source"],
            "duration_ms": milliseconds(started),
            "created_at": moment.isoformat(),
            **caller(config),
        }
        result["recorded"] = keep(self.recorder, invocation)
        if result["recorded"] == "failed":
            if self.options.record_mode == "required":
                text, refused = _failed("refused", f"Not answered: {UNRECORDED}.")
                result = {**refused, "recorded": "failed"}
            else:
                text = f"{text}\n\nThe call could not be recorded."
        return shorten(text, self.options.max_chars), result

    def _shown(self, part: Part, scope: Scope) -> tuple[str, ReadResult]:
        """Return as many lines of a part as fit, between marks."""
        limit = self.options.max_chars
        width = min(NAME_CHARS, limit // 8)
        room = limit - _FRAME_CHARS - 2 * width
        written = part.text.split("\n")
        shown, used = 0, 0
        for line in written:
            used += len(escaped(line)) + 1
            if used > room:
                break
            shown += 1
        kept = written[:shown] or [shorten(written[0], room)]
        lines, rest = [part.numbers[0], part.ends[len(kept) - 1]], part.numbers[len(kept) :]
        is_cut = shown == 0
        text = "\n".join(kept)
        place = part.entry_id + line_range(lines)
        place += f" > {part.heading}" if part.heading else ""
        block = [
            quoted(part.title, width),
            f"source: {quoted(place, width)}",
            shorten(escaped(text), room) if is_cut else escaped(text),
        ]
        status = f"{named_lines(lines).capitalize()}."
        if is_cut:
            status += " This line is too long to be shown whole."
        if rest:
            status += f' There is more: read it with lines="{rest[0]}-{part.ends[-1]}".'
        result: ReadResult = {
            "invocation_id": str(uuid.uuid4()),
            "status": "ok",
            "source": part.entry_id,
            "title": part.title,
            "heading": part.heading,
            "lines": lines,
            "text": text,
            "rest": [rest[0], part.ends[-1]] if rest else None,
            "metadata": self.kb.seen_by(scope).shown(part.entry_id, self.kb.fields.shown),
            "reason": None,
            "recorded": "off",
        }
        return fenced(status, [block], new_mark()), result


def _asked(source: str, heading: str | None, lines: str | None) -> str:
    """Return the requested place, written as lookups cite a place."""
    asked = source + (f":{lines}" if lines else "") + (f" > {heading}" if heading else "")
    return one_line(storable(asked))


def _failed(status: Status, text: str) -> tuple[str, ReadResult]:
    return text, {
        "invocation_id": str(uuid.uuid4()),
        "status": status,
        "source": None,
        "title": "",
        "heading": "",
        "lines": None,
        "text": "",
        "rest": None,
        "metadata": {},
        "reason": text,
        "recorded": "off",
    }


def _details(result: ReadResult, scope: Scope) -> dict[str, Any]:
    match: dict[str, Any] = {
        "entry_id": result["source"],
        "title": result["title"],
        "heading": result["heading"],
        "lines": result["lines"],
        "layers": [],
    }
    text = result["text"].strip()
    if not text.endswith("…"):  # a line that was cut cannot be compared with the whole one
        place = {"lines": result["lines"], "chars": len(text), "digest": passage_digest(text)}
        match["passages"] = [place]
    details: dict[str, Any] = {"matches": [match] if result["status"] == "ok" else []}
    if result["reason"]:
        details["reason"] = result["reason"]
    return details | ({"scope": dict(scope)} if scope else {})
