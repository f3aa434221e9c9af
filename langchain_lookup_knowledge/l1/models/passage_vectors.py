"""The vectors of passages: which passages a model can embed, and the text that it embeds."""

from collections.abc import Callable, Sequence

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge.l1.models import embeddings, languages
from langchain_lookup_knowledge.l1.models.unfinished import UnfinishedBuild
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.passages import Passage

HEADING_TOKENS = 50
"""Maximum tokens of the title and headings put in front of a passage when it is embedded."""
NOT_EMBEDDED: Sequence[float] = ()
"""In place of a vector: the passage is stored without one, because the model does not know its
language.
"""


class PassageVectors:
    """Embeds the passages of entries in languages that the model knows.

    Args:
        embedding: the model.
        unfinished: keeps the vectors until the index is written.
        language: the language of entries that are too short to tell it.
    """

    def __init__(self, embedding: Embeddings, unfinished: UnfinishedBuild, language: str) -> None:
        self._embedding = embedding
        self._unfinished = unfinished
        self._language = language
        self._languages: dict[str, str] = {}

    def of(self, window: Sequence[tuple[Entry, Passage]]) -> list[Sequence[float] | None]:
        """Return one vector per passage: None if it is unusable, `NOT_EMBEDDED` if the model does
        not know the language of the passage.

        Raises:
            EmbeddingError: the model fails.
        """
        count = embeddings.token_counter(self._embedding)
        asked = [place for place, pair in enumerate(window) if self._is_understood(*pair)]
        texts = [embedded_text(*window[place], count) for place in asked]
        made = self._unfinished.embed(self._embedding, texts) if texts else []
        if texts and not any(made):
            embeddings.check_documents(self._embedding)
        vectors = dict(zip(asked, made, strict=True))
        return [vectors.get(place, NOT_EMBEDDED) for place in range(len(window))]

    def _is_understood(self, entry: Entry, passage: Passage) -> bool:
        """Return whether the model knows the script of a passage, and its language or that of its
        entry.
        """
        if not embeddings.is_english(self._embedding):
            return True
        if entry.entry_id not in self._languages:
            self._languages[entry.entry_id] = languages.language(entry.text) or self._language
        if not languages.is_latin(passage.text):
            return False
        of_entry = self._languages[entry.entry_id]
        return (
            of_entry == languages.ENGLISH or languages.language(passage.text) == languages.ENGLISH
        )


def embedded_text(entry: Entry, passage: Passage, count: Callable[[str], int]) -> str:
    """Return the text to embed: the title and headings, cut if they are long, and the passage."""
    above = " > ".join(dict.fromkeys([entry.title, *passage.heading.split(" > ")])).removesuffix(
        " > "
    )
    while (tokens := count(above)) > HEADING_TOKENS:
        above = above[: len(above) * HEADING_TOKENS // tokens]
    return f"{above}\n{passage.text}"
