"""Is the answer in the text that the model gets? Ours against the usual hybrid of chunks, at the
same number of characters.

`python benchmarks/evidence.py EVAL [SET ...] [--data-dir DIR] [--json FILE]`

EVAL holds a folder for each set: `kb/`, `queries.dev.jsonl` (`id`, `query`, `relevant`) and
`evidence.dev.jsonl` (`id`, `evidence`: literals of which one must be shown, compared in lower case,
runs of whitespace and Markdown marks as one space). The usual hybrid: Markdown chunks of 1,000
characters (overlap 100) with the title in front, BM25 (k1 1.2, b 0.75) and cosines of the same
model, 50 of each, reciprocal ranks (60), best chunks first until as many characters are shown as
ours shows. `--data-dir` keeps the indexes and the vectors of the chunks for the next run.
"""

import argparse
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_text_splitters import Language, RecursiveCharacterTextSplitter

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.evaluation.measuring import FIRST_MATCH_CHARS, measure, shows
from langchain_lookup_knowledge.lookup.answer.rendering import render
from langchain_lookup_knowledge.types import LookupOptions

CATEGORY_FROM_PATH = {"apisix_zh": 1}
"""Folders that make a category, where it is not two."""
_WORD = re.compile(r"\w+(?:[.\-]\w+)*")
_SPACELESS = re.compile("[\u3041-\u30ff\u3400-\u9fff]+")


class Ask(NamedTuple):
    """A question, the literals of which one must be shown, and the entries that answer it."""

    query: str
    evidence: tuple[str, ...]
    relevant: frozenset[str] = frozenset()


def answer(graph: Any, query: str) -> tuple[str, dict[str, Any]]:
    """Return the text for the model and the result of a lookup."""
    result = graph.invoke({"query": query})
    return render(result, LookupOptions().max_chars), result


def first_match(result: dict[str, Any]) -> str:
    return result["matches"][0]["snippet"][:FIRST_MATCH_CHARS] if result["matches"] else ""


def hybrid_words(text: str) -> list[str]:
    """Return words in lower case, inner dots, dashes and underscores kept; Chinese and Japanese as
    bigrams.
    """
    words: list[str] = []
    for found in _WORD.finditer(text.lower()):
        position = 0
        for run in _SPACELESS.finditer(found[0]):
            words += [found[0][position : run.start()]] if run.start() > position else []
            words += [run[0][i : i + 2] for i in range(len(run[0]) - 1)] or [run[0]]
            position = run.end()
        words += [found[0][position:]] if position < len(found[0]) else []
    return words


class UsualHybrid:
    """Chunks ranked by BM25 and cosine, fused by reciprocal ranks."""

    def __init__(self, kb: KnowledgeBase, cache: Path | None = None) -> None:
        splitter = RecursiveCharacterTextSplitter.from_language(
            Language.MARKDOWN, chunk_size=1000, chunk_overlap=100
        )
        pieces = (
            (entry, piece) for entry in kb.entries for piece in splitter.split_text(entry.text)
        )
        self.chunks = [(entry.entry_id, f"{entry.title}\n{piece}") for entry, piece in pieces]
        self._embedding = kb.embedding
        self._vectors = self._embedded([text for _, text in self.chunks], cache)
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        documents = [hybrid_words(text) for _, text in self.chunks]
        average = sum(map(len, documents)) / len(documents)
        for place, words in enumerate(documents):
            for word, count in Counter(words).items():
                saturation = count + 1.2 * (0.25 + 0.75 * len(words) / average)
                self._postings[word].append((place, 2.2 * count / saturation))

    def _embedded(self, texts: Sequence[str], cache: Path | None) -> np.ndarray:
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
        path = cache / f"chunks-{digest}.npy" if cache else None
        if path and path.exists():
            return np.load(path)
        vectors = np.array(self._embedding.embed_documents(list(texts)), dtype=np.float32)
        if path:
            np.save(path, vectors)
        return vectors

    def search(self, query: str, chars: int) -> list[str]:
        """Return the best chunks, together at most `chars` long, the last one cut."""
        scores: dict[int, float] = defaultdict(float)
        for word in set(hybrid_words(query)):
            postings = self._postings.get(word, [])
            idf = math.log((len(self.chunks) - len(postings) + 0.5) / (len(postings) + 0.5) + 1)
            for place, weight in postings:
                scores[place] += idf * weight
        lexical = sorted(scores, key=lambda place: (-scores[place], place))[:50]
        cosines = self._vectors @ np.array(self._embedding.embed_query(query), dtype=np.float32)
        fused: dict[int, float] = defaultdict(float)
        for ranked in (lexical, np.argsort(-cosines, kind="stable")[:50].tolist()):
            for rank, place in enumerate(ranked, start=1):
                fused[place] += 1 / (60 + rank)
        shown: list[str] = []
        for place in sorted(fused, key=lambda place: (-fused[place], place)):
            if chars <= 0:
                break
            shown.append(self.chunks[place][1][:chars])
            chars -= len(shown[-1])
        self.entries = list(
            dict.fromkeys(self.chunks[p][0] for p in sorted(fused, key=lambda p: (-fused[p], p)))
        )
        return shown


