"""L0 on random input: 1,000 random knowledge bases and 10,000 random Unicode queries; no exception, and the slowest call."""

import random
import sys
import time

from langchain_lookup_knowledge.documents import Entry
from langchain_lookup_knowledge.hints import HintIndex

SCRIPTS = [
    (0x20, 0x7F),
    (0xA0, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0xE00, 0xE7F),
    (0x2000, 0x206F),
]
SCRIPTS += [(0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xFF00, 0xFFEF), (0x1F300, 0x1F6FF), (0, 0x10FFFF)]


def text(rng, longest):
    low, high = rng.choice(SCRIPTS)
    return "".join(
        chr(rng.randint(low, high)) if rng.random() < 0.8 else rng.choice(" .-_/#'")
        for _ in range(rng.randint(0, longest))
    )


def knowledge_base(rng):
    return [
        Entry(
            f"{i}.md",
            text(rng, 20),
            tuple(text(rng, 12) for _ in range(3)),
            (text(rng, 5),),
            (text(rng, 9),),
            text(rng, 200),
        )
        for i in range(rng.randint(1, 30))
    ]


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    slowest = found = 0.0
    for _ in range(1_000):
        entries = knowledge_base(rng)
        index = HintIndex(entries)
        for _ in range(10):
            words = [rng.choice([*entry.keywords, entry.title]) for entry in rng.choices(entries, k=3)]
            query = " ".join([text(rng, 200), *words])
            start = time.perf_counter()
            hints = index.hints(query)
            slowest = max(slowest, time.perf_counter() - start)
            found += len(hints["terms"])
    print(
        f"1,000 knowledge bases, 10,000 queries, {found / 10_000:.1f} terms a query, slowest call {slowest * 1000:.1f} ms"
    )


if __name__ == "__main__":
    main()
