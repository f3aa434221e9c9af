"""Shapes shared by every module: options, problems, and the JSON of a result."""

from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

FilterMode = Literal["guarded", "strict", "off"]
RecordMode = Literal["best_effort", "required"]
Layer = Literal["L0", "L1"]
Status = Literal["ok", "degraded", "no_match", "invalid_query", "refused"]
RetrievalLayer = Literal["L0", "L1", "L0+L1", "none"]
FilterReason = Literal["single_domain", "no_domain", "several_domains", "off"]
L1Status = Literal["ok", "empty", "below_threshold", "failed", "timeout", "unavailable", "disabled", "skipped"]
L1_FAILED: tuple[L1Status, ...] = ("failed", "timeout", "unavailable")
"""States of an L1 that should have taken part and did not."""
STEPS = ("l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation")
"""The nodes of the graph, in their order."""
RelevanceLevel = Literal["high", "medium", "low", "none"]
L1State = Literal["untried", "ok", "failing", "open", "disabled"]
Recorded = Literal["stored", "spooled", "failed", "off"]
Field = Literal["title", "keywords", "entities"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or field that was not used as written, and why.

    `path` is relative to the knowledge folder; `line` counts from 1, and is None where no line is to blame.
    """

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What became of the Markdown files of a folder: `seen` is `loaded` plus how many were `skipped`.

    `skipped` holds a problem for each file that is no entry; `problems` these and each field or folder not used as written.
    """

    seen: int
    loaded: int
    skipped: tuple[Problem, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class FrontmatterFields:
    """Which frontmatter keys hold what.

    `title`: the first name that has a value wins; then the first heading; then the file name.
    `keywords`, `category`, `entities`: the values of all names, together, in this order. `a.b` names the key `b` in the mapping
    `a`; tags and categories in a mapping `taxonomies` are found without it. An entity that starts with `/` is an address, not a
    name, and is left out.
    `category_from_path`: an entry without a category in its frontmatter gets the first N folders of its path as one
    category (2 makes `manuals/engine` of `manuals/engine/install/ubuntu.md`); 0 turns this off.
    `case_sensitive`: terms that match only in the case they are written in, beside the built-in rule for capitals and names
    that are also common English words (`IT`, `AIMS`, `Red`).
    `skip_drafts`: files whose frontmatter says `draft: true`, `publish: false` or `published: false` are not read.
    """

    title: tuple[str, ...] = ("title",)
    keywords: tuple[str, ...] = ("keywords", "tags")
    category: tuple[str, ...] = ("category", "categories", "domain")
    entities: tuple[str, ...] = ("entities", "aliases")
    category_from_path: int = 0
    case_sensitive: tuple[str, ...] = ()
    skip_drafts: bool = False

    def __post_init__(self) -> None:
        for name in ("title", "keywords", "category", "entities", "case_sensitive"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(isinstance(key, str) for key in value):
                raise ValueError(f"FrontmatterFields.{name} takes a tuple of strings, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        if not isinstance(self.category_from_path, int) or self.category_from_path < 0:
            raise ValueError(f"category_from_path counts folders, so it is 0 or more, not {self.category_from_path}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """How a lookup behaves.

    `k`: most matches in a result, 1 to 100, one an entry.
    `filter_mode`: "guarded" sends the category filter with an unfiltered probe beside it and relaxes a filter that hides
    clearly better candidates; "strict" sends the filter alone; "off" never filters.
    `min_similarity`: candidates whose dense cosine (-1 to 1) is lower do not count; None keeps all.
    `l1_enabled`: False answers from L0 alone.
    `l1_timeout`: seconds L1 may take, embedding the query and one retry included; at most 3600.
    `max_chars`: most characters of the text handed to the model, at least 500.
    `record_mode`: "best_effort" answers even if the call could not be recorded; "required" does not.
    `scope_fields`: frontmatter keys, such as `("tenant",)`, that decide who may see an entry. The caller sets their values in
    `config["configurable"]` or in the runtime context; without them the lookup is refused. An entry without them is seen by
    nobody, unless its frontmatter says `public: true`. Never relaxed.
    """

    k: int = 5
    filter_mode: FilterMode = "guarded"
    min_similarity: float | None = None
    l1_enabled: bool = True
    l1_timeout: float = 2.0
    max_chars: int = 6000
    record_mode: RecordMode = "best_effort"
    scope_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kinds in (("k", int), ("l1_timeout", (int, float)), ("max_chars", int)):
            if not isinstance(getattr(self, name), kinds) or isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be a number, not {getattr(self, name)!r}")
        if not 1 <= self.k <= 100:
            raise ValueError(f"k must be 1 to 100, not {self.k}")
        if self.filter_mode not in ("guarded", "strict", "off"):
            raise ValueError(f'filter_mode must be "guarded", "strict" or "off", not {self.filter_mode!r}')
        threshold = self.min_similarity
        if threshold is not None and not (isinstance(threshold, int | float) and -1 <= threshold <= 1):
            raise ValueError(f"min_similarity is a cosine, -1 to 1, not {self.min_similarity}")
        if not 0 < self.l1_timeout <= 3600:
            raise ValueError(f"l1_timeout must be more than 0 and at most 3600 seconds, not {self.l1_timeout}")
        if self.max_chars < 500:
            raise ValueError(f"max_chars must be at least 500, not {self.max_chars}")
        if self.record_mode not in ("best_effort", "required"):
            raise ValueError(f'record_mode must be "best_effort" or "required", not {self.record_mode!r}')
        fields = self.scope_fields
        if isinstance(fields, str) or not all(isinstance(name, str) and name.strip() for name in fields):
            raise ValueError(f'scope_fields takes a tuple of frontmatter keys, such as ("tenant",), not {fields!r}')
        object.__setattr__(self, "scope_fields", tuple(fields))


class HintEntry(TypedDict):
    """An entry whose title, keywords or entities stand in the query; `score` is comparable within one query only."""

    entry_id: str
    title: str
    domains: list[str]
    keywords: list[str]
    entities: list[str]
    score: float


class DescribedEntry(TypedDict):
    """An entry whose title, keywords or entities share `words` with the query; no whole term of them need stand in it."""

    entry_id: str
    title: str
    domains: list[str]
    words: list[str]


class HintTerm(TypedDict):
    """One term found in the query, and what it is worth.

    `span`: [start, end) in the query as given, in code points. `kind`: "exact", "plural", "accents", or "typo", a weak
    hint that leads to its entries but stands in no list of keywords, entities or domains. `files`: how many entries hold
    the term anywhere in their text. `specific`: whether it is rare enough to point at its entries. `domains`: the
    categories it names. `reason` says why or why not.
    """

    text: str
    field: Field
    span: list[int]
    kind: str
    files: int
    specific: bool
    domains: list[str]
    reason: str


class Hints(TypedDict):
    """What L0 found. `domains` holds the categories that specific terms name; the entries' own hold all of theirs."""

    titles: list[str]
    keywords: list[str]
    domains: list[str]
    entities: list[str]
    entries: list[HintEntry]
    terms: list[HintTerm]


class FilterChoice(TypedDict):
    """The category filter sent to L1, if any, and why; `relaxed` says that it was taken back."""

    category: str | None
    reason: FilterReason
    relaxed: bool


class L1Report(TypedDict):
    """How L1 took part: `candidates` is how many entries it found, `elapsed_ms` the time it took."""

    status: L1Status
    reason: str | None
    candidates: int
    elapsed_ms: float


class L1Health(TypedDict):
    """How L1 is: `open` means that it is left alone for `retry_in` seconds after `failures` in a row.

    `since`: when this state began, in ISO 8601, UTC. `last_failure` stays after L1 has come back.
    """

    l1: L1State
    since: str
    failures: int
    last_failure: str | None
    retry_in: float | None


class Health(L1Health):
    """How a knowledge base is.

    `index` is "off", "missing", "on a server" (which lookups alone ask), "ok", or what is wrong with it or still going on, as
    the last sync left it.
    """

    entries: int
    index: str


class Candidate(TypedDict):
    """An entry that L1 found: its best passage.

    `score` is the fused score, 0 to 1, `similarity` the dense cosine (None: found by words alone).
    """

    entry_id: str
    title: str
    categories: list[str]
    source: str
    heading: str
    text: str
    score: float
    similarity: float | None


class Matched(TypedDict):
    """Why an entry matched: a field of its frontmatter, "description" for words of these fields, or "text" for L1, and what."""

    field: str
    text: str


class Match(TypedDict):
    """One entry of the result; `score` orders the matches of one result and means nothing across results."""

    entry_id: str
    title: str
    categories: list[str]
    source: str
    heading: str
    snippet: str
    score: float
    similarity: float | None
    layers: list[Layer]
    matched: list[Matched]


class Relevance(TypedDict):
    """What the result claims: `semantic_support` is True only when the dense similarity supports the claim."""

    level: RelevanceLevel
    semantic_support: bool
    reason: str


class LookupResult(TypedDict):
    """The output of the graph and the artifact of the tool: plain JSON types all the way down."""

    invocation_id: str
    query: str
    status: Status
    retrieval_layer: RetrievalLayer
    primary: Match | None
    matches: list[Match]
    relevance: Relevance
    hints: Hints
    filter: FilterChoice
    l1: L1Report
    recorded: Recorded


class Invocation(TypedDict):
    """A recorded call: one row of `tool_invocation`; times in milliseconds, `created_at` in ISO 8601, UTC."""

    id: str
    tool_name: str
    query: str
    status: Status
    retrieval_layer: RetrievalLayer
    retrieval_details: dict[str, Any]
    l1_status: L1Status
    result_count: int
    primary_entry_id: str | None
    duration_ms: float
    thread_id: str | None
    run_id: str | None
    tool_call_id: str | None
    created_at: str
