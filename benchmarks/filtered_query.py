"""A filtered vector search in the embedded index against the Qdrant client's local mode, on the
same vectors.

`python benchmarks/filtered_query.py [--sizes 1000 10000 100000]`

Random unit vectors of 384 dimensions, each in one of 20 categories, so that the filter keeps 5 %.
Each engine is built in one process and measured in another, so that opening and memory are those of
a fresh start. Times of a query are medians.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

DIMENSIONS, CATEGORIES, LIMIT, BATCH = 384, 20, 10, 1000


def vectors(size):
    made = np.random.default_rng(7).normal(size=(size, DIMENSIONS)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def batches(size):
    made = vectors(size)
    for start in range(0, size, BATCH):
        yield range(start, min(size, start + BATCH)), made[start : start + BATCH].tolist()


def build_ours(folder, size):
    from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
    from langchain_lookup_knowledge.l1.stores.vector_index import Contents, Point

    def points():
        for numbers, rows in batches(size):
            yield [
                Point(
                    f"{i}.md",
                    0,
                    row,
                    {"passage": f"text {i}"},
                    {"page_content": "", "metadata": metadata(i)},
                )
                for i, row in zip(numbers, rows, strict=True)
            ]

    fingerprint = {"model": "random", "dimensions": DIMENSIONS}
    EmbeddedIndex(folder).write(
        Contents(fingerprint, {f"{i}.md": "" for i in range(size)}), [], points()
    )


def metadata(number):
    return {"entry_id": f"{number}.md", "categories_key": [f"c{number % CATEGORIES}"]}


def open_ours(folder):
    from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
    from langchain_lookup_knowledge.l1.stores.vector_index import CATEGORY_FIELD

    index = EmbeddedIndex(folder)
    index.warm()
    conditions = [(CATEGORY_FIELD, ["c3"])]
    return lambda vector: [
        hit.entry_id for hit in index.search(vector, "", [conditions], LIMIT).lists[0]["dense"]
    ]


def build_local(folder, size):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection(
        "kb", models.VectorParams(size=DIMENSIONS, distance=models.Distance.COSINE)
    )
    client._client.collections["kb"].storage.storage.execute(
        "PRAGMA synchronous = OFF"
    )  # or it takes half an hour
    for numbers, rows in batches(size):
        pairs = zip(numbers, rows, strict=True)
        client.upsert(
            "kb",
            [
                models.PointStruct(id=i, vector=row, payload={"metadata": metadata(i)})
                for i, row in pairs
            ],
        )
    client.close()


def open_local(folder):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    match = models.FieldCondition(
        key="metadata.categories_key", match=models.MatchValue(value="c3")
    )
    condition = models.Filter(must=[match])

    def query(vector):
        found = client.query_points(
            "kb", query=vector, query_filter=condition, limit=LIMIT, with_payload=True
        ).points
        return [point.payload["metadata"]["entry_id"] for point in found]

    return query


def measure(open_engine, folder):
    """Return seconds to open, median milliseconds a query, megabytes resident at most, and what was
    found.
    """
    queries = vectors(20).tolist()
    start = time.perf_counter()
    query = open_engine(folder)
    opened = time.perf_counter() - start
    found = [query(vector) for vector in queries]
    times = []
    for vector in queries:
        start = time.perf_counter()
        query(vector)
        times.append(time.perf_counter() - start)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "open": opened,
        "query": statistics.median(times) * 1000,
        "memory": resident,
        "found": found,
    }


def run(engine, step, folder, size):
    command = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--run",
        engine,
        step,
        str(folder),
        str(size),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        engine, step, folder, size = arguments.run
        if step == "build":
            {"ours": build_ours, "local": build_local}[engine](Path(folder), int(size))
        else:
            print(
                json.dumps(measure({"ours": open_ours, "local": open_local}[engine], Path(folder)))
            )
        return
    print("passages            query ms           open s      memory MB   same answers")
    for size in arguments.sizes:
        figures = {}
        with tempfile.TemporaryDirectory() as folder:
            for engine in ("ours", "local"):
                start = time.perf_counter()
                run(engine, "build", Path(folder) / engine, size)
                figures[engine] = json.loads(run(engine, "measure", Path(folder) / engine, size))
                figures[engine]["build"] = time.perf_counter() - start
        ours, local = figures["ours"], figures["local"]
        same = [
            len(set(a) & set(b)) / LIMIT
            for a, b in zip(ours.pop("found"), local.pop("found"), strict=True)
        ]
        for engine, measured in figures.items():
            print(
                f"{size:8d} {engine:6} {measured['query']:12.2f} {measured['open']:16.3f} "
                f"{measured['memory']:14.0f}"
            )
        ratios = [local[name] / ours[name] for name in ("query", "open", "memory")]
        print(
            f"{'':8} ratio  {ratios[0]:11.0f}x {ratios[1]:15.1f}x {ratios[2]:13.1f}x "
            f"{statistics.mean(same):13.3f}"
        )


if __name__ == "__main__":
    main()
