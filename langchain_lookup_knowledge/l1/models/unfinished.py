"""The vectors of a running build, kept in a file so that an interrupted build can continue."""

import hashlib
import logging
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.l1.models import embeddings

logger = logging.getLogger("langchain_lookup_knowledge")

_KEY, _CHECK = 16, struct.Struct("<I")
_FLOATS = np.dtype("<f4")


class UnfinishedBuild:
    """The vectors that a build has computed so far, by the hash of the text.

    Embedding takes nearly all of the time of a build. If the process is killed, the next build
    reads the vectors from the file. The file begins with a hash of the model and the size of its
    vectors; each record is a hash of the text, the vector as 32-bit floats, and a checksum. A
    record that was cut off is ignored.

    Args:
        path: the file; None keeps nothing. Only the process that holds the write lock of the index
            may use it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._places: dict[bytes, int] = {}
        self._size = 0

    def begin(self, embedding: Embeddings, dimensions: int, *, afresh: bool) -> None:
        """Load the vectors of an interrupted build with the same model; `afresh` discards them."""
        made_by = f"{embeddings.identity(embedding)}\n{dimensions}"
        header = hashlib.sha256(made_by.encode()).digest()
        self._size = _KEY + dimensions * _FLOATS.itemsize + _CHECK.size
        if self._path is None:
            return
        try:
            self._places = {} if afresh else self._found(self._path, header)
            if not self._places:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_bytes(header)
        except OSError as error:
            self._give_up(error)

    def _found(self, path: Path, header: bytes) -> dict[bytes, int]:
        """Return the offset of each intact record by its key, and cut off an incomplete last
        record.
        """
        places: dict[bytes, int] = {}
        if not path.exists():
            return places
        with path.open("r+b") as file:
            if file.read(len(header)) != header:
                return places
            place = len(header)
            while len(record := file.read(self._size)) == self._size:
                if _CHECK.pack(zlib.crc32(record[: -_CHECK.size])) == record[-_CHECK.size :]:
                    places[record[:_KEY]] = place
                place += self._size
            file.truncate(place)
        return places

    def embed(self, embedding: Embeddings, texts: Sequence[str]) -> list[list[float] | None]:
        """Return one vector per text, as `embeddings.embed_documents` does; known texts are not
        embedded again.

        Raises:
            EmbeddingError: as `embeddings.embed_documents`.
        """
        encoded = (text.encode("utf-8", "surrogatepass") for text in texts)
        keys = [hashlib.sha256(text).digest()[:_KEY] for text in encoded]
        vectors = self._read(keys)
        new = [place for place, vector in enumerate(vectors) if vector is None]
        if new:
            made = embeddings.embed_documents(embedding, [texts[place] for place in new])
            for place, vector in zip(new, made, strict=True):
                vectors[place] = vector
            self._keep([(keys[p], vector) for p, vector in zip(new, made, strict=True) if vector])
        return vectors

    def _read(self, keys: Sequence[bytes]) -> list[list[float] | None]:
        if self._path is None or self._places.keys().isdisjoint(keys):
            return [None] * len(keys)
        with self._path.open("rb") as file:
            return [self._vector(file, self._places.get(key)) for key in keys]

    def _vector(self, file: BinaryIO, place: int | None) -> list[float] | None:
        if place is None:
            return None
        file.seek(place + _KEY)
        stored = file.read(self._size - _KEY - _CHECK.size)
        vector: list[float] = np.frombuffer(stored, _FLOATS).tolist()
        return vector

    def _keep(self, made: Sequence[tuple[bytes, Sequence[float]]]) -> None:
        if self._path is None:
            return
        records = [key + np.asarray(vector, _FLOATS).tobytes() for key, vector in made]
        try:
            with self._path.open("ab") as file:
                file.writelines(record + _CHECK.pack(zlib.crc32(record)) for record in records)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        logger.warning(
            "the vectors of this build cannot be kept (%s): if it is interrupted, it starts over",
            error.strerror or error,
        )
        self._path = None

    def done(self) -> None:
        """Remove the file: the index holds all of its vectors."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
