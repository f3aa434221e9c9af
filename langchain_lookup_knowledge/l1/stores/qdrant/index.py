"""Collections of this package on a Qdrant server, cluster or cloud."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import SecretStr

from langchain_lookup_knowledge.errors import IndexMissingError, StoreError
from langchain_lookup_knowledge.l1.deadlines import ThreadPool, remaining
from langchain_lookup_knowledge.l1.fusion import Hit, PointId
from langchain_lookup_knowledge.l1.stores.payloads import KeptPayloads, version_of
from langchain_lookup_knowledge.l1.stores.qdrant.builds import (
    Builds,
    fingerprint_of,
    unindexed,
)
from langchain_lookup_knowledge.l1.stores.qdrant.connection import QdrantConnection
from langchain_lookup_knowledge.l1.stores.qdrant.existing_collection import ExistingCollection
from langchain_lookup_knowledge.l1.stores.qdrant.layouts import PayloadKeys
from langchain_lookup_knowledge.l1.stores.qdrant.limits import parts_of
from langchain_lookup_knowledge.l1.stores.qdrant.points import (
    OWNER_KEY,
    any_of,
    hits_of,
    query_requests,
    server_filter,
    server_point,
)
from langchain_lookup_knowledge.l1.stores.qdrant.progress import progress_of
from langchain_lookup_knowledge.l1.stores.vector_index import (
    DIGEST_FIELD,
    EMBEDDED_FIELD,
    ENTRY_FIELD,
    FOUND_FIELDS,
    REBUILD_COMMAND,
    SHOWN_FIELDS,
    WORDS_ONLY,
    Contents,
    Fingerprint,
    PayloadFilter,
    Point,
    Search,
    SearchResponse,
    entry_id_of,
    group_by_filter,
    searches,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

LOOK_SECONDS = 10.0
"""How often a search also asks whether the collection is being built, or has no vectors."""
LOOK_WAIT = 0.5
"""Maximum seconds that a search waits for this answer, but at most half of its remaining time."""

MAX_PAYLOADS = 20_000
"""Maximum payloads that are kept in memory, because reading one again costs a round trip;
`PassageVerifier` keeps as many verdicts.
"""


class QdrantIndex:
    """A collection on a Qdrant server, cluster or cloud.

    Args:
        url: `http://host:6333` or `https://...`; `:memory:` is the client's own in-process store,
            for tests. If the URL names no port, it is 6333; if it has a path, it is the port of the
            scheme.
        collection: name of the collection; `kb.sync()` creates it, a lookup never does. It is an
            alias of the collection that `kb.sync()` builds, so that a rebuild leaves no gap.
        api_key: a string or a `SecretStr` of printable ASCII, sent with each request without white
            space around it, never logged or stored.
        timeout: seconds a request may take.
        prefer_grpc: use gRPC.
        grpc_port: the gRPC port of the same server; 6334 if the port of the URL is 6333.
        verify: True checks the certificate of the server; a file names the CA to trust; False,
            for REST alone, checks nothing.
        collection_options: passed to `create_collection`: shards, replicas, quantization, ...
        read_consistency: how many replicas each read asks: a number, "majority", "quorum", "all".
        write_ordering: the order of writes among replicas: "weak", "medium", "strong".
        search_params: how vectors are searched, as for `models.SearchParams`: `hnsw_ef`, `exact`,
            `quantization`.
        shard_key: the shard, or shards, to read and write, for custom sharding.
        client: an existing client to use instead of a new one; `close()` does not close it.

    Raises:
        ValueError: an argument cannot be used.
    """

    embedded = False
    read_only = False

    def __init__(
        self,
        url: str,
        collection: str,
        *,
        api_key: str | SecretStr | None = None,
        timeout: int = 5,
        prefer_grpc: bool = False,
        grpc_port: int | None = None,
        verify: bool | str = True,
        collection_options: Mapping[str, Any] | None = None,
        read_consistency: int | str | None = None,
        write_ordering: str | None = None,
        search_params: Mapping[str, Any] | None = None,
        shard_key: str | int | Sequence[str | int] | None = None,
        client: "QdrantClient | None" = None,
    ) -> None:
        self.connection = QdrantConnection(
            url,
            collection,
            api_key=api_key,
            timeout=timeout,
            prefer_grpc=prefer_grpc,
            grpc_port=grpc_port,
            verify=verify,
            client=client,
            read_consistency=read_consistency,
            write_ordering=write_ordering,
            search_params=search_params,
            shard_key=shard_key,
        )
        self.url = url
        self.collection = collection
        self.builds = Builds(self.connection, collection_options or {})
        self._lookers = ThreadPool()  # the client has no time limit for a single look
        self._next_look = 0.0
        self._caveat: str | None = None
        self._next_check = 0.0
        self.payloads = KeptPayloads(MAX_PAYLOADS)

    def __repr__(self) -> str:
        return f"QdrantIndex({self.url!r}, {self.collection!r})"

    def settings(self) -> dict[str, Any]:
        """Return the arguments that name the server and the collection, without any secret."""
        return self.connection.address.settings()

    @property
    def client(self) -> "QdrantClient":
        """The client, connected at first use; a forked child opens its own connections."""
        return self.connection.client

    def version(self) -> str | None:
        return None

    def warm(self) -> None:
        self.connection.warm()

    def verify(self) -> None:
        """Do nothing: the server checks its own files."""

    def generation(self) -> str | None:
        """Return the collection that the alias of this index leads to; None if there is no alias,
        or if the server does not answer.
        """
        with suppress(StoreError):
            return self.connection.call(self.builds.live)
        return None

    def fingerprint(self) -> Fingerprint | None:
        info = self.connection.call(self.connection.info)
        return None if info is None else fingerprint_of(info, self.collection)

    def contents(self) -> Contents | None:
        info = self.connection.call(self.connection.info)
        if info is None:
            return None
        fingerprint = fingerprint_of(info, self.collection)
        found: Counter[tuple[str, str, int]] = Counter()
        unembedded: set[str] = set()
        fields = [ENTRY_FIELD, DIGEST_FIELD, EMBEDDED_FIELD, "metadata.passages"]
        for record in self.connection.scroll(fields):
            if entry_id := entry_id_of(record):  # a collection may hold foreign points
                payload = cast(dict[str, Any], record.payload)["metadata"]
                found[entry_id, payload.get("digest", ""), payload.get("passages", 0)] += 1
                if payload.get("embedded") is False:
                    unembedded.add(entry_id)
        digests = {entry_id: "incomplete" for entry_id, _, _ in found}
        states = Counter(entry_id for entry_id, _, _ in found)
        for (entry_id, digest, passages), count in found.items():
            if count == passages and states[entry_id] == 1:
                digests[entry_id] = digest
        owner = (info.config.metadata or {}).get(OWNER_KEY)
        return Contents(
            fingerprint,
            digests,
            tuple(sorted(unembedded)),
            None if owner is None else str(owner),
            self._faults(info),
        )

    def _faults(self, info: Any) -> tuple[str, ...]:
        """Return what the next sync has to mend."""
        return (
            *(f'no payload index on "{field}"' for field in unindexed(self.connection, info)),
            *(f'collection "{name}" of an interrupted build' for name in self.builds.leftovers()),
            *(["the last build was interrupted"] if progress_of(info) else []),
        )

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    def write(
        self,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
        *,
        rebuild: bool = False,
    ) -> None:
        self.connection.call_once(lambda: self._write(contents, removed, points, rebuild))
        self._next_look, self._caveat = time.monotonic() + LOOK_SECONDS, None

    def _write(
        self,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
        rebuild: bool,
    ) -> None:
        batches = ([server_point(point) for point in batch] for batch in points)
        info = self.connection.info()
        if info is not None:
            fingerprint_of(info, self.collection)  # refuse a collection created elsewhere
        if rebuild or info is None:
            target = self.builds.begin(contents)
            try:
                filled = self.builds.fill(target, batches)
            except BaseException:
                self.builds.abandon(target)
                raise
            self.builds.finish(
                target, filled.written
            )  # if it fails, the switch may be done or still come
            return
        self.builds.mend(info)
        if contents.owner is not None:
            self.client.update_collection(self.collection, metadata={OWNER_KEY: contents.owner})
        filled = self.builds.fill(self.collection, batches)
        self._remove(contents, sorted(removed))  # last: an entry is never missing while renewed
        if filled.noted or progress_of(info):
            self.builds.finish(self.collection, filled.written)

    def _remove(self, contents: Contents, entry_ids: Sequence[str]) -> None:
        """Remove the passages of entries, except those that were just written."""
        for some in parts_of(entry_ids, self.connection.limits.deleted):
            old = server_filter([(ENTRY_FIELD, some)])
            new = [contents.digests[name] for name in some if name in contents.digests]
            if new:
                old.must_not = [any_of(DIGEST_FIELD, new)]
            self.connection.delete(self.collection, old)

    def search(
        self,
        dense: Sequence[float] | None,
        text: str,
        filters: Sequence[PayloadFilter],
        limit: int,
        glossary: Sequence[str] = (),
    ) -> SearchResponse:
        planned = searches(dense, text, limit, glossary)
        options = self.connection.options
        answers = self._found(query_requests(planned, filters, FOUND_FIELDS, options))
        lists = hits_of(answers, entry_id_of)
        ranked = group_by_filter(len(filters), planned, lists)
        hits = [hit for found in lists for hit in found]
        if dense and hits and not any(one.lists["dense"] for one in ranked):
            self._check_vectors(dense, hits[0])
        return SearchResponse(ranked, partial(self._stored, answers), self._look())

    def _stored(
        self, answers: Sequence[Sequence[Any]], point_ids: Collection[PointId]
    ) -> dict[PointId, Mapping[str, Any]]:
        """Return the payloads of points that a search found; only payloads that were not read
        before, or have changed since, need another request.
        """
        found = {point.id: point.payload for points in answers for point in points}

        def is_current(point_id: PointId, payload: Mapping[str, Any]) -> bool:
            version = version_of(found.get(point_id))
            return version[0] is not None and version == version_of(payload)

        read = partial(self.connection.stored, fields=SHOWN_FIELDS)
        return self.payloads.of(point_ids, read, is_current)

    def _found(self, requests: Sequence[Any]) -> list[Any]:
        try:
            return self.connection.query(requests) if requests else []
        except IndexMissingError:
            progress = None
            with suppress(StoreError):
                progress = self.connection.call(self.builds.progress)
            if progress is None:
                raise
            missing = f'collection "{self.collection}" is being built, {progress}'
            raise IndexMissingError(missing) from None

    def _look(self) -> str | None:
        """Return a caveat if the collection is being built in place. The server is asked every
        `LOOK_SECONDS`, and by each search as long as there is a caveat. If it does not answer, the
        last caveat is returned.
        """
        if self._caveat or time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            with suppress(StoreError):
                info = self._lookers.run(
                    lambda: self.connection.call_once(self.connection.info),
                    min(LOOK_WAIT, remaining() / 2),
                )
                progress = progress_of(info)
                self._caveat = progress and f"the index is being built, {progress}"
        return self._caveat

    def _check_vectors(self, dense: Sequence[float], hit: Hit) -> None:
        """Check that the collection has dense vectors, if a search found `hit` by words alone: it
        may be stored without a vector on purpose. The result holds for `LOOK_SECONDS`.

        Raises:
            StoreError: it has none.
        """
        if time.monotonic() < self._next_check:
            return
        nearest = [Search("dense", "dense", dense, 1)]
        requests = query_requests(nearest, [()], FOUND_FIELDS, self.connection.options)
        if not any(self.connection.query(requests)):
            stored = self.connection.stored([hit.point_id]).values()
            if not any(payload["metadata"].get("embedded") == WORDS_ONLY for payload in stored):
                raise StoreError(
                    f'collection "{self.collection}" holds passages without vectors, so nothing '
                    f"is found by meaning: {REBUILD_COMMAND}"
                )
        self._next_check = time.monotonic() + LOOK_SECONDS

    def close(self) -> None:
        self._lookers.shutdown()
        self.connection.close()

    @classmethod
    def from_existing(
        cls,
        url: str,
        collection: str,
        *,
        layout: str = "langchain",
        vector_name: str | None = None,
        content_key: str | None = None,
        metadata_key: str | None = None,
        entry_key: str | None = None,
        title_key: str | None = None,
        category_key: str | None = None,
        root: str | None = None,
        **connection: Any,
    ) -> ExistingCollection:
        """Return an index that reads a collection created elsewhere, such as by `langchain_qdrant`,
        but never writes it.

        Its passages are found by their dense similarity. They must be embedded with the model of
        the knowledge base; only the dimensions can be checked.

        Args:
            url: as for `QdrantIndex`.
            connection: arguments of `QdrantIndex` about the server and about reading, such as
                `api_key`, `timeout` and `search_params`.
            collection: the name of the collection.
            layout: the program that wrote the collection, which determines the keys below:
                "langchain" (the package `langchain-qdrant`), "llama_index", or "mcp_server_qdrant".
            vector_name: the name of the dense vector, which must use cosine distance; "" is the
                unnamed vector. By default, the only dense vector.
            content_key: the payload key of the text.
            metadata_key: the payload key of the mapping that holds the keys below; "" if they are
                on the top level.
            entry_key: the key of the file path, which links passages to the entries of L0.
            title_key: the key of the title; a passage without a title gets that of its entry.
            category_key: the key of the category or list of categories, spelled as in the
                frontmatter.
            root: the prefix to remove from the paths, to make them relative to the knowledge
                folder. By default, it is found by comparing the paths with the entries.

        Raises:
            ValueError: an argument cannot be used.
        """
        keys = PayloadKeys.of(
            layout,
            content=content_key,
            metadata=metadata_key,
            entry=entry_key,
            title=title_key,
            category=category_key,
            root=root,
        )
        return ExistingCollection(
            QdrantConnection(url, collection, **connection), vector_name, keys
        )
