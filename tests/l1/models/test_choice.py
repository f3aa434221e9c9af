"""Which model an argument or a setting names."""

import gc
import weakref

from langchain_lookup_knowledge.l1.models.choice import as_embeddings
from langchain_lookup_knowledge.l1.models.embeddings import DEFAULT_MODEL, FastEmbedModel


def test_knowledge_bases_share_the_model_of_a_name_as_long_as_one_uses_it():
    assert as_embeddings(None) is as_embeddings(DEFAULT_MODEL)
    other = as_embeddings("BAAI/bge-small-en-v1.5")
    assert other is as_embeddings("BAAI/bge-small-en-v1.5")
    freed = weakref.ref(other)
    del other
    gc.collect()
    assert freed() is None


def test_a_model_that_is_given_is_used_as_it_is():
    model = FastEmbedModel(threads=1)
    assert as_embeddings(model) is model
