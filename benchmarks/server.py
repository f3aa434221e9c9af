"""What a lookup on a Qdrant server costs over the bare batch query, in one run.

`python benchmarks/server.py [--pages N] [--rounds N] [--grpc-port PORT]`

The server is that of QDRANT_URL (with QDRANT_API_KEY), or else the stand-in of the tests, whose
own time is most of what is measured. bare: the batch of queries that a lookup sends, through the
client alone. first: `QdrantIndex.search` and the payloads of ten passages that are not in memory
yet. again: the same with passages that are, which is one request. whole: the lookup, with hints,
merge and everything but the record. Each for one caller and for 16; medians in ms.
"""

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l1.fusion import LIST_LENGTH
from langchain_lookup_knowledge.l1.stores.payloads import KeptPayloads
from langchain_lookup_knowledge.l1.stores.qdrant.index import MAX_PAYLOADS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TEXTS = [Path(__file__).parents[1] / name for name in ("notebooks/handbook", "docs")]


def write_pages(folder: Path, count: int) -> list[str]:
    """Write pages made from a seed, and return a question for each of the first hundred."""
    chance = random.Random(7)
    paths = sorted(path for folder in TEXTS for path in folder.rglob("*.md"))
    text = " ".join(path.read_text("utf-8") for path in paths)
    sentences = re.findall(r"[A-Z][a-z, ]{30,150}\.", text)
    questions = []
    for number in range(count):
        chosen = chance.choices(sentences, k=10)
        (folder / f"{number}.md").write_text(f"# Page {number}\n\n{' '.join(chosen)}\n")
        questions.append(chosen[0])
    return questions[:100]


def milliseconds(calls, rounds, callers):
    """Return the median of each of the calls, which take turns."""

    def timed(turn):
        started = time.perf_counter()
        calls[turn % len(calls)](turn // len(calls))
        return 1000 * (time.perf_counter() - started)

    with ThreadPoolExecutor(callers) as pool:
        taken = list(pool.map(timed, range(rounds * len(calls))))
    return [statistics.median(taken[start :: len(calls)]) for start in range(len(calls))]


def read_ten(answer):
    answer.payloads([hit.point_id for hit in answer.lists[0].lists["dense"][:10]])


def measure(kb, index, questions, rounds):
    vectors = [kb.embedding.embed_query(question) for question in questions]
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=60))
    batches, query = [], index.connection.query
    index.connection.query = lambda requests: batches.append(requests) or query(requests)
    for vector, question in zip(vectors, questions, strict=True):
        read_ten(index.search(vector, question, [[]], LIST_LENGTH))
    index.connection.query = query

    def bare(number):
        index.client.query_batch_points(index.collection, batches[number % len(batches)])

    def again(number):
        place = number % len(questions)
        read_ten(index.search(vectors[place], questions[place], [[]], LIST_LENGTH))

    def first(number):
        index.payloads = KeptPayloads(MAX_PAYLOADS)
        again(number)

    def whole(number):
        graph.invoke({"query": questions[number % len(questions)]})

    print(f"{'':10}{'bare':>10}{'first':>10}{'again':>10}{'whole':>10}{'again/bare':>14}")
    for callers in (1, 16):
        (before,) = milliseconds([first], rounds, callers)
        index.payloads = KeptPayloads(MAX_PAYLOADS)
        for number in range(len(questions)):
            again(number)
        bare_time, again_time, whole_time = milliseconds([bare, again, whole], rounds, callers)
        shown = "".join(f"{ms:10.1f}" for ms in (bare_time, before, again_time, whole_time))
        print(f"{callers:3} caller{'s' * (callers > 1):1}{shown}{again_time / bare_time:14.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--grpc-port", type=int)
    arguments = parser.parse_args()
    url = os.environ.get("QDRANT_URL")
    grpc = {"prefer_grpc": True, "grpc_port": arguments.grpc_port} if arguments.grpc_port else {}
    if url:
        standing_in = nullcontext(None)
    else:
        from qdrant_server import QdrantServer

        standing_in = QdrantServer()
    with standing_in as server, tempfile.TemporaryDirectory() as folder:
        questions = write_pages(Path(folder), arguments.pages)
        index = QdrantIndex(
            server.url if server else url,
            f"benchmark-{uuid.uuid4().hex[:8]}",
            api_key=os.environ.get("QDRANT_API_KEY"),
            timeout=60,
            **grpc,
        )
        with KnowledgeBase.open(folder, index=index) as kb:
            try:
                kb.sync()
                measure(kb, index, questions, arguments.rounds)
            finally:
                index.client.delete_collection(index.generation() or index.collection)


if __name__ == "__main__":
    main()
