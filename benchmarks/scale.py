"""How opening, a lookup and a sync grow with the number of files: one table, with growth factors.

`python benchmarks/scale.py [--sizes 1000 10000 100000] [--folder DIR] [--no-l1]`, with
`pip install -e ".[bench]"`.

The files are made from a seed: words by Zipf's law, six keywords, 50 categories; a larger base
holds the files of a smaller one, and all are asked the same queries. Embeddings are hashes of
words, so vector search costs what it costs, but the model costs nothing and finds nothing by
meaning. Each step runs in a process of its own. Times are processor times of all its threads, which
other work on the machine changes least.
"""

import argparse
import bisect
import functools
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import psutil
from langchain_core.embeddings import Embeddings

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph

WORDS = 200_000
CATEGORIES = 50
KEYWORDS = 6
DIMENSIONS = 128
SYLLABLES = [a + b for a in "bcdfghjklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er")]


class HashedWords(Embeddings):
    """The normalized sum of a pseudo-random vector for each word."""

    def embed_query(self, text):
        vector = sum((_of_word(word) for word in re.findall(r"\w+", text)), np.zeros(DIMENSIONS))
        return (vector / (np.linalg.norm(vector) or 1)).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


@functools.lru_cache(maxsize=50_000)
def _of_word(word):
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS)


@functools.cache
def vocabulary():
    rng = random.Random(1)
    words = {"".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))): None for _ in range(2 * WORDS)}
    words = list(words)[:WORDS]
    return words, list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))


def draw(rng, count):
    """Return words by Zipf's law."""
    words, totals = vocabulary()
    return [words[bisect.bisect(totals, rng.random() * totals[-1])] for _ in range(count)]


def text_of(number):
    rng = random.Random(number)
    title, category = " ".join(draw(rng, 3)), rng.randrange(CATEGORIES)
    keywords = [" ".join(draw(rng, rng.choice((1, 2)))) for _ in range(KEYWORDS)]
    sections = [
        f"## {' '.join(draw(rng, 3))}\n\n" + " ".join(draw(rng, 50)) + ".\n" for _ in range(3)
    ]
    head = f"---\ntitle: {title}\nkeywords: [{', '.join(keywords)}]\ncategory: area {category}\n---"
    return f"{head}\n\n" + "\n".join(sections)


def path_of(folder, number):
    return folder / f"part-{number % 97:02}" / f"page-{number:06}.md"


def make(folder, size):
    for number in range(size):
        path = path_of(folder, number)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(number), encoding="utf-8")


def queries():
    """Return queries of common words, of words of titles, and of the title of one page."""
    rng = random.Random(2)
    words = vocabulary()[0]
    titles = [" ".join(draw(random.Random(number), 3)) for number in range(1000)]
    of_titles = " ".join(titles).split()
    return {
        "common words": [" ".join(rng.sample(words[:300], 4)) for _ in range(20)],
        "words of titles": [" ".join(rng.sample(of_titles, 4)) for _ in range(20)],
        "title of a page": [f"how do I use {rng.choice(titles)}" for _ in range(20)],
    }


def opened(folder, with_l1):
    """Open the folder; return the knowledge base and the seconds."""
    start = time.process_time()
    kb = KnowledgeBase.open(
        folder,
        index="from_settings" if with_l1 else None,
        embedding=HashedWords(),
        progress=False,
    )
    return kb, time.process_time() - start


def open_step(folder, with_l1):
    kb, seconds = opened(folder, with_l1)
    with kb:
        assert len(kb.entries) == int(folder.name), kb.problems[:3]
        return {"s": seconds, "MB": psutil.Process().memory_info().rss / 1e6}


def lookup_step(folder, with_l1):
    """Return the mean of a whole lookup, record included, for each kind of query; the first round
    is not measured.
    """
    kb, _ = opened(folder, with_l1)
    with kb:
        graph = create_lookup_knowledge_graph(kb)
        start = time.process_time()
        graph.invoke({"query": "first"})
        found = {"first ms": (time.process_time() - start) * 1000}
        taken = {kind: [] for kind in queries()}
        for number in range(3):
            for kind, asked in queries().items():
                for query in asked:
                    start = time.process_time()
                    result = graph.invoke({"query": query})
                    if number:
                        taken[kind].append((time.process_time() - start) * 1000)
                    assert result["l1"]["status"] in ("ok", "empty", "disabled"), result["l1"]
        found |= {f"{kind} ms": statistics.fmean(times) for kind, times in taken.items()}
        found["all ms"] = statistics.fmean(itertools.chain(*taken.values()))
        found["MB"] = psutil.Process().memory_info().rss / 1e6
        return found


def edit_step(folder, with_l1):
    """Return the seconds of a sync after one file was edited, and of one without a change."""
    kb, _ = opened(folder, with_l1)
    with kb:
        kb.sync(progress=False)
        start = time.process_time()
        kb.sync(progress=False)
        unchanged = time.process_time() - start
        path = path_of(folder, 7)
        before = path.read_text(encoding="utf-8")
        path.write_text(f"{before}\nOne more sentence of an edit.\n", encoding="utf-8")
        try:
            start = time.process_time()
            kb.sync(progress=False)
            return {"unchanged s": unchanged, "edited s": time.process_time() - start}
        finally:
            path.write_text(before, encoding="utf-8")
            kb.sync(progress=False)


STEPS = {
    "open cold": (open_step, False),
    "open again": (open_step, False),
    "lookup, L1 off": (lookup_step, False),
    "sync, L1 off": (edit_step, False),
    "build of L1": (open_step, True),
    "open with L1": (open_step, True),
    "lookup, L1 up": (lookup_step, True),
    "sync, L1 up": (edit_step, True),
}


def run(folder, size, names):
    folder = folder / str(size)
    make(folder, size)
    shutil.rmtree(folder / ".lookup-knowledge", ignore_errors=True)
    found = {}
    for name in names:
        command = [sys.executable, __file__, "--step", name, "--folder", str(folder)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        for what, value in json.loads(answer.stdout.splitlines()[-1]).items():
            found[f"{name}: {what}"] = value
        print(f"{size}: {name} done", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where the files are kept for the next run")
    parser.add_argument("--no-l1", action="store_true", help="only the steps without L1")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, with_l1 = STEPS[arguments.step]
        print(json.dumps(step(arguments.folder, with_l1)))
        return
    names = [name for name, (_, with_l1) in STEPS.items() if not (with_l1 and arguments.no_l1)]
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["XDG_STATE_HOME"] = temporary
        folder = arguments.folder or Path(temporary)
        found = [run(folder, size, names) for size in arguments.sizes]
    print(f"{'':<36}" + "".join(f"{size:>12,}" for size in arguments.sizes) + f"{'growth':>9}")
    for row in found[0]:
        values = [one[row] for one in found]
        growth = values[-1] / values[0] if values[0] else float("inf")
        print(f"{row:<36}" + "".join(f"{value:12.2f}" for value in values) + f"{growth:9.1f}")


if __name__ == "__main__":
    main()
