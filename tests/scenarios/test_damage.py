"""Damaged copies of an embedded index: no other answer without a word, no abort, and each is
rebuilt.

`python tests/scenarios/test_damage.py 500` damages 500 copies and prints the figures.
"""

import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.data_folder import DATA_FOLDER
from langchain_lookup_knowledge.durable import copy_folder, data_blocks, opened

QUERIES = ("refund of a parcel", "how many days for topic 7", "things that start on day 30")
KINDS = ("bit", "bits", "truncated", "deleted", "replaced", "zeros")


def answers(folder: Path, *, sync: bool) -> dict[str, Any]:
    """Return the matches of each query, and whether L1 says that something is wrong."""
    with KnowledgeBase.open(folder, embedding=WordEmbeddings(), sync=sync) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None)
        found = [graph.invoke({"query": query}) for query in QUERIES]
        return {
            "matches": [
                [(m["entry_id"], m["snippet"], m["score"], m["similarity"]) for m in r["matches"]]
                for r in found
            ],
            "reported": any(r["l1"]["status"] != "ok" for r in found),
            "index": kb.health()["index"],
        }


def make(folder: Path) -> dict[str, Any]:
    """Make a small knowledge base with an index, and return its answers."""
    texts = {
        f"topic{number}.md": f"---\ntitle: Topic {number}\nkeywords: [topic {number}]\n---\n"
        f"Topic {number} is about a parcel. It takes {number + 3} days, from day {number}.\n\n"
        f"## Details\n\nA refund of topic {number} starts on day {number * 3}.\n"
        for number in range(12)
    }
    KnowledgeBase.open(write_files(folder, texts), embedding=WordEmbeddings()).close()
    return answers(folder, sync=True)


def blocks(path: Path) -> list[tuple[int, int]]:
    with opened(path) as descriptor:
        return [(position, len(block)) for position, block in data_blocks(descriptor)]


def damage(index: Path, rng: random.Random) -> str:
    """Damage one file of an index, and say how."""
    generation = index / (index / "CURRENT").read_text()
    files = sorted(path for path in generation.rglob("*") if path.is_file())
    path = rng.choice([index / "CURRENT", generation / "manifest.json", *files])
    kind = rng.choice(KINDS)
    size = path.stat().st_size
    with path.open("r+b") as file:
        if kind in ("bit", "bits", "zeros"):
            held = blocks(path)
            for _ in range(1 if kind == "bit" else 20):
                start, length = rng.choice(held) if held else (0, min(size, 4096))
                written = [at for at in range(start, start + length) if _byte(file, at)]
                at = rng.choice(written or [start])
                byte = _byte(file, at)
                file.seek(at)
                file.write(bytes([0 if kind == "zeros" else byte ^ (1 << rng.randrange(8))]))
        elif kind == "truncated":
            file.truncate(rng.randrange(size) if size else 0)
    if kind == "deleted":
        path.unlink()
    elif kind == "replaced":
        other = rng.choice([one for one in files if one != path])
        path.unlink()
        shutil.copyfile(other, path)
    return f"{kind} {path.relative_to(index)}"


def _byte(file: Any, at: int) -> int:
    file.seek(at)
    return (file.read(1) or b"\0")[0]


def examine(whole: Path, copy: Path, expected: dict[str, Any], seed: int) -> Counter[str]:
    """Damage a copy, open it twice as a reader, and once to rebuild it."""
    shutil.rmtree(copy, ignore_errors=True)
    copy_folder(whole, copy)
    copy_folder(whole / DATA_FOLDER, copy / DATA_FOLDER)
    what = damage(copy / DATA_FOLDER / "index", random.Random(seed))
    figures: Counter[str] = Counter(copies=1)
    for _ in range(2):
        found = answers(copy, sync=False)
        same = found["matches"] == expected["matches"]
        if found["reported"]:
            figures["reported"] += 1
        else:
            figures["same answers" if same else "silently different"] += 1
        if not same and not found["reported"]:
            print(f"seed {seed}: {what}: another answer", file=sys.stderr)
    with KnowledgeBase.open(copy, embedding=WordEmbeddings(), sync=False) as kb:
        kb.sync(rebuild=True)
    figures["rebuilt"] += answers(copy, sync=False) == expected
    return figures


def examine_many(count: int, folder: Path) -> Counter[str]:
    """Damage copies in a process of its own, and go on in another one if that aborts."""
    total: Counter[str] = Counter()
    seed = 0
    while seed < count:
        worker = subprocess.Popen(
            [sys.executable, __file__, str(seed), str(count), str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        for line in worker.communicate()[0].splitlines():
            total += Counter(json.loads(line))
            seed += 1
        if worker.returncode:
            print(f"seed {seed}: the process ended with {worker.returncode}", file=sys.stderr)
            total += Counter(copies=1, aborts=1)
            seed += 1
    return total


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_no_damage_changes_an_answer_or_ends_the_process(tmp_path):
    figures = examine_many(100, tmp_path)
    assert (figures["silently different"], figures["aborts"]) == (0, 0)
    assert figures["rebuilt"] == figures["copies"]


@pytest.mark.slow
def test_a_damaged_copy_says_so_and_is_rebuilt_when_it_is_opened(tmp_path, caplog):
    """A few cases within this process, as far as no file is opened that could end it."""
    expected = make(tmp_path / "whole")
    for seed in range(12):
        copy = tmp_path / f"copy{seed}"
        copy_folder(tmp_path / "whole", copy)
        copy_folder(tmp_path / "whole" / DATA_FOLDER, copy / DATA_FOLDER)
        what = damage(copy / DATA_FOLDER / "index", random.Random(seed))
        found = answers(copy, sync=False)
        assert found["matches"] == expected["matches"] or found["reported"], what
        assert answers(copy, sync=True) == expected, what


def main() -> None:
    given = sys.argv[1:]
    if len(given) == 1:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            print(dict(examine_many(int(given[0]), Path(folder))))
        return
    logging.disable(logging.CRITICAL)
    folder = Path(given[2])
    expected = make(folder / f"whole{given[0]}")
    for seed in range(int(given[0]), int(given[1])):
        found = examine(folder / f"whole{given[0]}", folder / "copy", expected, seed)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
