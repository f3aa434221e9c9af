"""Errors of this package.

LookupKnowledgeError
├── DocumentError    the knowledge folder, or its data folder, cannot be used
├── EmbeddingError   the embedding model cannot be loaded or gives unusable vectors
├── StoreError       the vector index cannot be read, written or reached
│   ├── IndexMissing         ... since there is none yet
│   ├── StoreForbidden       ... since the server refuses the API key
│   └── StoreUnreachable     ... since its server does not answer, or not now
│       └── StoreTimeout         ... in time
├── RecordError      an invocation cannot be written or read
│   └── RecordRefused        ... since the database will not have this one, now or later
└── ScopeError       the caller did not say which entries it may see

A slip in a caller's arguments is a plain `ValueError`.
"""


class LookupKnowledgeError(Exception):
    """Base of the errors raised on purpose; the message names the thing and the fix."""


class DocumentError(LookupKnowledgeError):
    """The knowledge folder, or its data folder, cannot be used."""


class EmbeddingError(LookupKnowledgeError):
    """The embedding model cannot be loaded, or its vectors cannot be used."""


class StoreError(LookupKnowledgeError):
    """The vector index cannot be read, written or reached."""


class IndexMissing(StoreError):
    """There is no index, or no collection, to search."""


class StoreForbidden(StoreError):
    """The server that holds the vector index refuses the API key."""


class StoreUnreachable(StoreError):
    """The server that holds the vector index does not answer, or says that it cannot now (429, 5xx)."""


class StoreTimeout(StoreUnreachable):
    """L1 did not answer in the time it was given."""


class RecordError(LookupKnowledgeError):
    """An invocation cannot be written or read."""


class RecordRefused(RecordError):
    """The database refuses an invocation for what it is."""


class ScopeError(LookupKnowledgeError):
    """The caller did not say which entries it may see."""
