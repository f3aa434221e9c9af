"""Building a collection on several machines: each writes its part of the entries into
`NAME--GENERATION`, and `finish` makes the whole the live one.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.stores import ownership
from langchain_lookup_knowledge.l1.stores.fingerprints import check_fingerprint
from langchain_lookup_knowledge.l1.stores.qdrant.builds import BUILDING, GENERATION
from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex
from langchain_lookup_knowledge.l1.stores.vector_index import Contents, Point
from langchain_lookup_knowledge.text.wording import counted

_GENERATION_NAME = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
NAMED = 3
"""Maximum number of entries of each kind that the error about an incomplete generation names."""


def collection_of(name: str, generation: str) -> str:
    """Return the collection of a generation.

    Raises:
        ValueError: the name of the generation cannot be used.
    """
    taken = generation == BUILDING or GENERATION.fullmatch(generation)
    if taken or not _GENERATION_NAME.fullmatch(generation):
        raise ValueError(
            f"{generation!r} cannot name a generation: give letters and digits, such as 2026-12"
        )
    return f"{name}--{generation}"


def part_of(entry_id: str, parts: int) -> int:
    """Return the part, 1 to `parts`, that an entry falls in by the hash of its path."""
    name = entry_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) % parts + 1


class GenerationPart(QdrantIndex):
    """One machine's part of a generation: what is not in this part is neither read nor written.

    Args:
        url: as for `QdrantIndex`; `options` takes its other arguments.
        collection: the name that lookups use.
        generation: the name of the generation.
        part: the part that this machine writes, 1 to `parts`.
        parts: the number of parts.

    Raises:
        ValueError: there is no such part, or another argument cannot be used.
    """

    def __init__(
        self, url: str, collection: str, generation: str, part: int, parts: int, **options: Any
    ) -> None:
        if not 1 <= part <= parts:
            raise ValueError(f"there is no part {part}/{parts}: give 1/{parts} to {parts}/{parts}")
        super().__init__(url, collection_of(collection, generation), **options)
        self._part, self._parts = part, parts

    def holds(self, entry_id: str) -> bool:
        """Return whether an entry falls in this part."""
        return part_of(entry_id, self._parts) == self._part

    def contents(self) -> Contents | None:
        found = super().contents()
        if found is None:
            return None
        digests = {name: digest for name, digest in found.digests.items() if self.holds(name)}
        unembedded = tuple(filter(self.holds, found.unembedded))
        return replace(found, digests=digests, unembedded=unembedded)

    def write(
        self,
        contents: Contents,
        removed: Iterable[str],
        points: Iterable[Sequence[Point]],
        *,
        rebuild: bool = False,
    ) -> None:
        if rebuild:
            raise StoreError(
                f'collection "{self.collection}" was begun by another version or is to be built '
                "again: choose another --generation"
            )
        if self.builds.is_live():
            raise StoreError(
                f'collection "{self.collection}" is live already, so lookups would see each step: '
                "choose another --generation, or run `lookup-knowledge index` without --shard"
            )
        found = self.builds.begin_in_parts(contents, self._parts)
        if found != self._parts:
            begun = f"in {counted(found, 'part', 'parts')}" if found else "without --shard"
            raise StoreError(
                f'collection "{self.collection}" was begun {begun}, not in {self._parts}: give '
                "the same number of parts on each machine, or choose another --generation"
            )
        super().write(contents, removed, points)


def finish(
    live: QdrantIndex,
    whole: QdrantIndex,
    digests: Mapping[str, str],
    embedding: Embeddings,
    *,
    take_over: bool = False,
) -> None:
    """Make a generation that was built in parts the live one, in one operation.

    Args:
        live: the index whose name lookups use.
        whole: the collection of the generation.
        digests: the digest of each entry of the folder, by id.
        embedding: the model of the knowledge base.
        take_over: as for a sync.

    Raises:
        StoreError: the generation does not hold exactly the entries of the folder, or may not
            replace the live collection.
    """
    found = whole.contents()
    if found is None:
        raise StoreError(
            f'there is no collection "{whole.collection}": build it with --shard and --generation'
        )
    check_fingerprint(whole, embedding, found.fingerprint)
    if problem := _difference(found.digests, digests, whole.builds.parts() or 1):
        raise StoreError(f'collection "{whole.collection}" is not whole: {problem}')
    if before := live.contents():
        ownership.check_id(before, found.owner)
        if not take_over:
            ownership.check_removals(before, digests.keys())
    live.connection.call_once(lambda: live.builds.adopt(whole.collection))


def _difference(found: Mapping[str, str], digests: Mapping[str, str], parts: int) -> str | None:
    """Return how the entries of a generation differ from those of the folder, and which parts are
    to be written again; None if there is no difference.
    """
    kinds = {
        "missing": sorted(digests.keys() - found.keys()),
        "incomplete or different": sorted(
            name for name in digests.keys() & found.keys() if found[name] != digests[name]
        ),
        "not in the folder": sorted(found.keys() - digests.keys()),
    }
    told = [
        f"{counted(len(names), 'entry is', 'entries are')} {kind} ({', '.join(names[:NAMED])}"
        f"{', ...' if len(names) > NAMED else ''})"
        for kind, names in kinds.items()
        if names
    ]
    if not told:
        return None
    behind = sorted({part_of(name, parts) for names in kinds.values() for name in names})
    again = ", ".join(f"{part}/{parts}" for part in behind)
    return (
        f"of {len(digests)}, {'; '.join(told)}: run `lookup-knowledge index` with --shard {again}"
    )
