"""Many threads and processes look up while another process syncs: every answer is of one state, and
the new one comes soon.
"""

import subprocess
import sys
import threading
import time

import pytest
from conftest import TESTS, WordEmbeddings, write_files
from parts.readers import read

from langchain_lookup_knowledge import KnowledgeBase

THREADS, PROCESSES, SYNCS = 8, 4, 4
PATIENCE = 60.0
"""Seconds after which a reader has missed a sync for good; about one is usual."""
READER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conftest import WordEmbeddings
from parts.readers import read
from langchain_lookup_knowledge import KnowledgeBase
stop = Path(sys.argv[3])
with KnowledgeBase.open(sys.argv[1], embedding=WordEmbeddings(), sync=False) as kb:
    read(kb, stop.exists, lambda seen: print("saw", seen, flush=True))
"""


def edition(number):
    return {f"{i}.md": f"# Entry {i}\n\nedition{number} of entry{i}.\n" for i in range(40)}


def note_lines(reader, notes):
    with reader.stdout:
        for line in reader.stdout:
            notes.append(line.split()[1])


@pytest.mark.slow
@pytest.mark.process
def test_readers_see_the_old_state_or_the_new_one_and_the_new_one_soon(tmp_path):
    folder, stop = write_files(tmp_path / "kb", edition(0)), tmp_path / "stop"
    with (
        KnowledgeBase.open(folder, embedding=WordEmbeddings()) as writer,
        KnowledgeBase.open(folder, embedding=WordEmbeddings()) as shared,
    ):
        notes = [[] for _ in range(THREADS + PROCESSES)]
        command = [sys.executable, "-c", READER, str(folder), str(TESTS), str(stop)]
        readers = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
        ]
        threads = [
            threading.Thread(target=read, args=(shared, stop.exists, seen.append))
            for seen in notes[:THREADS]
        ] + [
            threading.Thread(target=note_lines, args=(reader, seen))
            for reader, seen in zip(readers, notes[THREADS:], strict=True)
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(SYNCS + 1):
                if number:
                    write_files(folder, edition(number))
                    assert writer.sync().embedded == 40
                wait_until_all_see(notes, f"edition{number}")
        finally:
            stop.touch()
            for thread in threads:
                thread.join()
    assert [reader.wait() for reader in readers] == [0] * PROCESSES


def wait_until_all_see(notes, edition):
    """Wait until each reader has seen an edition in both layers; print how long it took."""
    started = time.monotonic()
    while not all({f"L0-{edition}", f"L1-{edition}"} <= set(seen) for seen in notes):
        assert time.monotonic() - started < PATIENCE, [len(seen) for seen in notes]
        time.sleep(0.01)
    print(f"{edition} seen by all after {time.monotonic() - started:.2f} s")
