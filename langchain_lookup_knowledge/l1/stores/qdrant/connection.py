"""The connection to a Qdrant server: one client, repeated requests, and the limits of its
collection.
"""

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import SecretStr

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import (
    IndexMissingError,
    LookupKnowledgeError,
    StoreError,
    StoreLimitError,
    StoreRateLimitError,
    StoreUnreachableError,
)
from langchain_lookup_knowledge.l1.deadlines import remaining
from langchain_lookup_knowledge.l1.fusion import PointId
from langchain_lookup_knowledge.l1.stores.qdrant.address import LOCAL, Address, checked_key
from langchain_lookup_knowledge.l1.stores.qdrant.failures import as_store_error, asked_pause
from langchain_lookup_knowledge.l1.stores.qdrant.limits import Limits
from langchain_lookup_knowledge.l1.stores.qdrant.points import FINGERPRINT_KEY, RequestOptions

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

logger = logging.getLogger("langchain_lookup_knowledge")

RETRY_PAUSE = 0.1
"""Seconds before a request is retried after a temporary failure, if the time allows; a server may
ask for a longer pause.
"""
MAX_RETRY_PAUSE = 10.0
MAX_RATE_PAUSE = 120.0
"""Maximum seconds that a sync waits because the server limits the rate of requests."""
MAX_RATE_PAUSES = 10
"""Maximum number of such waits for one request."""

T = TypeVar("T")


