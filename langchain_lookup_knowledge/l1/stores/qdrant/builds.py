"""Making the collection of an index: it is built beside the live one, and an alias is switched when
it is complete, so that lookups never see a part of it.

The collection NAME is then an alias of `NAME--GENERATION`. `NAME--building` is an alias of the
collection that is being built. No alias is used if a collection exists under the plain name, or if
the key may not manage aliases: then the collection NAME itself is deleted and filled again.
"""

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from langchain_lookup_knowledge import forks
from langchain_lookup_knowledge.errors import StoreError, StoreForbiddenError
from langchain_lookup_knowledge.l1.stores.qdrant.address import MAX_NAME
from langchain_lookup_knowledge.l1.stores.qdrant.connection import QdrantConnection
from langchain_lookup_knowledge.l1.stores.qdrant.points import (
    FINGERPRINT_KEY,
    OWNER_KEY,
    PARTS_KEY,
    PROGRESS_KEY,
)
from langchain_lookup_knowledge.l1.stores.qdrant.progress import (
    Filled,
    Notes,
    host,
    in_words,
    new_note,
    note_of,
    parts_of_build,
)
from langchain_lookup_knowledge.l1.stores.vector_index import (
    INDEXED_FIELDS,
    SPARSE_VECTORS,
    Contents,
    Fingerprint,
)

logger = logging.getLogger("langchain_lookup_knowledge")

ABANDONED_SECONDS = 600.0
"""Seconds without a note of progress after which a build of another process counts as interrupted.
"""
BUILDING = "building"
"""The suffix, after the name of an index, of the alias of the collection that is being built."""
GENERATION = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
"""The suffix, after the name of an index, of the name of a collection that a sync made."""
_running: set[tuple[int, str]] = set()
"""The builds that run in this process, each with the process id, because a forked child has none.
"""


class Builds:
    """The collections behind one index.

    Args:
        connection: the connection to the collection NAME.
        collection_options: as for `QdrantIndex`.
    """

    def __init__(self, connection: QdrantConnection, collection_options: Mapping[str, Any]) -> None:
        self._connection = connection
        self._name = connection.collection
        self._building = f"{self._name}--{BUILDING}"
        self._options = dict(collection_options)

    def live(self) -> str | None:
        """Return the collection that NAME is an alias of, or None."""
        return self._aliases().get(self._name)

    def is_live(self) -> bool:
        """Return whether an alias leads to the collection NAME itself; False if the key may not see
        it.
        """
        with suppress(StoreForbiddenError):
            return self._name in self._connection.call(self._aliases).values()
        return False

    def progress(self) -> str | None:
        """Return how far the build beside the live collection is; None if there is none."""
        if self._building not in self._aliases():
            return None
        return in_words(note_of(self._connection.info(self._building)))

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
                self.create(target, contents)
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
        self.create(self._name, contents)
        return self._name

    def begin_in_parts(self, contents: Contents, parts: int) -> int | None:
        """Create the collection NAME itself, for several machines to fill, if it does not exist.
        Return the number of parts in which it is built; None if it was not created for a build in
        parts.
        """
        if self._connection.call(self._connection.info) is None:
            try:
                self._connection.call_once(lambda: self.create(self._name, contents, parts))
            except StoreError:
                if self.parts() is None:  # otherwise another machine was first
                    raise
        return self.parts()

    def parts(self) -> int | None:
        """Return the number of parts in which several machines build the collection NAME; None if a
        single machine builds it.
        """
        return parts_of_build(self._connection.call(self._connection.info))

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

    def fill(self, target: str, batches: Iterable[list[Any]]) -> Filled:
        """Write points into a collection. Every `NOTE_SECONDS`, note the progress in the
        collection, even while passages are embedded or the server asks to wait.
        """
        once = self._connection.call_once
        with Notes(lambda note: once(lambda: self._send_note(target, note))) as notes:
            for batch in batches:
                self._connection.upsert(target, batch)
                notes.written += len(batch)
        return Filled(notes.written, notes.sent)

    def finish(self, target: str, written: int) -> None:
        """Make a complete collection the live one, and delete the one that it replaces; if that
        fails, the next sync deletes it.
        """
        try:
            if target == self._name:
                self._note(target, {})
                return
            # until the switch, the note keeps other syncs from deleting the collection
            self._note(target, {**new_note(written), "complete": True})
            self._make_live(target, self._building)
        finally:
            _running.discard((forks.process_id(), target))

    def adopt(self, target: str) -> None:
        """Make a complete collection that several machines have built the live one.

        Raises:
            StoreError: a collection has the name of the index, or another build is under way.
        """
        if self._connection.info() is not None and self.live() is None:
            raise StoreError(
                f'"{self._name}" is a collection, so it cannot become an alias: delete it first, '
                "or choose another name"
            )
        self._check_is_alone()
        info = self._connection.call(lambda: self._connection.info(target))
        self.index_fields(target, unindexed(self._connection, info))
        self._note(target, {})
        self._make_live(target)

    def _make_live(self, target: str, *gone: str) -> None:
        """Make NAME an alias of a collection, remove other aliases in the same request, and delete
        the collection that it replaces.
        """
        replaced = self._switch(target, gone)
        if replaced in (None, target):
            return
        is_found_again = self._is_generation(replaced)  # by the next sync
        try:
            if is_found_again or parts_of_build(self._connection.info(replaced)):
                self._connection.call(lambda: self._delete(replaced))
                return
        except StoreError as error:
            if is_found_again:
                logger.warning('the old collection "%s" is not deleted yet: %s', replaced, error)
                return
        logger.warning('the old collection "%s" is kept: delete it', replaced)

    def _switch(self, target: str, gone: Sequence[str]) -> str | None:
        """Make NAME an alias of a collection, and return the one that it replaces."""
        from qdrant_client import models  # noqa: PLC0415

        replaced = self.live()
        deleted = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
            for alias in (*gone, *([self._name] if replaced else []))
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

    def create(self, name: str, contents: Contents, parts: int | None = None) -> None:
        """Create an empty collection; `parts` if several machines are to fill it."""
        from qdrant_client import models  # noqa: PLC0415

        client = self._connection.client
        idf = models.SparseVectorParams(modifier=models.Modifier.IDF)
        size = int(contents.fingerprint["dimensions"])
        metadata: dict[str, Any] = {
            FINGERPRINT_KEY: dict(contents.fingerprint),
            PROGRESS_KEY: new_note(0),
        }
        if contents.owner is not None:
            metadata[OWNER_KEY] = contents.owner
        if parts is not None:
            metadata[PARTS_KEY] = parts
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
        return name.startswith(prefix) and bool(GENERATION.fullmatch(name.removeprefix(prefix)))

    def _generations(self) -> Iterator[str]:
        client = self._connection.client
        found = self._connection.call(client.get_collections).collections
        return (one.name for one in found if self._is_generation(one.name))

    def _runs(self, name: str) -> bool:
        """Return whether this process is building a collection, or another one, according to its
        note.
        """
        if (forks.process_id(), name) in _running:
            return True
        info = self._connection.call(lambda: self._connection.info(name))
        note = note_of(info)
        if not note or time.time() - note.get("at", 0) > ABANDONED_SECONDS:
            return False
        if not host() or note.get("host") != host():
            return True
        pid = note.get("pid", 0)
        return pid != forks.process_id() and forks.is_running(pid)


def unindexed(connection: QdrantConnection, info: Any) -> list[str]:
    """Return the payload fields that lack their index, given the description of a collection."""
    if connection.is_local:
        return []
    return [field for field in INDEXED_FIELDS if field not in (info.payload_schema or {})]


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
