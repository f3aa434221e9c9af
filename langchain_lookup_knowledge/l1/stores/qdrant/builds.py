"""Making the collection of an index: it is built beside the live one, and an alias is switched when
it is complete, so that lookups never see a part of it.

The collection NAME is then an alias of `NAME--GENERATION`. `NAME--building` is an alias of the
collection that is being built. A collection that exists under the plain name, or a key that may not
manage aliases, keeps the plain way: the collection NAME itself is deleted and filled again.
"""

import hashlib
import logging
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import StoreError, StoreForbiddenError
from langchain_lookup_knowledge.l1.stores.qdrant.address import MAX_NAME
from langchain_lookup_knowledge.l1.stores.qdrant.connection import QdrantConnection
from langchain_lookup_knowledge.l1.stores.qdrant.points import (
    FINGERPRINT_KEY,
    OWNER_KEY,
    PROGRESS_KEY,
)
from langchain_lookup_knowledge.l1.stores.vector_index import (
    INDEXED_FIELDS,
    SPARSE_VECTORS,
    Contents,
    Fingerprint,
)

logger = logging.getLogger("langchain_lookup_knowledge")

NOTE_SECONDS = 10.0
"""How often a build notes in its collection how far it is."""
ABANDONED_SECONDS = 600.0
"""Seconds without such a note after which a build of another process counts as interrupted."""
_GENERATION = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_running: set[tuple[int, str]] = set()
"""The builds that are under way in this process, with its id: a forked child has none of them."""


