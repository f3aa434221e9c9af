"""Many threads and processes look up while another process syncs: every answer is of one state, and the new one comes soon."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import WordEmbeddings, write_files

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph

THREADS, PROCESSES, SYNCS = 8, 4, 4
SECONDS = 2.0
"""How soon after a sync each reader must see the new state."""
READER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_readers import WordEmbeddings, read
from langchain_lookup_knowledge import KnowledgeBase
stop = Path(sys.argv[3])
with KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings(), sync=False) as kb:
    read(kb, stop.exists, lambda seen: print(*seen, flush=True))
"""


def edition(number):
    return {f"{i}.md": f"# Entry {i}\n\nedition{number} of entry{i}.\n" for i in range(40)}


def read(kb, stopped, note):
    """Look up until stopped; note when which edition of the passages, and of L0's texts, was seen first."""
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=30))
    seen = set()
    while not stopped():
        result = graph.invoke({"query": "edition of the entry"})
        assert result["l1"]["status"] == "ok", result["l1"]
        editions = {match["snippet"].split()[0] for match in result["matches"]}
        assert len(editions) == 1, editions
        for found in (f"L1-{editions.pop()}", f"L0-{kb.excerpt('0.md').split()[3]}"):
            if found not in seen:
                seen.add(found)
                note((time.time(), found))


@pytest.mark.slow
def test_readers_see_the_old_state_or_the_new_one_within_two_seconds(tmp_path):
    folder, stop = write_files(tmp_path / "kb", edition(0)), tmp_path / "stop"
    with (
        KnowledgeBase.open(folder, embedding=WordEmbeddings()) as writer,
        KnowledgeBase.open(folder, embedding=WordEmbeddings()) as shared,
    ):
        notes = {name: [] for name in range(THREADS)}
        threads = [threading.Thread(target=read, args=(shared, stop.exists, notes[i].append)) for i in range(THREADS)]
        command = [sys.executable, "-c", READER, str(folder), str(Path(__file__).parent), str(stop)]
        readers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
        for reader in readers:
            assert "edition0" in reader.stdout.readline()
        for thread in threads:
            thread.start()
        ends = []
        for number in range(1, SYNCS + 1):
            write_files(folder, edition(number))
            assert writer.sync().embedded == 40
            ends.append(time.time())
            time.sleep(SECONDS + 0.5)
        stop.touch()
        for thread in threads:
            thread.join()
    for name, reader in enumerate(readers):
        output, _ = reader.communicate(timeout=30)
        assert reader.returncode == 0
        notes[f"process {name}"] = [(float(moment), seen) for moment, seen in map(str.split, output.splitlines())]
    for name, seen in notes.items():
        first = {found: moment for moment, found in seen}
        for number, end in enumerate(ends, start=1):
            for layer in ("L0", "L1"):
                assert first[f"{layer}-edition{number}"] - end < SECONDS, (name, layer, number)
