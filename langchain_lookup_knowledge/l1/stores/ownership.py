"""Checks before a sync writes a server collection, which another knowledge base may own."""

from collections.abc import Collection

from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.stores.vector_index import Contents, VectorIndex

MOST_REMOVED = 10
"""Number of entries that a sync may remove even from a small collection."""
TAKE_OVER = (
    "to replace them by this folder, use --take-over, or sync(take_over=True); "
    "otherwise choose another collection"
)


def check_id(found: Contents, knowledge_base_id: str | None) -> None:
    """Check that a collection does not carry the id of another knowledge base.

    Raises:
        StoreError: it carries another id.
    """
    if found.owner is None or found.owner == knowledge_base_id:
        return
    ours = "has no id" if knowledge_base_id is None else f"has the id {knowledge_base_id!r}"
    raise StoreError(
        f"the collection belongs to the knowledge base with the id {found.owner!r}, and this one "
        f"{ours}: choose another collection, or give that id (--id, knowledge_base_id=)"
    )


def check_removals(found: Contents, entry_ids: Collection[str]) -> None:
    """Check that a sync removes few entries, and that the collection holds some of its entries.

    Raises:
        StoreError: the sync would remove more than `MOST_REMOVED` entries and more than a third of
            all entries, or the collection holds none of its entries.
    """
    known = found.digests.keys()
    removed = len(known - entry_ids)
    kept = len(known) - removed
    if known and (not kept or (removed > MOST_REMOVED and 3 * removed > len(known))):
        raise StoreError(
            f"the collection holds {len(known)} entries, and this folder has {kept} of them, so "
            f"{removed} would be removed: {TAKE_OVER}"
        )


def holds_entries(index: VectorIndex) -> bool:
    """Return whether an index holds entries; True for an unreadable index, so that it is not
    emptied by mistake.
    """
    try:
        contents = index.contents()
    except StoreError:
        return True
    return bool(contents and contents.digests)
