"""Where collections created elsewhere keep the text, path, title and category of a passage."""

import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.text.visible.cleaning import clean, one_line, visible_text

LAYOUTS = ("langchain", "llama_index", "mcp_server_qdrant")


@dataclass(frozen=True, slots=True)
class PayloadKeys:
    """The payload keys of the fields of a candidate, in a collection created elsewhere.

    `metadata` is the key of the mapping that holds the fields other than `content`; "" if they are
    on the top level. The content may be a JSON object whose `text` is the actual content. `root` is
    the prefix to remove from the paths; None if it is not known yet.
    """

    content: str = "page_content"
    metadata: str = "metadata"
    entry: str = "source"
    title: str = "title"
    category: str = "category"
    root: str | None = None

    @classmethod
    def of(cls, layout: str, **given: str | None) -> "PayloadKeys":
        """Return the keys of a layout, with the given keys in place of its own.

        Raises:
            ValueError: there is no such layout.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"layout takes {', '.join(LAYOUTS)}, not {layout!r}")
        keys = cls()
        if layout == "llama_index":
            keys = cls(content="_node_content", metadata="", entry="file_path")
        elif layout == "mcp_server_qdrant":
            keys = cls(content="document")
        return replace(keys, **{name: key for name, key in given.items() if key is not None})

    def path(self, key: str) -> str:
        return f"{self.metadata}.{key}" if self.metadata else key

    def entry_id(self, payload: Mapping[str, Any] | None) -> str | None:
        """Return the path of the file that a passage is from, relative to the root; None if the
        payload has no path.
        """
        found = self._metadata(payload).get(self.entry)
        if not isinstance(found, str):
            return None
        path = unicodedata.normalize("NFC", found.replace("\\", "/")).lstrip("/")
        return path.removeprefix((self.root or "").lstrip("/")).lstrip("/")

    def read(
        self, payload: Mapping[str, Any] | None, entries: Mapping[str, Entry]
    ) -> dict[str, Any] | None:
        """Return a payload in the form that this package writes; None if it has no text or no
        path.
        """
        text, entry_id = self._text(payload), self.entry_id(payload)
        if not isinstance(text, str) or not text.strip() or entry_id is None:
            return None
        metadata = self._metadata(payload)
        categories = metadata.get(self.category) or []
        entry = entries.get(entry_id)
        title = metadata.get(self.title) or (entry.title if entry else entry_id)
        shown = {
            "entry_id": entry_id,
            "title": one_line(str(title)),
            "categories": [
                one_line(str(name))
                for name in (categories if isinstance(categories, list) else [categories])
            ],
            "source": entry_id,
            "heading": "",
        }
        return {"page_content": visible_text(clean(text)).strip(), "metadata": shown}

    def _text(self, payload: Mapping[str, Any] | None) -> Any:
        found = (payload or {}).get(self.content)
        if self.content == "_node_content" and isinstance(found, str):
            with suppress(ValueError, RecursionError):  # otherwise it is the text itself
                node = json.loads(found)
                return node.get("text") if isinstance(node, Mapping) else found
        return found

    def _metadata(self, payload: Mapping[str, Any] | None) -> Mapping[str, Any]:
        found = (payload or {}).get(self.metadata) if self.metadata else payload
        return found if isinstance(found, Mapping) else {}


def guess_root(paths: Iterable[str], entry_ids: Collection[str]) -> str | None:
    """Return the prefix that most paths have before the id of an entry; None if no path ends with
    one.
    """
    roots: Counter[str] = Counter()
    for path in paths:
        parts = unicodedata.normalize("NFC", path.replace("\\", "/")).split("/")
        for start in range(len(parts)):
            if "/".join(parts[start:]) in entry_ids:
                roots["".join(f"{part}/" for part in parts[:start])] += 1
                break
    return max(roots, key=lambda root: roots[root]) if roots else None
