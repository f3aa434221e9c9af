"""Types that all modules share: options, problems, and the JSON of a result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Protocol

from typing_extensions import TypedDict

TOOL_NAME = "lookup_knowledge"
"""The default name of the tool and the graph, and the default `tool_name` of a record."""
READ_TOOL_NAME = "read_knowledge"
"""The default name of the tool that reads an entry."""
FilterMode = Literal["guarded", "strict", "off"]
RecordMode = Literal["best_effort", "required"]
Layer = Literal["L0", "L1"]
Status = Literal["ok", "degraded", "no_match", "invalid_query", "refused"]
RecordedStatus = Literal[Status, "cancelled"]
"""The status of a record: "cancelled" is a lookup that was stopped before it had an answer."""
RetrievalLayer = Literal["L0", "L1", "L0+L1", "none"]
FilterReason = Literal["single_domain", "no_domain", "several_domains", "off", "skipped"]
L1Status = Literal[
    "ok", "empty", "below_threshold", "failed", "timeout", "unavailable", "disabled", "skipped"
]
L1_FAILED: tuple[L1Status, ...] = ("failed", "timeout", "unavailable")
"""Statuses of an L1 (vector search) that should have taken part and did not."""
STEPS = ("l0_hints", "choose_filter", "l1_retrieve", "merge_with_fallback", "record_invocation")
"""The nodes of the graph, in order."""
RelevanceLevel = Literal["high", "medium", "low", "none"]
Recorded = Literal["stored", "spooled", "failed", "off"]
Field = Literal["title", "keywords", "entities"]


ScopeFunction = Callable[[Any, Any], Mapping[str, Any]]
"""Returns the values of the scope fields from a `RunnableConfig` and a LangGraph `Runtime`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or field that was not used as written, and why.

    `path` is relative to the knowledge folder. `line` counts from 1; None if the problem is not in
    one line.
    """

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The number of files and folders that were left out for one reason, and the first of them.

    The contents of a folder that was left out are not counted.
    """

    reason: str
    files: int
    folders: int
    example: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A report on how the Markdown files of a folder were read.

    `seen` and `loaded` count files; the difference is the number of `skipped` ones. `skipped` has
    one problem for each file that did not become an entry. `problems` has all of `skipped`, and one
    problem for each field or folder that was not used as written. `left_out` counts what an ending,
    a pattern or a `.gitignore` excludes; `seen` does not count these files. `not_embedded` has
    those of the `problems` that are about embeds, because they depend on which entries a caller may
    see.
    """

    seen: int
    loaded: int
    skipped: tuple[Problem, ...]
    problems: tuple[Problem, ...]
    left_out: tuple[LeftOut, ...] = ()
    not_embedded: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        left_out = sum(reason.files + reason.folders for reason in self.left_out)
        return (
            f"LoadReport(seen={self.seen}, loaded={self.loaded}, skipped={len(self.skipped)}, "
            f"problems={len(self.problems)}, left_out={left_out})"
        )


@dataclass(frozen=True, slots=True)
class FrontmatterFields:
    """Which frontmatter keys are read, and for what.

    `title`: the first key that has a value wins; then the first heading of level 1; then the name
    of the file, or of its folder for README and index files.
    `keywords`, `category`, `entities`: the values of all listed keys are combined, in this order.
    `a.b` is the key `b` in the mapping `a`; keys in a mapping `taxonomies` need no prefix. An
    entity that starts with `/` is a path, not a name, and is ignored.
    `category_from_path`: an entry without a category in its frontmatter gets the first N folders of
    its path as one category; 2 turns `manuals/engine/install/ubuntu.md` into `manuals/engine`. 0
    turns this off.
    `case_sensitive`: terms that match only in the case they are written in. A built-in rule adds
    names in capitals, or capitalized, that are also common English words (`IT`, `AIMS`, `Red`).
    `shown`: keys whose values are copied to the `metadata` of a match, for citations. Values of
    more than 200 characters are left out.
    `filterable`: keys that a caller's `filters` may use, besides `category` and `folder`.
    `skip_drafts`: do not read files with `draft: true`, `publish: false` or `published: false` in
    their frontmatter.
    `text`: keys whose values are text for readers, also inside lists and mappings. These texts are
    searched and shown as the first lines of the entry. Other values are found only by their exact
    words.
    `inline_tags`: a `#tag` in the text is a keyword, too.
    `plain_headers`: lines `Key: value` up to the first empty line are a header even without a
    title, as in pages exported from Notion.

    The singular of a key (`tag`, `alias`, `keyword`, `entity`) counts like the key.
    """

    title: tuple[str, ...] = ("title",)
    keywords: tuple[str, ...] = ("keywords", "tags")
    category: tuple[str, ...] = ("category", "categories", "domain")
    entities: tuple[str, ...] = ("entities", "aliases")
    category_from_path: int = 0
    case_sensitive: tuple[str, ...] = ()
    shown: tuple[str, ...] = ("url", "author", "updated")
    filterable: tuple[str, ...] = ("date", "version", "state", "team")
    skip_drafts: bool = False
    text: tuple[str, ...] = (
        "description", "desc", "short_description", "summary", "subtitle", "tagline", "abstract",
        "excerpt", "intro", "lead", "question", "questions", "answer", "answers", "faq", "hero",
        "features", "objectives", "keypoints",
    )  # fmt: skip
    inline_tags: bool = False
    plain_headers: bool = False

    def __post_init__(self) -> None:
        lists = ("title", "keywords", "category", "entities", "case_sensitive", "text")
        for name in (*lists, "shown", "filterable"):
            value = getattr(self, name)
            if not isinstance(value, tuple | list) or not all(
                isinstance(key, str) for key in value
            ):
                raise ValueError(
                    f"FrontmatterFields.{name} takes a tuple of strings, not {value!r}"
                )
            object.__setattr__(self, name, tuple(value))
        if not isinstance(self.category_from_path, int) or self.category_from_path < 0:
            raise ValueError(
                "category_from_path is a number of folders, 0 or more, "
                f"not {self.category_from_path}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """How a lookup behaves.

    `k`: maximum number of matches in a result, 1 to 100; one match per entry.
    `filter_mode`: "guarded" also sends an unfiltered search (the probe), and relaxes a category
    filter that hides clearly better candidates; "strict" sends only the filter; "off" sends none.
    `min_similarity`: candidates with a lower dense cosine (-1 to 1) are dropped; None keeps all
    candidates.
    `l1_enabled`: False answers from L0 (keyword hints) alone.
    `l1_timeout`: seconds that L1 (vector search) may take, including embedding the query and one
    retry; at most 3600.
    `max_chars`: maximum characters of the text for the model, at least 500.
    `record_mode`: "best_effort" answers even if the lookup cannot be recorded; "required" refuses.
    `scope_fields`: frontmatter keys, such as `("tenant",)`, that decide who may see an entry. The
    caller sets their values in `config["configurable"]` or in the runtime context; without them the
    lookup is refused. An entry that lacks them is visible to nobody, unless its frontmatter says
    `public: true`. Scopes are never relaxed.
    `model_filters`: filters that the tool lets the model set, such as `("category", "date")`; by
    default, none.
    `scope`: a function that takes the config and the LangGraph runtime and returns the values of
    `scope_fields`. Use it on a server whose clients send `configurable`, to take the values from
    the authenticated user. `configurable` and the runtime context are then not read for these
    fields.
    """

    k: int = 5
    filter_mode: FilterMode = "guarded"
    min_similarity: float | None = None
    l1_enabled: bool = True
    l1_timeout: float = 2.0
    max_chars: int = 4400
    record_mode: RecordMode = "best_effort"
    scope_fields: tuple[str, ...] = ()
    model_filters: tuple[str, ...] = ()
    scope: ScopeFunction | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("k", int), ("l1_timeout", (int, float)), ("max_chars", int)):
            if not isinstance(getattr(self, name), kinds) or isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be a number, not {getattr(self, name)!r}")
        if not 1 <= self.k <= 100:
            raise ValueError(f"k must be 1 to 100, not {self.k}")
        if self.filter_mode not in ("guarded", "strict", "off"):
            raise ValueError(
                f'filter_mode must be "guarded", "strict" or "off", not {self.filter_mode!r}'
            )
        threshold = self.min_similarity
        if threshold is not None and not (
            isinstance(threshold, int | float) and -1 <= threshold <= 1
        ):
            raise ValueError(f"min_similarity is a cosine, -1 to 1, not {self.min_similarity}")
        if not 0 < self.l1_timeout <= 3600:
            raise ValueError(
                f"l1_timeout must be more than 0 and at most 3600 seconds, not {self.l1_timeout}"
            )
        if self.max_chars < 500:
            raise ValueError(f"max_chars must be at least 500, not {self.max_chars}")
        if self.record_mode not in ("best_effort", "required"):
            raise ValueError(
                f'record_mode must be "best_effort" or "required", not {self.record_mode!r}'
            )
        for option, example in (("scope_fields", "tenant"), ("model_filters", "category")):
            names = checked_names(getattr(self, option), option, example)
            object.__setattr__(self, option, names)
        if self.scope is not None and not (callable(self.scope) and self.scope_fields):
            raise ValueError(
                "scope takes a function of config and runtime, together with scope_fields, the "
                f"fields whose values it returns; not {self.scope!r} with {self.scope_fields!r}"
            )


def checked_names(names: Sequence[str], option: str, example: str) -> tuple[str, ...]:
    """Return the frontmatter keys of an option.

    Raises:
        ValueError: they are not texts.
    """
    if isinstance(names, str) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(
            f'{option} takes a tuple of frontmatter keys, such as ("{example}",), not {names!r}'
        )
    return tuple(names)


class GlossaryJoin(TypedDict):
    """A word of the query that has other forms in the glossary.

    `text`: the word as written in the query; `span`: its place there, [start, end) in code points.
    `forms`: the other forms, such as the long form of an abbreviation.
    """

    text: str
    span: list[int]
    forms: list[str]


class HintEntry(TypedDict):
    """An entry whose title, keywords or entities appear in the query.

    `keywords` and `entities` list only those that appear in the query. `score` is comparable only
    within one query.
    """

    entry_id: str
    title: str
    categories: list[str]
    keywords: list[str]
    entities: list[str]
    score: float


class MetadataHit(TypedDict):
    """An entry whose title, keywords or entities share `words` with the query.

    Unlike a hint, it needs no whole term in the query.
    """

    entry_id: str
    title: str
    categories: list[str]
    words: list[str]


class HintTerm(TypedDict):
    """One term found in the query, and how much it counts.

    `span`: [start, end) in the query as given, in code points. `kind`: "exact", "plural",
    "accents", "typo" or "glossary" (the query has another form of the term). A typo is a weak hint,
    so its entries are listed under `entries`, but the term is not listed under `keywords`,
    `entities` or `domains`. `document_frequency`: the number of entries that contain the term
    anywhere in their text. `specific`: whether it is rare enough to point at its entries.
    `domains`: the categories it names. `reason`: why it is specific or not, and why it names no
    domain.
    """

    text: str
    field: Field
    span: list[int]
    kind: str
    document_frequency: int
    specific: bool
    domains: list[str]
    reason: str


class Hints(TypedDict):
    """The hints that L0 (keyword matching) found in a query.

    `domains` are the categories that specific terms name; only these may become a filter.
    `glossary`: words of the query that have other forms in the glossary; absent if there are none.
    """

    titles: list[str]
    keywords: list[str]
    domains: list[str]
    entities: list[str]
    entries: list[HintEntry]
    terms: list[HintTerm]
    glossary: NotRequired[list[GlossaryJoin]]


class FilterChoice(TypedDict):
    """The category filter for L1 (vector search), if any, and why; `relaxed` says whether it was
    withdrawn later.
    """

    category: str | None
    reason: FilterReason
    relaxed: bool


class L1Report(TypedDict):
    """How L1 (vector search) took part; `candidates` is the number of entries that it found.

    `reranked`: whether the reranker ordered the passages; absent if the knowledge base has no
    reranker.
    """

    status: L1Status
    reason: str | None
    candidates: int
    elapsed_ms: float
    reranked: NotRequired[bool]


class CandidatePassage(TypedDict):
    """A passage that L1 found: its place in its entry, its text, and how well it answers.

    `number` counts the passages of the entry from 0, and `lines` are the first and last line in the
    file; both are None in a collection created elsewhere. `score` orders the passages of one
    search. `rare` lists the rare terms of the query that the passage contains. `path`: the entry
    that holds the text, if it is embedded in this one. `place`, in an entry with embedded parts,
    counts the passages of its own text from 0; an embedded passage has the place of the passage
    that it follows.
    """

    number: int | None
    heading: str
    text: str
    lines: list[int] | None
    score: float
    similarity: float | None
    rare: list[str]
    path: NotRequired[str]
    place: NotRequired[int]


class Candidate(TypedDict):
    """An entry that L1 found, with its best passages, best first.

    `score` is the fused score, 0 to 1, `similarity` the best dense cosine (None if it was found by
    words alone), and `meaning` the part of the fused score that similarity gave; words gave the
    rest. A reranker changes only `score`.
    """

    entry_id: str
    title: str
    categories: list[str]
    source: str
    score: float
    similarity: float | None
    passages: list[CandidatePassage]
    meaning: NotRequired[float]


class Matched(TypedDict):
    """Why an entry matched.

    `field`: "title", "keywords" or "entities" for a term; "metadata" for words or values of the
    frontmatter; "text" for words of the query that the snippet contains; "glossary" for a word of
    the query that the snippet contains in another form. `text`: the term, the value, or the words.
    """

    field: str
    text: str


class MatchPassage(TypedDict):
    """A passage that is shown: `span` is its place in the snippet, [start, end) in code points.

    `lines` are its first and last line in the file; None if they are not known. `score` orders the
    passages of one result. `path`: the entry that holds the text and these lines, if it is embedded
    in this one (`![[Page]]`, an include).
    """

    heading: str
    lines: list[int] | None
    score: float
    span: list[int]
    path: NotRequired[str]


class PrimaryMatch(TypedDict):
    """The best match of a result, without its text, which is in `matches[0]["snippet"]`.

    `passages` lists the passages of the entry that answer the query, best first, and `heading` and
    `lines` are those of the best passage that `source` itself contains; `lines` is None if all
    passages are embedded. `score` orders the matches of one result and means nothing across
    results. `source` equals `entry_id`. `metadata` has the frontmatter values that
    `FrontmatterFields.shown` names (a text, or a list of texts), and may have `state`
    ("superseded", "deprecated", "archived" or "draft"), `superseded_by` (as written), `version`,
    and `other_versions`: pages of nearly the same text that this match represents.
    """

    entry_id: str
    title: str
    categories: list[str]
    source: str
    heading: str
    lines: list[int] | None
    score: float
    similarity: float | None
    layers: list[Layer]
    matched: list[Matched]
    metadata: dict[str, Any]
    passages: list[MatchPassage]


class Match(PrimaryMatch):
    """One entry of the result; `snippet` is the text of its passages, in the order of the file."""

    snippet: str


class Relevance(TypedDict):
    """How relevant the result claims to be; `semantic_support` is True only if the dense similarity
    supports the claim.
    """

    level: RelevanceLevel
    semantic_support: bool
    reason: str


class LookupResult(TypedDict):
    """The output of the graph and the artifact of the tool; only plain JSON types.

    `filters` are the caller's, as applied: lists of texts, and ranges of days.
    """

    invocation_id: str
    query: str
    status: Status
    retrieval_layer: RetrievalLayer
    primary: PrimaryMatch | None
    matches: list[Match]
    relevance: Relevance
    hints: Hints
    filter: FilterChoice
    filters: dict[str, Any] | None
    l1: L1Report
    recorded: Recorded


class Invocation(TypedDict):
    """A recorded lookup: one row of `tool_invocation`.

    `duration_ms` is in milliseconds, `created_at` in ISO 8601, UTC.
    """

    id: str
    tool_name: str
    query: str
    status: RecordedStatus
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


class InvocationRecorder(Protocol):
    """An object that stores invocations; storing the same id again changes nothing."""

    def record(self, invocation: Invocation) -> Literal["stored", "spooled"] | None:
        """Store one invocation; return "spooled" if it is safe on disk but cannot be queried yet.
        None counts as "stored".

        Raises:
            RecordError: the invocation could not be stored.
        """