class Builds:
    """The collections behind one index.

    Args:
        connection: the connection to the collection NAME.
        collection_options: as for `QdrantIndex`.
    """

    def __init__(self, connection: QdrantConnection, collection_options: Mapping[str, Any]) -> None:
        self._connection = connection
        self._name = connection.collection
        self._building = f"{self._name}--building"
        self._options = dict(collection_options)

    def live(self) -> str | None:
        """Return the collection that NAME is an alias of, or None."""
        return self._aliases().get(self._name)

    def progress(self) -> str | None:
        """Return how far the build beside the live collection is; None if there is none."""
        if self._building not in self._aliases():
            return None
        return progress_of(self._connection.info(self._building))

    def leftovers(self) -> list[str]:
        """Return the collections that interrupted builds of this index left behind."""
        with suppress(StoreError):  # such as a key for one collection
            aliases = self._connection.call(self._aliases)
            used = {target for alias, target in aliases.items() if alias != self._building}
            return [
                name for name in self._generations() if name not in used and not self._runs(name)
            ]
        return []

    def begin(self, contents: Contents) -> str:
        """Create the collection to fill, beside the live one if that is possible, and return its
        name.

        Raises:
            StoreError: another build of the collection is under way.
        """
        exists = self._connection.info() is not None
        target = self._new_name()
        reason = "its name is too long for that" if len(target) > MAX_NAME else None
        try:
            live = self._connection.call(self.live)
        except StoreForbiddenError:
            live, reason = None, "the API key may not manage aliases"
        if exists and live is None:
            reason = reason or "it is no alias"
        if reason is None:
            self._remove_leftovers()
            self._check_is_alone()
            _running.add((forks.process_id(), target))
            try:
                self._create(target, contents)
                self._alias(self._building, target)
                return target
            except BaseException as error:
                self.abandon(target)
                if live is not None or not isinstance(error, StoreForbiddenError):
                    raise
                reason = "the API key may not manage collections and aliases"
        logger.warning(
            'collection "%s" is built in place, because %s: until it is done, lookups find only '
            "a part of it",
            self._name,
            reason,
        )
        if exists:
            self._connection.call_once(lambda: self._delete(self._name))
        self._create(self._name, contents)
        return self._name

    def abandon(self, target: str) -> None:
        """Delete the collection of a build that failed, unless it is the live one."""
        _running.discard((forks.process_id(), target))
        with suppress(StoreError):  # the next sync deletes it
            if target not in (self._name, self._connection.call(self.live)):
                self._connection.call_once(lambda: self._delete(target))

    def _check_is_alone(self) -> None:
        if running := self._connection.call(self.progress):
            raise StoreError(
                f'collection "{self._name}" is being built by another sync ({running}): wait for it'
            )

    def fill(self, target: str, batches: Iterable[list[Any]]) -> bool:
        """Write points into a collection; a write that takes long is noted in it.

        Returns:
            Whether it was noted.
        """
        was_noted = False
        written, noted = 0, time.monotonic()

        def note_pause() -> None:
            nonlocal was_noted
            was_noted = True
            with suppress(StoreError):  # the request that follows the pause tells
                self._connection.call_once(lambda: self._send_note(target, _progress(written)))

        for batch in batches:
            self._connection.upsert(target, batch, note_pause)
            written += len(batch)
            if time.monotonic() - noted > NOTE_SECONDS:
                noted = time.monotonic()
                self._note(target, _progress(written))
                was_noted = True
        return was_noted

    def finish(self, target: str) -> None:
        """Make a complete collection the live one, and delete the one that it replaces; if that
        fails, the next sync deletes it.
        """
        try:
            self._note(target, {})
            if target == self._name:
                return
            replaced = self._switch(target)
        finally:
            _running.discard((forks.process_id(), target))
        if replaced and self._is_generation(replaced):
            try:
                self._connection.call(lambda: self._delete(replaced))
            except StoreError as error:
                logger.warning('the old collection "%s" is not deleted yet: %s', replaced, error)
        elif replaced:
            logger.warning('the old collection "%s" is kept: delete it', replaced)

    def _switch(self, target: str) -> str | None:
        """Make NAME an alias of a collection, and return the one that it replaces."""
        from qdrant_client import models  # noqa: PLC0415

        replaced = self.live()
        gone = [self._building, *([self._name] if replaced else [])]
        deleted = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
            for alias in gone
        ]
        made = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=target, alias_name=self._name)
        )
        client = self._connection.client
        try:
            self._connection.call(lambda: client.update_collection_aliases([*deleted, made]))
        except StoreError:
            if self._connection.call(self.live) != target:
                raise
        return replaced

    def index_fields(self, collection: str, fields: Iterable[str]) -> None:
        """Create the payload indexes of some fields."""
        from qdrant_client import models  # noqa: PLC0415

        for field in fields:
            self._connection.call(
                lambda: self._connection.client.create_payload_index(
                    collection,
                    field,  # noqa: B023  (called at once)
                    models.PayloadSchemaType.KEYWORD,
                )
            )

    def mend(self, info: Any) -> None:
        """Create missing payload indexes, and remove what interrupted builds left."""
        self.index_fields(self._name, unindexed(self._connection, info))
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for name in self.leftovers():
            logger.warning('collection "%s" is of an interrupted build: it is deleted', name)
            self._connection.call(lambda: self._delete(name))  # noqa: B023  (called at once)

    def _create(self, name: str, contents: Contents) -> None:
        from qdrant_client import models  # noqa: PLC0415

        client = self._connection.client
        idf = models.SparseVectorParams(modifier=models.Modifier.IDF)
        size = int(contents.fingerprint["dimensions"])
        metadata: dict[str, Any] = {
            FINGERPRINT_KEY: dict(contents.fingerprint),
            PROGRESS_KEY: _progress(0),
        }
        if contents.owner is not None:
            metadata[OWNER_KEY] = contents.owner
        dense = models.VectorParams(size=size, distance=models.Distance.COSINE)
        self._connection.call_once(
            lambda: client.create_collection(
                name,
                vectors_config={"dense": dense},
                sparse_vectors_config=dict.fromkeys(SPARSE_VECTORS, idf),
                metadata=metadata,
                **self._options,
            )
        )
        for key in self._connection.options.shard_keys():
            self._connection.call_once(lambda: client.create_shard_key(name, key))  # noqa: B023
        if not self._connection.is_local:  # local mode has no indexes, and warns
            self.index_fields(name, INDEXED_FIELDS)
        self._connection.call(lambda: self._connection.info(name))

    def _alias(self, alias: str, collection: str) -> None:
        from qdrant_client import models  # noqa: PLC0415

        made = models.CreateAlias(collection_name=collection, alias_name=alias)
        client = self._connection.client
        self._connection.call_once(
            lambda: client.update_collection_aliases(
                [models.CreateAliasOperation(create_alias=made)]
            )
        )

    def _delete(self, name: str) -> None:
        self._connection.client.delete_collection(name)

    def _note(self, target: str, progress: Mapping[str, Any]) -> None:
        self._connection.call(lambda: self._send_note(target, progress))

    def _send_note(self, target: str, progress: Mapping[str, Any]) -> None:
        metadata = {PROGRESS_KEY: dict(progress)}
        self._connection.client.update_collection(target, metadata=metadata)

    def _aliases(self) -> dict[str, str]:
        found = self._connection.client.get_aliases().aliases
        return {alias.alias_name: alias.collection_name for alias in found}

    def _new_name(self) -> str:
        return f"{self._name}--{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"

    def _is_generation(self, name: str) -> bool:
        prefix = f"{self._name}--"
        return name.startswith(prefix) and bool(_GENERATION.fullmatch(name.removeprefix(prefix)))

    def _generations(self) -> Iterator[str]:
        client = self._connection.client
        found = self._connection.call(client.get_collections).collections
        return (one.name for one in found if self._is_generation(one.name))

    def _runs(self, name: str) -> bool:
        """Return whether a process is building this collection: this one, or one that noted it."""
        if (forks.process_id(), name) in _running:
            return True
        info = self._connection.call(lambda: self._connection.info(name))
        progress = (info.config.metadata or {}).get(PROGRESS_KEY) if info else None
        if not progress or time.time() - progress.get("at", 0) > ABANDONED_SECONDS:
            return False
        if not _host() or progress.get("host") != _host():
            return True
        pid = progress.get("pid", 0)
        return pid != forks.process_id() and forks.is_running(pid)


def unindexed(connection: QdrantConnection, info: Any) -> list[str]:
    """Return the payload fields that lack their index, given the description of a collection."""
    if connection.is_local:
        return []
    return [field for field in INDEXED_FIELDS if field not in (info.payload_schema or {})]


def progress_of(info: Any) -> str | None:
    """Return how far a build is, given the description of its collection; None if it is done."""
    progress = (info.config.metadata or {}).get(PROGRESS_KEY) if info else None
    return f"{progress.get('written', 0):,} passages so far" if progress else None


def fingerprint_of(info: Any, collection: str) -> Fingerprint:
    """Return the fingerprint in the description of a collection.

    Raises:
        StoreError: this package did not make the collection.
    """
    fingerprint = (info.config.metadata or {}).get(FINGERPRINT_KEY)
    if not isinstance(fingerprint, dict):
        raise StoreError(
            f'collection "{collection}" was not made by this package: choose another name'
        )
    return fingerprint


def _progress(written: int) -> dict[str, Any]:
    return {
        "written": written,
        "at": int(time.time()),
        "host": _host(),
        "pid": forks.process_id(),
    }


def _host() -> str:
    """Return what tells apart where process ids are valid: the host, its boot and the container;
    an empty text if the system does not say.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        where = f"{socket.gethostname()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
    return hashlib.sha256(where.encode()).hexdigest()[:16]
