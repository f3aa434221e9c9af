"""Which embedding model an argument or a setting names."""

from weakref import WeakValueDictionary

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.l1.models.embeddings import (
    DEFAULT_MODEL,
    E5_MODEL,
    FastEmbedModel,
    unknown_model,
)
from langchain_lookup_knowledge.l1.models.multilingual import (
    E5Model,
    multilingual_model,
)

MULTILINGUAL = "multilingual"
"""The word for the multilingual model of this machine."""
_named: WeakValueDictionary[str, FastEmbedModel] = WeakValueDictionary()
"""Models in use by name: the knowledge bases of a process share a model that is loaded once."""


def as_embeddings(embedding: Embeddings | str | None) -> Embeddings:
    """Return the embedding model: None means the default, a string is "multilingual" or the name of
    a model.

    Raises:
        ValueError: FastEmbed knows no model of this name, or `embedding` is of another type.
    """
    if embedding == MULTILINGUAL:
        embedding = multilingual_model()
    if embedding == E5_MODEL:
        return E5Model()
    if embedding is None or isinstance(embedding, str):
        name = embedding or DEFAULT_MODEL
        embedding = _named.setdefault(name, FastEmbedModel(name))
    if type(embedding) is FastEmbedModel and (unknown := unknown_model(embedding.model_name)):
        raise ValueError(unknown)
    if isinstance(embedding, Embeddings):
        return embedding
    raise ValueError(
        'embedding takes a LangChain Embeddings, "multilingual" or a FastEmbed model name, '
        f"not {type(embedding).__name__}"
    )
