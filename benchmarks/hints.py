"""L0 against keyword matchers: time a query as the number of keywords grows, in one run.

`python benchmarks/hints.py [--sizes 1000 10000 100000 1000000]`, with `pip install -e ".[bench]"`.

All of them scan the same queries. `hints` does everything a lookup needs (spans, fields,
specificity, domains, ranked entries); the others only find keywords: ahocorasick-rs, a plain
dictionary of token n-grams, flashtext2, and a loop over `keyword in query`.
"""

import argparse
import random
import statistics
import time
import tracemalloc

import ahocorasick_rs
import flashtext2

from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.reading.entry import Entry

KEYWORDS_AN_ENTRY = 10
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def vocabulary(rng):
    words = {"".join(rng.choices(LETTERS, k=rng.randint(4, 10))) for _ in range(50_000)}
    chinese = {
        "".join(chr(rng.randint(0x4E00, 0x5FA5)) for _ in range(rng.randint(2, 4)))
        for _ in range(20_000)
    }
    return sorted(words), sorted(chinese)


def keywords(rng, count, words, chinese):
    """Make keywords of one to three words; of one word at most 5,000, so that a query meets a few
    and not one a word.
    """
    made = set(rng.sample(words, min(5_000, count // 10)))
    while len(made) < count:
        if rng.random() < 0.2:
            made.add("".join(rng.choices(chinese, k=2)))
        else:
            made.add(" ".join(rng.choices(words, k=rng.choice([2, 3]))))
    return sorted(made)


def queries(rng, known, words, chinese):
    """Make queries of 5 to 60 words of the same vocabulary; each is used once a round, so that no
    cache is warm.
    """
    made = []
    for length in [5, 10, 20, 40, 60] * 200:
        parts = [
            rng.choice(known) if rng.random() < 0.05 else rng.choice(words) for _ in range(length)
        ]
        if length == 20:
            parts.append("".join(rng.choices(chinese, k=8)))
        made.append(" ".join(parts))
    return made


def microseconds(scan, texts, rounds=3):
    """Return the time a text, of the fastest round over all texts."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for text in texts:
            scan(text)
        best = min(best, time.perf_counter() - start)
    return best / len(texts) * 1e6


def plain_dictionary(known):
    """Return a scan that looks up each run of one to three words in a dictionary, and nothing
    else.
    """
    lengths, places = {}, {tuple(keyword.split()): number for number, keyword in enumerate(known)}
    for words in places:
        lengths.setdefault(words[0], set()).add(len(words))

    def scan(text):
        words = text.lower().split()
        runs = (
            (i, tuple(words[i : i + n]))
            for i, word in enumerate(words)
            for n in lengths.get(word, ())
        )
        return [(i, len(run), places[run]) for i, run in runs if run in places]

    return scan


def build(make):
    tracemalloc.start()
    start = time.perf_counter()
    built = make()
    seconds = time.perf_counter() - start
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    start = time.perf_counter()
    make()
    return built, min(seconds, time.perf_counter() - start), megabytes


def measure(size, rng):
    words, chinese = vocabulary(rng)
    known = keywords(rng, size, words, chinese)
    texts = queries(rng, known, words, chinese)
    long_text = " ".join(rng.choices(words, k=2600))[:20_000]
    shuffled = rng.sample(known, len(known))
    groups = [shuffled[i : i + KEYWORDS_AN_ENTRY] for i in range(0, size, KEYWORDS_AN_ENTRY)]
    entries = [
        Entry(f"{i}.md", f"Entry {i}", tuple(group), (f"c{i % 20}",), (), "")
        for i, group in enumerate(groups)
    ]

    index, seconds, megabytes = build(lambda: HintIndex(entries))
    automaton = ahocorasick_rs.AhoCorasick(known)
    flash = flashtext2.KeywordProcessor(case_sensitive=False)
    flash.add_keywords_from_iter(known)
    found = [len(index.hints(text)["terms"]) for text in texts]

    ours = microseconds(index.hints, texts)
    bare = microseconds(
        lambda text: automaton.find_matches_as_indexes(text, overlapping=True), texts
    )
    table = float("nan")
    if size <= 100_000:
        as_table = ahocorasick_rs.AhoCorasick(
            known, implementation=ahocorasick_rs.Implementation.DFA
        )
        table = microseconds(
            lambda text: as_table.find_matches_as_indexes(text, overlapping=True), texts
        )
    row = [size, ours, bare, ours / bare, table, microseconds(plain_dictionary(known), texts)]
    row.append(microseconds(flash.extract_keywords, texts))
    row.append(microseconds(lambda text: [k for k in known if k in text], texts[:5], 1))
    row += [
        microseconds(index.hints, [long_text]) / 1000,
        seconds,
        megabytes,
        statistics.mean(found),
    ]
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, 1_000_000])
    arguments = parser.parse_args()
    print(
        "ahocorasick-rs in its default form (ratio) and as a full table (DFA); microseconds a query"
    )
    print(
        "keywords     hints     ahocorasick  ratio     DFA  n-grams  flashtext2     naive  "
        "20 kB ms  build s  build MB  terms"
    )
    rows = [measure(size, random.Random(7)) for size in arguments.sizes]
    for (
        size,
        ours,
        bare,
        ratio,
        table,
        ngrams,
        flash,
        naive,
        long_ms,
        seconds,
        megabytes,
        found,
    ) in rows:
        print(
            f"{size:8d} {ours:10.0f} {bare:15.0f} {ratio:6.1f} {table:7.0f} {ngrams:8.0f} "
            f"{flash:11.0f} {naive:9.0f} "
            f"{long_ms:9.1f} {seconds:8.1f} {megabytes:9.0f} {found:6.1f}"
        )
    print(
        f"growth from {rows[0][0]} to {rows[-1][0]} keywords: {rows[-1][1] / rows[0][1]:.1f} times"
    )


if __name__ == "__main__":
    main()
