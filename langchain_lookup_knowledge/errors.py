"""Errors of this package.

LookupKnowledgeError
├── DocumentError    the knowledge folder, or its data folder, cannot be used
├── EmbeddingError   the embedding model cannot be loaded or gives unusable vectors
├── StoreError       the vector index cannot be read, written or reached
│   ├── IndexDamagedError        ... because its files are damaged
│   ├── IndexMissingError        ... because no index exists yet
│   ├── StoreForbiddenError      ... because the server refuses the API key
│   ├── StoreLimitError          ... because a request exceeds a limit of the server
│   └── StoreUnreachableError    ... because its server does not answer, or is busy
│       ├── StoreRateLimitError      ... because the server limits the rate of requests
│       └── StoreTimeoutError        ... within the time limit
├── EntryNotFoundError   the knowledge base has no such entry, or the entry no such section
├── RecordError      an invocation cannot be written or read
│   └── RecordRefusedError       ... because the database rejects it for good
└── ScopeError       the caller did not state which entries it may see

An invalid argument raises a plain `ValueError`.
"""

from typing import ClassVar


def unexpected(error: BaseException) -> str:
    """Return the message for an unforeseen exception, without its text, which may contain a
    secret.
    """
    return f"unexpected {type(error).__name__}: see the log at DEBUG"


class LookupKnowledgeError(Exception):
    """Base class of this package's errors; the message names the cause and the fix.

    `docs` is the page of the documentation that explains it. A traceback shows it as a note.
    """

    docs: ClassVar[str] = "index"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(f"docs: {self.docs}")


class DocumentError(LookupKnowledgeError):
    """The knowledge folder, or its data folder, cannot be used."""

    docs = "folder"


class EvaluationError(DocumentError):
    """The questions or the saved figures of an evaluation cannot be used."""

    docs = "evaluation"


class EmbeddingError(LookupKnowledgeError):
    """The embedding model or the reranker cannot be loaded, or its output cannot be used."""

    docs = "embeddings"


class StoreError(LookupKnowledgeError):
    """The vector index cannot be read, written or reached."""

    docs = "servers"


class IndexDamagedError(StoreError):
    """The files of an embedded index cannot be read as an index."""

    docs = "folder"


class IndexMissingError(StoreError):
    """There is no index, or no collection, to search."""

    docs = "how-to/agent-says-nothing-found"


class StoreForbiddenError(StoreError):
    """The server of the vector index refuses the API key."""


class StoreLimitError(StoreError):
    """A request exceeds a limit, such as one of strict mode, of the server of the vector index."""


class StoreUnreachableError(StoreError):
    """The server of the vector index does not answer, or answers that it is busy (429, 5xx)."""


class StoreRateLimitError(StoreUnreachableError):
    """The server of the vector index limits the rate of requests; `retry_after` is the number of
    seconds that it asks to wait, 0 if it does not say.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreTimeoutError(StoreUnreachableError):
    """L1 (vector search) did not answer within its time limit."""


class EntryNotFoundError(LookupKnowledgeError):
    """The knowledge base has no such entry, or the entry no such section, for this caller."""

    docs = "several"


class RecordError(LookupKnowledgeError):
    """An invocation cannot be written or read."""

    docs = "records"


class RecordRefusedError(RecordError):
    """The database rejects an invocation because of its contents; a retry would not help."""


class ScopeError(LookupKnowledgeError):
    """The caller did not state which entries it may see."""

    docs = "scopes"


def install_hint(extra: str) -> str:
    """Return the command that installs an extra, in a checkout or from the package index."""
    return (
        f'pip install ".[{extra}]" in a checkout, '
        f'or pip install "langchain-lookup-knowledge[{extra}]" once published'
    )
