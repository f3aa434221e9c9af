"""The state of an index compared with its folder: current, behind, being built, missing or
damaged.
"""

from dataclasses import dataclass, field

from langchain_lookup_knowledge.errors import EmbeddingError, IndexDamagedError, StoreError
from langchain_lookup_knowledge.health import IndexHealth
from langchain_lookup_knowledge.l1.models.languages import ENGLISH
from langchain_lookup_knowledge.l1.stores.vector_index import INDEX_COMMAND, VectorIndex

BY_MEANING = "passages are found by meaning alone"
DIFFERING = f"passages of the index that are not in the files were left out: {INDEX_COMMAND}"
NO_INDEX_YET = f"there is no index yet: {INDEX_COMMAND}"


@dataclass(slots=True)
class IndexState:
    """The state of the index compared with the folder, after the last sync; syncs and searches
    share it.

    `progress`: share of the passages written, 0 to 1, while a sync is running. `failure`: why the
    last sync failed; `damaged`: whether that was because the files of the index are damaged.
    `older`: the brand (fingerprint hash) of an index that an older version of this package wrote,
    if the last search found one; its words cannot be searched. `differing`: ids of entries with a
    stored passage that is not in their text; the next sync writes these entries again.
    `language`: the language of most entries, which that of a short query is taken to be.
    `dimensions`: the vector size that the last search used; 0 before.
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
