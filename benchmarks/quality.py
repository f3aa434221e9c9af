"""How well lookups find the right page: layers, the usual hybrid, and the whole pipeline, on questions with known answers.

`python benchmarks/quality.py KB QUESTIONS.jsonl [--data-dir DIR] [--category-from-path N]`; a question is a line
{"id", "query", "relevant": [entry ids]}, with no entry id where the knowledge base has no answer.

Over answerable questions, one result an entry: success@1, success@5, MRR@10, nDCG@10 (binary), recall@10. Then what the hints
are worth: how often there is a specific one, whether the right page is among the hinted entries, and how often the filter
fired, hid every right page, or was relaxed. Last, what is claimed for questions without an answer.
"""

import argparse
import json
import math
from collections import Counter
from pathlib import Path

from langchain_lookup_knowledge import (
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
    embeddings,
)
from langchain_lookup_knowledge.knowledge_base import SEARCH_LIMIT


def scores(ranked, relevant):
    hits = [entry_id in relevant for entry_id in ranked[:10]]
    gain = sum(hit / math.log2(place + 2) for place, hit in enumerate(hits))
    ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(relevant))))
    first = next((1 / (place + 1) for place, hit in enumerate(hits) if hit), 0.0)
    return hits[:1] == [True], any(hits[:5]), first, gain / ideal, sum(hits) / len(relevant)


def report(name, runs, questions):
    rows = [scores(runs[q["id"]], set(q["relevant"])) for q in questions if q["relevant"]]
    print(f"{name:<34}" + "".join(f"{sum(column) / len(rows):8.3f}" for column in zip(*rows, strict=True)))


def usual_hybrid(lists):
    """Return entries by reciprocal rank fusion of BM25 by entry and dense passages, equal weights."""
    fused = Counter()
    for name in ("dense", "entry"):
        for rank, entry_id in enumerate(dict.fromkeys(hit.entry_id for hit in lists[name]), start=1):
            fused[entry_id] += 1 / (60 + rank)
    return [entry_id for entry_id, _ in sorted(fused.items(), key=lambda item: (-item[1], item[0]))]


def unique(hits):
    return list(dict.fromkeys(hit.entry_id for hit in hits))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--category-from-path", type=int, default=0)
    arguments = parser.parse_args()
    questions = [json.loads(line) for line in arguments.questions.read_text("utf-8").splitlines()]
    fields = FrontmatterFields(category_from_path=arguments.category_from_path)
    kb = KnowledgeBase.open(arguments.folder, fields=fields, data_dir=arguments.data_dir)
    categories = {entry.entry_id: set(entry.categories) for entry in kb.entries}

    lists = {}
    for question in questions:
        vector = embeddings.embed_query(kb.embedding, question["query"])
        (lists[question["id"]],) = kb.index.search(vector, question["query"], [None], SEARCH_LIMIT)
    results = {
        mode: {
            q["id"]: create_lookup_knowledge_graph(
                kb, record=None, options=LookupOptions(k=10, filter_mode=mode, l1_timeout=60)
            ).invoke({"query": q["query"]})
            for q in questions
        }
        for mode in ("guarded", "strict", "off")
    }
    alone = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(k=10, l1_enabled=False))

    answerable = sum(bool(q["relevant"]) for q in questions)
    print(f"{arguments.folder}: {len(kb.entries)} entries, {answerable} answerable questions of {len(questions)}")
    print(f"{'':<34}" + "".join(f"{name:>8}" for name in ("s@1", "s@5", "MRR@10", "nDCG@10", "R@10")))
    report("L0 alone", {q["id"]: ids(alone.invoke({"query": q["query"]})) for q in questions}, questions)
    for name in ("dense", "entry", "passage", "frontmatter"):
        report(f"L1 {name}", {i: unique(found[name]) for i, found in lists.items()}, questions)
    report("usual hybrid: RRF(entry, dense)", {i: usual_hybrid(found) for i, found in lists.items()}, questions)
    fused = {q["id"]: kb.retrieve(q["query"], [None])[0] for q in questions}
    report("L1 fused", {i: [c["entry_id"] for c in found] for i, found in fused.items()}, questions)
    for mode, found in results.items():
        report(f"whole pipeline, filter {mode}", {i: ids(result) for i, result in found.items()}, questions)

    hint_statistics(results["guarded"], questions, categories)


def ids(result):
    return [match["entry_id"] for match in result["matches"]]


def hint_statistics(results, questions, categories):
    counts = Counter()
    claims = Counter()
    for question in questions:
        result, relevant = results[question["id"]], set(question["relevant"])
        if not relevant:
            claims[result["relevance"]["level"]] += 1
            continue
        hints = result["hints"]
        counts["answerable"] += 1
        counts[f"level {result['relevance']['level']}"] += 1
        if any(term["specific"] for term in hints["terms"]):
            counts["specific hint"] += 1
            counts["right page hinted"] += bool(relevant & {entry["entry_id"] for entry in hints["entries"]})
        if result["filter"]["category"] is not None:
            counts["filter fired"] += 1
            counts["filter excluded every right page"] += not any(
                result["filter"]["category"] in categories[entry_id] for entry_id in relevant
            )
            counts["filter relaxed"] += result["filter"]["relaxed"]
    print("answerable: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print("unanswerable, level claimed: " + ", ".join(f"{level} {count}" for level, count in sorted(claims.items())))


if __name__ == "__main__":
    main()
