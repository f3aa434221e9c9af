"""A sync that is killed at any moment leaves the old state or the new one, and the next sync
repairs the rest.
"""

import random
import subprocess
import sys
import time

import pytest
from conftest import TESTS, WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.indexing import passages as passages_of

ROUNDS = 3
SYNC = """
import sys
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase
kb = KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings(), sync=False)
print("reading done", flush=True)
for _ in range(100):
    kb.sync(rebuild=True)
"""


def edition(number):
    return {
        f"{i}.md": f"# Entry {i}\n\nedition{number} of entry{i}.\n\n## More\n\nSome text.\n"
        for i in range(60)
    }


@pytest.mark.slow
@pytest.mark.process
def test_kill_during_sync(tmp_path):
    rng = random.Random(7)
    folder = write_files(tmp_path / "kb", edition(0))
    KnowledgeBase.open(folder, embedding=WordEmbeddings()).close()
    for round_ in range(1, ROUNDS + 1):
        write_files(folder, edition(round_))
        command = [sys.executable, "-c", SYNC, str(folder), str(TESTS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(rng.uniform(0, 0.6))
            writer.kill()

        with KnowledgeBase.open(folder, embedding=WordEmbeddings(), sync=False) as kb:
            result = create_lookup_knowledge_graph(kb, record=None).invoke(
                {"query": "edition of entry7"}
            )
            assert result["l1"]["status"] == "ok", result["l1"]
            texts = {
                match["snippet"].split()[0]
                for match in result["matches"]
                if "L1" in match["layers"]
            }
            assert texts in ({f"edition{round_ - 1}"}, {f"edition{round_}"})
        with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
            assert kb._syncing.state.failure is None
            assert kb.sync().embedded == 0
            result = create_lookup_knowledge_graph(kb, record=None).invoke(
                {"query": "edition of entry7"}
            )
            assert {match["snippet"].split()[0] for match in result["matches"]} == {
                f"edition{round_}"
            }
            assert kb.index._opened().shard.info().points_count == len(kb.entries)
        assert len(list((folder / ".lookup-knowledge/index").glob("generation-*"))) <= 2


EDIT = """
import sys, time
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from langchain_lookup_knowledge import KnowledgeBase
kb = KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings(), sync=False)
print("reading done", flush=True)
started = time.monotonic()
kb.sync()
print(time.monotonic() - started, flush=True)
"""


TOPICS = "container network volume image memory port secret backup cluster log".split()


def manual(rng):
    """Return 300 pages of ten sections about the limits of things."""
    return {
        f"{page:03}.md": f"# Page {page}\n"
        + "".join(
            f"\n## Limit {section}\n\nTo limit the {rng.choice(TOPICS)} of a {rng.choice(TOPICS)}, "
            f"set {rng.choice(TOPICS)}-{page}-{section}. It is read at every start.\n"
            for section in range(10)
        )
        for page in range(300)
    }


def edit(folder, rng, round_):
    """Change, add and remove some files."""
    files = sorted(folder.rglob("*.md"))
    for path in rng.sample(files, 5):
        path.write_text(path.read_text("utf-8") + f"\n\n## Round {round_}\n\nAn edit.\n", "utf-8")
    rng.choice(files).unlink()
    write_files(folder, {f"new-{round_}.md": f"# Round {round_}\n\nA page.\n"})


@pytest.mark.nightly
def test_fifty_kills_during_syncs_of_a_large_folder(tmp_path):
    rng = random.Random(7)
    folder = write_files(tmp_path / "kb", manual(rng))
    command = [sys.executable, "-c", EDIT, str(folder), str(TESTS)]
    KnowledgeBase.open(folder, embedding=WordEmbeddings()).close()
    edit(folder, rng, 0)
    seconds = float(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    )
    killed, passages = 0, {}
    for round_ in range(1, 51):
        edit(folder, rng, round_)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            writer.stdout.readline()
            time.sleep(rng.uniform(0, seconds))
            writer.kill()
            killed += writer.wait() != 0
        with KnowledgeBase.open(folder, embedding=WordEmbeddings(), sync=False) as kb:
            result = create_lookup_knowledge_graph(kb, record=None).invoke(
                {"query": "limit the memory of a container"}
            )
            assert result["l1"]["status"] == "ok", result["l1"]
            kb.sync()
            passages |= {
                entry: len(passages_of(entry, kb.embedding))
                for entry in kb.entries
                if entry not in passages
            }
            assert kb.index._opened().shard.info().points_count == sum(
                passages[entry] for entry in kb.entries
            )
            assert set(kb.index.contents().digests) == {entry.entry_id for entry in kb.entries}
    assert killed > 25
