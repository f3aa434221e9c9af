"""The index and model named in the settings of a knowledge base, and whether to use them.

Settings may come with a folder from somebody else. Until the user trusts them, their server is not
used, because it would receive queries and texts. Their model is not used either, because it would
be downloaded.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.data_folder import (
    INDEX_FOLDER,
    SETTINGS,
    read_settings,
    saved_fields,
    signed_here,
    without_secrets,
    write_settings,
)
from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.l1.models.choice import as_embeddings
from langchain_lookup_knowledge.l1.models.embeddings import DEFAULT_MODEL, FastEmbedModel
from langchain_lookup_knowledge.l1.models.reranking import Reranker, as_reranker
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.l1.stores.qdrant.address import checked_key, same_server
from langchain_lookup_knowledge.l1.stores.qdrant.index import QdrantIndex
from langchain_lookup_knowledge.l1.stores.vector_index import VectorIndex
from langchain_lookup_knowledge.reading.selection import Selection, chosen_selection
from langchain_lookup_knowledge.types import FrontmatterFields

logger = logging.getLogger("langchain_lookup_knowledge")


_KINDS: dict[str, Any] = {
    "url": str,
    "collection": str,
    "prefer_grpc": bool,
    "grpc_port": int,
    "verify": str | bool,
}
"""The arguments of a `QdrantIndex` that are saved, and their types."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a knowledge base, from the arguments or else from the settings.

    `selection`: which files are read. `glossary`: the path of the glossary in the folder, or "".
    `knowledge_base_id`: the id that its collection carries, if any. `notice`: a message about
    settings that are not used.
    """

    index: VectorIndex | None
    embedding: Embeddings
    fields: FrontmatterFields
    reranker: Reranker | None
    selection: Selection
    glossary: str
    knowledge_base_id: str | None
    notice: str | None


def choose_parts(
    data_folder: Path,
    index: VectorIndex | Literal["from_settings"] | None,
    embedding: Embeddings | str | None = None,
    fields: FrontmatterFields | None = None,
    *,
    rerank: BaseDocumentCompressor | str | None = None,
    exclude: Sequence[str] | None = None,
    endings: Sequence[str] | None = None,
    glossary: str | None = None,
    knowledge_base_id: str | None = None,
    trust: bool = False,
) -> Parts:
    """Check the arguments of `KnowledgeBase.open`, and take missing ones from the settings.

    Raises:
        DocumentError: the settings are damaged.
    """
    if index not in (None, "from_settings") and not hasattr(index, "search"):
        raise ValueError(f"index takes a QdrantIndex or None, not {index!r}")
    if fields is not None and not isinstance(fields, FrontmatterFields):
        raise ValueError(f"fields takes a FrontmatterFields, not {fields!r}")
    if knowledge_base_id is not None and not knowledge_base_id.strip():
        raise ValueError("knowledge_base_id takes a name, not an empty text")
    saved = load_settings(
        data_folder,
        trust=trust,
        index_given=index != "from_settings",
        model_given=embedding is not None,
    )
    named = embedding if embedding is not None else saved.values.get("embedding")
    return Parts(
        saved_index(saved.values, data_folder) if index == "from_settings" else index,
        as_embeddings(named),
        fields or saved_fields(saved.values),
        as_reranker(rerank),
        chosen_selection(saved.values, exclude, endings),
        saved.values.get("glossary", "") if glossary is None else glossary,
        knowledge_base_id if knowledge_base_id is not None else saved.knowledge_base_id,
        saved.notice,
    )


class SavedSettings(NamedTuple):
    """The settings that are used, and a notice about those that are not."""

    values: dict[str, Any]
    notice: str | None = None

    @property
    def knowledge_base_id(self) -> str | None:
        """The id of the knowledge base, if one was saved."""
        return self.values.get("id")


def load_settings(
    data_folder: Path,
    *,
    trust: bool = False,
    index_given: bool = False,
    model_given: bool = False,
    servers: Collection[str] = (),
) -> SavedSettings:
    """Return the saved settings.

    A server, a model other than the bundled one, and an id are left out unless this user saved or
    trusts the settings.

    Args:
        data_folder: where the settings are.
        trust: whether the user trusts the settings, wherever they come from.
        index_given, model_given: whether an argument names the index or the model; then the notice
            omits the saved one.
        servers: URLs of servers that the user named.

    Raises:
        DocumentError: the settings are damaged.
    """
    settings = _checked(read_settings(data_folder))
    if trust or signed_here(settings):
        return SavedSettings(settings)
    settings.pop("id", None)
    ignored = []
    if "index" in settings:
        named = settings["index"]
        if any(same_server(named["url"], one) for one in servers):
            # but which port and certificates the user did not name
            settings["index"] = {"url": named["url"], "collection": named["collection"]}
        else:
            del settings["index"]
            if not index_given:
                ignored.append(f"the server {without_secrets(named['url'])!r}")
    if settings.get("embedding", DEFAULT_MODEL) != DEFAULT_MODEL:
        model = settings.pop("embedding")
        if not model_given:
            ignored.append(f"the model {model!r}")
    if not ignored:
        return SavedSettings(settings)
    notice = (
        f"{SETTINGS} names {' and '.join(ignored)}, which is not used, because this user did not "
        "save these settings: to trust them, run `lookup-knowledge index --trust`, or open with "
        "trust=True"
    )
    logger.warning("%s: %s", data_folder, notice)
    return SavedSettings(settings, notice)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Check the types of the settings, and return a copy.

    Raises:
        DocumentError: a value has the wrong type.
    """
    if "index" in settings:
        index = settings["index"]
        fits = isinstance(index, dict) and {"url", "collection"} <= index.keys() <= _KINDS.keys()
        if not fits or not all(isinstance(value, _KINDS[name]) for name, value in index.items()):
            raise DocumentError(f"{SETTINGS} holds an index that cannot be used: delete it")
    for name in ("embedding", "id", "glossary"):
        if name in settings and not isinstance(settings[name], str):
            raise DocumentError(f"{name!r} in {SETTINGS} is not a string: delete it")
    return dict(settings)


def saved_index(
    settings: dict[str, Any], data_folder: Path, *, api_key: str | None = None
) -> VectorIndex:
    """Return the index that the settings name, or the embedded index if they name none."""
    if "index" in settings:
        key = checked_key(api_key)  # before its error could be taken for one in the settings
        try:
            return QdrantIndex(**settings["index"], api_key=key)
        except ValueError as error:
            raise DocumentError(f"the index in {SETTINGS} cannot be used: {error}") from error
    return EmbeddedIndex(data_folder / INDEX_FOLDER)


def save_parts(data_folder: Path, parts: Parts) -> None:
    """Save the parts of a knowledge base in the settings, without any secret.

    Settings that came with the folder are not overwritten if some of them are not used.

    Raises:
        OSError: they cannot be written.
    """
    if parts.notice:
        return
    settings: dict[str, Any] = {
        "fields": asdict(parts.fields),
        "selection": asdict(parts.selection),
    }
    if parts.glossary:
        settings["glossary"] = parts.glossary
    if isinstance(parts.embedding, FastEmbedModel):
        settings["embedding"] = parts.embedding.model_name
    if isinstance(index := parts.index, QdrantIndex):
        settings["index"] = index.settings()
    if parts.knowledge_base_id is not None:
        settings["id"] = parts.knowledge_base_id
    write_settings(data_folder, settings)