class QdrantConnection:
    """The connection to one collection on a server; the arguments are those of `QdrantIndex`."""

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
        client: "QdrantClient | None" = None,
        **options: Any,
    ) -> None:
        if not url and client is None:  # the client would take it for localhost
            raise ValueError("the URL of the Qdrant server is empty: give one, or client=")
        self.address = Address(url, collection, prefer_grpc, grpc_port, verify)
        self.collection = collection
        self.options = RequestOptions(**options)
        self.limits = Limits()
        self._api_key = checked_key(api_key)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._lent = client
        self._client: QdrantClient | None = None
        self._ports_differ = prefer_grpc and client is None  # until the contrary is seen
        forks.register(self)

    @property
    def client(self) -> "QdrantClient":
        """The client, connected at first use; a forked child opens its own connections."""
        with self._lock:
            if self._client is None:
                self._client = self._attempt(self._connect)
            return self._client

    @property
    def is_local(self) -> bool:
        """Whether the client is an in-process store, which has no payload indexes."""
        made_with = self.client.init_options
        return bool(made_with.get("location") == LOCAL or made_with.get("path"))

    def after_fork(self) -> None:
        """Connect again at the next request; the in-process store for tests has no connection to
        renew.
        """
        self._lock = threading.Lock()
        if self.address.url != LOCAL:
            forks.keep_inherited(self._client)
            self._client = None

    def _connect(self) -> "QdrantClient":
        from qdrant_client import QdrantClient  # noqa: PLC0415  (1.9 s)
        from qdrant_client.qdrant_remote import QdrantRemote  # noqa: PLC0415

        from langchain_lookup_knowledge.l1.stores.qdrant import bounded_http  # noqa: PLC0415

        if self._lent is not None:
            client = self._lent
        elif self.address.url == LOCAL:
            client = QdrantClient(location=LOCAL)
        else:
            most = bounded_http.MAX_ANSWER_BYTES
            client = QdrantClient(
                **self.address.arguments(),
                headers=self._key(),
                timeout=self._timeout,
                check_compatibility=False,
                grpc_options={
                    "grpc.max_receive_message_length": most,
                    **self.address.certificates(),
                },
            )
        if isinstance(client._client, QdrantRemote):
            bounded_http.bound(client.http.client._client)
        return client

    def _key(self) -> dict[str, str]:
        """Return the header with the API key. The client is not given the key itself, because it
        would warn about a key without TLS, which fails where warnings are errors.
        """
        if self._api_key is None:
            return {}
        if self.address.is_readable_on_the_way:
            logger.warning(
                "the API key is sent to the Qdrant server without encryption: use https://"
            )
        return {"api-key": self._api_key.get_secret_value()}

    def seconds(self) -> int:
        """Return the time limit of a request in whole seconds, the unit of the client and the
        server.
        """
        return self.limits.seconds(max(1, math.ceil(min(self._timeout, remaining()))))

    def call(self, call: Callable[[], T]) -> T:
        """Run a request, and repeat it after a temporary failure: once, if the time allows.

        If the server limits the rate of requests, a lookup does not wait; a sync, which has no time
        limit, waits as long as the server asks.
        """
        for repeated in range(MAX_RATE_PAUSES):
            try:
                return self.call_once(call)
            except StoreUnreachableError as failure:
                pause = _pause(failure, repeated)
                if pause is None:
                    raise
            time.sleep(pause)
        return self.call_once(call)

    def call_once(self, call: Callable[[], T]) -> T:
        """Run one or more requests, and turn any failure into a StoreError that names the fix and
        contains no secret.
        """
        if self._ports_differ:
            self._check_ports()
        return self._attempt(call)

    def _attempt(self, call: Callable[[], T]) -> T:
        from langchain_lookup_knowledge.l1.stores.qdrant import bounded_http  # noqa: PLC0415

        try:
            with bounded_http.bounded():
                return call()
        except LookupKnowledgeError:
            raise
        except Exception as error:  # noqa: BLE001  (each transport raises its own)
            # log only the frames: the error text may quote the request
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.debug("a Qdrant request failed: %s\n%s", type(error).__name__, frames)
            failure = as_store_error(
                error,
                self.collection,
                self._server_version,
                has_key=self._api_key is not None or self._lent is not None,
                grpc_target=None if self._lent is not None else self.address.grpc_target(),
            )
            raise failure from (error if isinstance(failure, StoreUnreachableError) else None)

    def _server_version(self) -> str:
        from langchain_lookup_knowledge.l1.stores.qdrant import bounded_http  # noqa: PLC0415

        # the version is named only if it is known
        with suppress(Exception), bounded_http.bounded():
            return f" {self.client.info().version}"
        return ""

    def _check_ports(self) -> None:
        """Check that the REST port and the gRPC port show the same collection.

        Raises:
            StoreError: they belong to two servers.
        """
        name, client = self.collection, self.client
        over_rest = client.http.collections_api.get_collection
        before = self._seen(lambda: over_rest(name).result)
        over_grpc = self._seen(lambda: client.get_collection(name))
        after = self._seen(lambda: over_rest(name).result)
        same = over_grpc in (before, after)
        if before != after and before and over_grpc:  # a write is under way
            same = before[0] == over_grpc[0]
        if not same:
            arguments = self.address.arguments()
            raise StoreError(
                f"the REST port of the URL and the gRPC port {arguments['grpc_port']} show "
                f'different collections "{name}", so they belong to two servers: '
                "give the gRPC port of this server, grpc_port= or --grpc-port"
            )
        self._ports_differ = over_grpc is None  # look again when there is a collection

    def _seen(self, call: Callable[[], Any]) -> tuple[Any, int] | None:
        try:
            info = self._attempt(call)
        except IndexMissingError:
            return None
        return (info.config.metadata or {}).get(FINGERPRINT_KEY), info.points_count or 0

    def warm(self) -> None:
        """Create the client for the first search, without sending a request to the server."""
        _ = self.client

    def info(self, collection: str | None = None) -> Any | None:
        """Return the description of a collection, and note its limits; None if there is none."""
        name = collection or self.collection
        if self.is_local and not self.client.collection_exists(name):
            return None
        try:
            found = self._attempt(lambda: self.client.get_collection(name))
        except IndexMissingError:
            return None
        self.limits = Limits.of(found)
        return found

    def _within_limits(self, call: Callable[[], T]) -> T:
        """Run a request; if it exceeds a limit that is not known yet, learn it and run it again."""
        try:
            return self.call(call)
        except StoreLimitError:
            known = self.limits
            self.call(self.info)
            if self.limits == known:
                raise
        return self.call(call)

    def query(self, requests: Sequence[Any]) -> list[Any]:
        """Return the points that a batch of queries finds, a list for each."""
        return self._within_limits(lambda: self._query(requests))

    def _query(self, requests: Sequence[Any]) -> list[list[Any]]:
        pages = [self.limits.pages(request) for request in requests]
        sent = [page for parts in pages for page in parts]
        answers = iter(
            [
                answer
                for batch in self.limits.batches(sent)
                for answer in self.client.query_batch_points(
                    self.collection, batch, timeout=self.seconds(), **self.options.batch()
                )
            ]
        )
        return [[point for _ in parts for point in next(answers).points] for parts in pages]

    def stored(
        self, point_ids: Collection[PointId], fields: Sequence[str] | None = None
    ) -> dict[PointId, Mapping[str, Any]]:
        """Return the payloads of points, with some fields or, by default, with all of them."""
        records = self._within_limits(
            lambda: self.client.retrieve(
                self.collection,
                list(point_ids),
                with_payload=True if fields is None else list(fields),
                timeout=self.seconds(),
                **self.options.read(),
            )
        )
        return {record.id: record.payload or {} for record in records}

    def scroll(self, fields: Sequence[str]) -> Iterator[Any]:
        """Return all points of the collection with some fields of their payloads."""
        offset: Any = None
        while True:
            found, offset = self._within_limits(lambda: self._page(fields, offset))  # noqa: B023
            yield from found
            if offset is None:
                return

    def page(self, fields: Sequence[str], size: int) -> list[Any]:
        """Return up to `size` points of the collection, as `scroll` does."""
        return self._within_limits(lambda: self._page(fields, None, size))[0]

    def _page(
        self, fields: Sequence[str], offset: Any, size: int | None = None
    ) -> tuple[list[Any], Any]:
        most = self.limits.scroll
        return self.client.scroll(
            self.collection,
            limit=min(size or most, most),
            offset=offset,
            with_payload=list(fields),
            **self.options.read(),
        )

    def upsert(self, collection: str, points: Sequence[Any]) -> None:
        """Write points; a request that is too large for the server is sent in two halves."""
        for part in self.limits.upserts(points):
            try:
                self.call(lambda: self._write(self.client.upsert, collection, part))  # noqa: B023
            except StoreLimitError:
                if len(part) == 1:
                    raise
                self.upsert(collection, part[: len(part) // 2])
                self.upsert(collection, part[len(part) // 2 :])

    def delete(self, collection: str, conditions: Any) -> None:
        """Remove the points that a filter matches."""
        from qdrant_client import models  # noqa: PLC0415

        self._within_limits(
            lambda: self._write(
                self.client.delete,
                collection,
                models.FilterSelector(filter=self.limits.fit(conditions)),
            )
        )

    def _write(self, send: Callable[..., Any], *arguments: Any) -> None:
        send(*arguments, wait=True, **self.options.write())

    def close(self) -> None:
        """Close the client, unless it is the caller's own."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and client is not self._lent:
            client.close()


def _pause(failure: StoreUnreachableError, repeated: int) -> float | None:
    """Return the seconds to wait before a request is sent again; None to give up."""
    if isinstance(failure, StoreRateLimitError):
        pause = max(1.0, failure.retry_after)
        if remaining() < math.inf or pause > MAX_RATE_PAUSE:
            return None
        logger.warning(
            "the Qdrant server limits the rate of requests: waiting %.0f s, as it asks", pause
        )
        return pause
    pause = max(RETRY_PAUSE, asked_pause(failure.__cause__))
    return pause if not repeated and pause < min(remaining(), MAX_RETRY_PAUSE) else None
