"""A real Qdrant server for the tests of the stores, seen as `QdrantServer` is."""

import os
from typing import Any, Self

import pytest
from qdrant_client import QdrantClient, models

URL = os.environ.get("QDRANT_URL")
"""The address of a server that holds nothing but what the tests make."""


class RealServer:
    """The server at `QDRANT_URL`. Its collections `kb` and `kb--...` belong to the tests: they are
    deleted at the end, and none may be there at the start.
    """

    def __init__(self) -> None:
        assert URL
        self.url = URL
        self.api_key = os.environ.get("QDRANT_API_KEY")
        key = {"api-key": self.api_key} if self.api_key else {}
        self._client = QdrantClient(URL, headers=key, timeout=60, check_compatibility=False)
        if self.collections() or "kb" in self._aliases():
            pytest.fail(f"{URL} has a collection kb: give a server that is for these tests alone")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.collections():
            self._client.delete_collection(name)
        self._client.close()

    def collections(self) -> list[str]:
        """Return the names of the tests' own collections."""
        found = (one.name for one in self._client.get_collections().collections)
        return [name for name in found if name == "kb" or name.startswith("kb--")]

    def target(self, name: str) -> str:
        """Return the collection behind an alias."""
        return self._aliases().get(name, name)

    def _aliases(self) -> dict[str, str]:
        found = self._client.get_aliases().aliases
        return {one.alias_name: one.collection_name for one in found}

    def restrict(self, name: str, **limits: Any) -> None:
        """Set the strict mode of a collection."""
        strict = models.StrictModeConfig(enabled=True, **limits)
        self._client.update_collection(self.target(name), strict_mode_config=strict)

    def indexed(self, name: str) -> set[str]:
        """Return the payload fields of a collection that have an index."""
        return set(self._client.get_collection(name).payload_schema)

    def drop_indexes(self, name: str, *fields: str) -> None:
        """Delete the payload indexes of some fields."""
        for field in fields:
            self._client.delete_payload_index(self.target(name), field, wait=True)

    def make(self, name: str, metadata: dict[str, Any]) -> None:
        """Make a collection with metadata, as something else than a sync would."""
        dense = models.VectorParams(size=64, distance=models.Distance.COSINE)
        self._client.create_collection(name, {"dense": dense}, metadata=metadata)

    def note(self, name: str, metadata: dict[str, Any]) -> None:
        """Change the metadata of a collection."""
        self._client.update_collection(name, metadata=metadata)
