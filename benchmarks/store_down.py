"""Ask questions with known answers while the Qdrant server is down: ours, and a plain vector store.

`python benchmarks/store_down.py FOLDER QUESTIONS.jsonl`: of the answerable questions, how many get
an answer, and how many have the right entry among at most five matches.
"""

import sys
import tempfile
from pathlib import Path

from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from langchain_lookup_knowledge import (
    FastEmbedModel,
    KnowledgeBase,
    QdrantIndex,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.evaluation.measuring import read_questions

NOBODY = "http://127.0.0.1:9"
"""A port on which nothing listens."""


def main(folder: str, questions: str) -> None:
    asked = [question for question in read_questions(Path(questions)) if question.relevant]
    with tempfile.TemporaryDirectory() as data:
        index = QdrantIndex(NOBODY, "handbook")
        with KnowledgeBase.open(folder, index=index, data_dir=data) as kb:
            graph = create_lookup_knowledge_graph(kb, record=None)
            results = [(question, graph.invoke({"query": question.query})) for question in asked]
    answered = [(question, result) for question, result in results if result["matches"]]
    right = sum(
        any(match["entry_id"] in question.relevant for match in result["matches"])
        for question, result in answered
    )
    slowest = max(result["l1"]["elapsed_ms"] for _, result in results)
    print(f"ours: {len(answered)} of {len(asked)} answered, {right} with the right entry")
    print(f"ours: at most {slowest:.0f} ms for the store that does not answer")
    client = QdrantClient(NOBODY, check_compatibility=False)
    failed = 0
    for question in asked:
        try:
            store = QdrantVectorStore(
                client, "handbook", FastEmbedModel(), validate_collection_config=False
            )
            store.similarity_search(question.query)
        except Exception as error:  # noqa: BLE001  (whatever it raises, the agent gets no answer)
            failed += 1
            last = f"{type(error).__name__}: {error}"
    print(f"vector store alone: {failed} of {len(asked)} raise, the last one {last}")


if __name__ == "__main__":
    main(*sys.argv[1:])
