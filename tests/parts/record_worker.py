"""Lookups through the tool, run as a process of its own by the tests of records: prints a line for
each answer handed out.

`python record_worker.py KB URL THREADS CALLS`
"""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import WordEmbeddings

from langchain_lookup_knowledge import (
    KnowledgeBase,
    SQLInvocationRecorder,
    create_lookup_knowledge_tool,
)

folder, url, threads, calls = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def look_up(tool, number):
    for call in range(calls):
        message = tool.invoke(
            {
                "name": tool.name,
                "args": {"query": "refund"},
                "id": f"{number}-{call}",
                "type": "tool_call",
            }
        )
        result = message.artifact
        line = (
            f"{result['invocation_id']} {result['recorded']} {result['status']} "
            f"{result['l1']['status']}\n"
        )
        sys.stdout.write(line)
        sys.stdout.flush()


with KnowledgeBase.open(folder, embedding=WordEmbeddings(), sync=False) as kb:
    recorder = SQLInvocationRecorder(url, spool=sys.argv[5] if len(sys.argv) > 5 else None)
    tool = create_lookup_knowledge_tool(kb, record=recorder)
    callers = [threading.Thread(target=look_up, args=[tool, number]) for number in range(threads)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    recorder.close()
