"""The state of an index compared with its folder: current, behind, being built, missing or
damaged; and the digests by which entries are compared.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from langchain_lookup_knowledge.errors import EmbeddingError, IndexDamagedError, StoreError
from langchain_lookup_knowledge.health import IndexHealth
from langchain_lookup_knowledge.l1.models.languages import ENGLISH
from langchain_lookup_knowledge.l1.stores.vector_index import INDEX_COMMAND, VectorIndex
from langchain_lookup_knowledge.reading.entry import Entry

BY_MEANING = "passages are found by meaning alone"
DIFFERING = f"passages of the index that are not in the files were left out: {INDEX_COMMAND}"
OTHER_STATE = (
    "passages are shown as indexed, and the files here have other text: if it is newer, "
    + INDEX_COMMAND
)
NO_INDEX_YET = f"there is no index yet: {INDEX_COMMAND}"
UNINDEXED = ("links", "backlinks", "written")
"""Fields of an entry that its passages do not use."""


@dataclass(slots=True)
class IndexState:
    """The state of the index compared with the folder, after the last sync; syncs and searches
    share it.

    `progress`: share of the passages written, 0 to 1, while a sync is running. `failure`: why the
    last sync failed; `damaged`: whether that was because the files of the index are damaged.
    `older`: the brand (fingerprint hash) of an index that an older version of this package wrote,
    if the last search found one; its words cannot be searched. `differing`: ids of entries with a
    stored passage that is not in their text; the next sync writes these entries again. `language`:
    the language of most entries; a short query is assumed to be in it. `dimensions`: the vector
    size that the last search used; 0 before.
    """

    progress: float | None = None
    failure: str | None = None
    damaged: bool = False
    older: str | None = None
    differing: set[str] = field(default_factory=set)
    language: str = ENGLISH
    dimensions: int = 0

    def failed(self, error: EmbeddingError | StoreError) -> None:
        """Record that a sync failed."""
        self.failure, self.damaged = str(error), isinstance(error, IndexDamagedError)

    def succeeded(self) -> None:
        """Record that the index matches the folder."""
        self.failure, self.damaged, self.older = None, False, None
        self.differing = set()

    @property
    def building(self) -> str | None:
        """The progress of a running sync as text, or None if no sync is running."""
        if self.progress is None:
            return None
        return f"the index is being built, {self.progress:.0%}".replace("%", " %")

    @property
    def behind(self) -> str | None:
        """A caveat for answers from an index that may be behind the folder, or None."""
        behind = self.building or self.failure
        return f"the index is behind the folder: {behind}" if behind else None

    @property
    def outdated(self) -> str:
        """A caveat for answers from an index that an older version of this package built."""
        built = "the index was built by an older version"
        if self.progress is not None:
            done = f"{self.progress:.0%}".replace("%", " %")
            return f"{built} and is being rebuilt: {BY_MEANING} until then, {done} done"
        return f"{built}: {BY_MEANING}; {self.failure or INDEX_COMMAND}"

    def health(self, index: VectorIndex | None) -> IndexHealth:
        """Return the state of an index, without asking a server, and a message if there are
        details.
        """
        if index is None:
            return {"index": "off", "message": None}
        if self.building:
            return {"index": "building", "message": self.building}
        if not index.embedded:
            return {"index": "remote", "message": self.outdated if self.older else None}
        if self.damaged:
            return {"index": "damaged", "message": self.failure}
        if index.version() is None:
            return {"index": "missing", "message": self.failure or NO_INDEX_YET}
        if self.older:
            return {"index": "behind", "message": self.outdated}
        return {"index": "behind" if self.failure else "current", "message": self.failure}


def digest(entry: Entry) -> str:
    """Return a hash of all data in an entry that its passages use, including embedded parts."""
    names = (one.name for one in fields(entry) if one.name not in UNINDEXED)
    held = {name: getattr(entry, name) for name in names}
    written = json.dumps(held, default=asdict, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Digests:
    """The digests of entries; each is kept until its entry is replaced."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Entry, str]] = {}

    def of(self, entries: Mapping[str, Entry]) -> dict[str, str]:
        """Return the digest of each entry."""
        known = self._known  # another thread may replace it meanwhile
        found = {
            entry_id: held
            if (held := known.get(entry_id)) and held[0] is entry
            else (entry, digest(entry))
            for entry_id, entry in entries.items()
        }
        self._known = found
        return {entry_id: held[1] for entry_id, held in found.items()}
