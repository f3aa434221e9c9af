"""A collection created elsewhere, such as by `langchain_qdrant`; it is read but never written."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from langchain_lookup_knowledge.errors import IndexMissingError, StoreError
from langchain_lookup_knowledge.l1.fusion import PointId
from langchain_lookup_knowledge.l1.stores.qdrant.connection import QdrantConnection
from langchain_lookup_knowledge.l1.stores.qdrant.layouts import PayloadKeys, guess_root
from langchain_lookup_knowledge.l1.stores.qdrant.points import hits_of, query_requests
from langchain_lookup_knowledge.l1.stores.vector_index import (
    CATEGORY_FIELD,
    Contents,
    Fingerprint,
    PayloadFilter,
    Search,
    SearchResponse,
    group_by_filter,
)
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.text.visible.cleaning import one_line

SAMPLED = 1000
"""Number of passages whose paths are compared with the entries to find the root."""


class ExistingCollection:
    """A collection created elsewhere, which is read but never written; made by
    `QdrantIndex.from_existing`.
    """

    embedded = False
    read_only = True

    def __init__(
        self, connection: QdrantConnection, vector_name: str | None, keys: PayloadKeys
    ) -> None:
        self._connection = connection
        self._vector_name = vector_name
        self._keys = keys
        self._entries: Mapping[str, Entry] = {}
        self._caveat: str | None = None
        self._fingerprint: Fingerprint | None = None

    def __repr__(self) -> str:
        address = self._connection.address
        return f"ExistingCollection({address.url!r}, {address.collection!r})"

    def version(self) -> str | None:
        return None

    def warm(self) -> None:
        self._connection.warm()

    def verify(self) -> None:
        """Do nothing: the server checks its own files."""

    def fingerprint(self) -> Fingerprint | None:
        if self._fingerprint is None:
            self._fingerprint = self._connection.call(self._describe_collection)
        return self._fingerprint

    def _describe_collection(self) -> Fingerprint:
        info = self._connection.info()
        if info is None:
            raise IndexMissingError(f'collection "{self._connection.collection}" does not exist')
        vectors = info.config.params.vectors
        named = vectors if isinstance(vectors, Mapping) else {"": vectors}
        name = self._vector_name
        if name is None and len(named) == 1:
            (name,) = named
        found = named.get(name or "")
        if found is None:
            missing = "more than one dense vector" if name is None else f'no dense vector "{name}"'
            raise StoreError(f"the collection has {missing}: vector_name is one of {sorted(named)}")
        if found.distance.value != "Cosine":
            raise StoreError(
                f"the collection compares vectors by {found.distance.value}, not by cosine: "
                "it cannot be searched"
            )
        self._vector_name = name
        return {"dimensions": found.size}

    def learn_entries(self, entries: Mapping[str, Entry]) -> None:
        """Find the root of the paths: the prefix that most paths have before the id of an entry. A
        passage without a title gets that of its entry.
        """
        self._entries = entries
        if self._keys.root is None and entries and self.fingerprint():
            key = self._keys.path(self._keys.entry)
            found = self._connection.page([key], SAMPLED)
            whole = replace(self._keys, root="")
            paths = [path for one in found if (path := whole.entry_id(one.payload))]
            root = guess_root(paths, entries.keys())
            self._keys = replace(self._keys, root=root or "")
            if paths and root is None:
                self._caveat = (
                    f"no path of the collection, such as {one_line(paths[0])!r}, is a file of the "
                    "folder: set root to what precedes the path in the folder"
                )

    def contents(self) -> Contents | None:
        return None

    def lock(self) -> AbstractContextManager[None]:
        raise StoreError(self._refusal())

    def write(self, *_: object, **__: object) -> None:
        raise StoreError(self._refusal())

    def _refusal(self) -> str:
        name = self._connection.collection
        return f'the collection "{name}" was created elsewhere, so it is read-only'

    def search(
        self,
        dense: Sequence[float] | None,
        text: str,
        filters: Sequence[PayloadFilter],
        limit: int,
        glossary: Sequence[str] = (),
    ) -> SearchResponse:
        self.fingerprint()
        fields = {CATEGORY_FIELD: self._keys.path(self._keys.category)}
        renamed = [[(fields.get(name, name), values) for name, values in one] for one in filters]
        planned = [Search("dense", self._vector_name or "", dense, limit)] if dense else []
        shown = [self._keys.path(self._keys.entry)]
        requests = query_requests(planned, renamed, shown, self._connection.options)
        points = self._connection.query(requests) if requests else []
        lists = hits_of(points, lambda point: self._keys.entry_id(point.payload))
        if any(lists) and not any(hit.entry_id for found in lists for hit in found):
            raise StoreError(
                f'no passage of the collection has "{self._keys.path(self._keys.entry)}": '
                "set entry_key"
            )
        ranked = group_by_filter(len(filters), planned, lists)
        return SearchResponse(ranked, self._stored, self._caveat)

    def _stored(self, point_ids: Collection[PointId]) -> dict[PointId, Mapping[str, Any]]:
        stored = self._connection.stored(point_ids)
        read: dict[PointId, Mapping[str, Any]] = {
            point_id: shown
            for point_id, payload in stored.items()
            if (shown := self._keys.read(payload, self._entries))
        }
        if stored and not read:
            raise StoreError(
                f'no passage of the collection has a text under "{self._keys.content}": '
                "set content_key"
            )
        return read

    def close(self) -> None:
        self._connection.close()