def read_asks(folder: Path) -> dict[str, Ask]:
    """Return the questions that have evidence, by id."""
    evidence = [
        json.loads(line) for line in (folder / "evidence.dev.jsonl").read_text("utf-8").splitlines()
    ]
    literals = {
        item["id"]: tuple(found["literal"] for found in item["evidence"]) for item in evidence
    }
    asks = [
        json.loads(line) for line in (folder / "queries.dev.jsonl").read_text("utf-8").splitlines()
    ]
    return {
        ask["id"]: Ask(ask["query"], literals[ask["id"]], frozenset(ask["relevant"]))
        for ask in asks
        if literals.get(ask["id"])
    }


def compare(folder: Path, data_dir: Path | None) -> list[dict[str, Any]]:
    """Return what both sides show for each question of a set."""
    fields = FrontmatterFields(category_from_path=CATEGORY_FROM_PATH.get(folder.name, 2))
    place = data_dir / folder.name if data_dir else None
    rows = []
    with KnowledgeBase.open(folder / "kb", fields=fields, data_dir=place) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
        ten = create_lookup_knowledge_graph(
            kb, record=None, options=LookupOptions(k=10, l1_timeout=60)
        )
        hybrid = UsualHybrid(kb, kb.data_folder)
        for question_id, ask in read_asks(folder).items():
            text, result = answer(graph, ask.query)
            chunks = hybrid.search(ask.query, len(text))
            ranked = [match["entry_id"] for match in ten.invoke({"query": ask.query})["matches"]]
            rows.append(
                {
                    "id": question_id,
                    "chars": len(text),
                    "shown": shows(text, ask.evidence),
                    "first": shows(first_match(result), ask.evidence),
                    "page": any(match["entry_id"] in ask.relevant for match in result["matches"]),
                    "nDCG@10": measure(ranked, ask.relevant)[3],
                    "hybrid shown": shows("\n".join(chunks), ask.evidence),
                    "hybrid first": shows(chunks[0] if chunks else "", ask.evidence),
                    "hybrid page": bool(set(hybrid.entries[:5]) & ask.relevant),
                    "hybrid nDCG@10": measure(hybrid.entries, ask.relevant)[3],
                    "level": result["relevance"]["level"],
                }
            )
    return rows


COLUMNS = (
    "shown", "first", "page", "nDCG@10", "hybrid shown", "hybrid first",
    "hybrid page", "hybrid nDCG@10", "chars",
)  # fmt: skip


def table_row(label: str, rows: Sequence[dict[str, Any]]) -> str:
    means = [sum(row[column] for row in rows) / len(rows) for column in COLUMNS]
    cells = (f"{mean:>16.0f}" if mean > 1 else f"{mean:>16.3f}" for mean in means)
    return f"{label:<14}{len(rows):>5}" + "".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = arguments.sets or sorted(path.parent.name for path in arguments.folder.glob("*/kb"))
    found = {}
    print(f"{'':<19}" + "".join(f"{name:>16}" for name in COLUMNS))
    for name in names:
        found[name] = compare(arguments.folder / name, arguments.data_dir)
        print(table_row(name, found[name]), flush=True)
    english = [row for name, rows in found.items() if not name.endswith("_zh") for row in rows]
    if english:
        print(table_row("English", english))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
