"""Checks that an index was built with the current model, vector size and passage size."""

import hashlib
import json

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import StoreError
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.stores.vector_index import (
    INDEX_COMMAND,
    PAYLOAD_VERSION,
    REBUILD_COMMAND,
    Fingerprint,
    VectorIndex,
)

PASSAGE_TOKENS = 200
"""Maximum tokens of a passage. With its title and headings, it stays under 256 tokens, the input
limit of the default model.
"""


def fingerprint(embedding: Embeddings, dimensions: int) -> dict[str, str | int]:
    """Return the properties that an index must match: the model, the vector size, the passage size
    and the payload version.
    """
    return {
        "model": embeddings.identity(embedding),
        "dimensions": dimensions,
        "passage_tokens": PASSAGE_TOKENS,
        "payload": PAYLOAD_VERSION,
    }


def is_older(found: Fingerprint, embedding: Embeddings, dimensions: int | None = None) -> bool:
    """Return whether an index with this fingerprint was built by an older version of this package
    with the same model.

    Its vectors and payloads can be used, but its BM25 terms are encoded differently. `dimensions`
    is the vector size of `embedding`, if it is known.
    """
    version = found.get("payload")
    ours = fingerprint(embedding, int(found.get("dimensions", 0)))
    return (
        dimensions in (None, ours["dimensions"])
        and found.get("model") == ours["model"]
        and isinstance(version, int)
        and version <= PAYLOAD_VERSION
        and dict(found) != ours
    )


def check_fingerprint(
    index: VectorIndex, embedding: Embeddings, found: Fingerprint, dimensions: int | None = None
) -> None:
    """Refuse an index with another model, vector size or passage size: it would give wrong answers.

    Raises:
        StoreError: the index does not match; the message names the differences and the fix.
    """
    if dimensions is None:
        dimensions = int(found.get("dimensions", 0))
    ours = fingerprint(embedding, dimensions)
    known = found if index.read_only else ours
    differing = [key for key in known if found.get(key) != ours[key]]
    if not differing:
        return
    if not index.read_only and is_older(found, embedding, dimensions):
        raise StoreError(f"the index was built by an older version: {INDEX_COMMAND}")
    sizes = f"size: embedding is {dimensions}-d, collection is {found.get('dimensions')}-d"
    differences = [
        sizes if key == "dimensions" else f"{key} {found.get(key)!r}, now {ours[key]!r}"
        for key in differing
    ]
    fix = "open it with the embedding model it was built with"
    if not index.read_only:
        fix = f"{fix}, or {REBUILD_COMMAND}" if "model" in differing else REBUILD_COMMAND
    raise StoreError(f"the index was built with another {'; '.join(differences)}: {fix}")


def brand(found: Fingerprint) -> str:
    """Return the brand of an index: a hash of its fingerprint, stored with each passage."""
    return hashlib.sha256(json.dumps(dict(found), sort_keys=True).encode()).hexdigest()[:16]
