"""A process that ends with 20 lookups in flight: `python ending_process.py WAY FOLDER`.

It uses the bundled model, because its native code is what an end in the middle aborts.
"""

import asyncio
import os
import sys
import threading
import time

from langchain_lookup_knowledge import KnowledgeBase, LookupOptions, create_lookup_knowledge_graph

LOOKUPS = 20
QUERY = "how long does a refund of the money take " * 40

way, folder = sys.argv[1:]
kb = KnowledgeBase.open(folder)
graph = create_lookup_knowledge_graph(kb, options=LookupOptions(l1_timeout=60))
entered = threading.Event()
embed_query = kb.embedding.embed_query


def embed(text):
    entered.set()
    return embed_query(text)


kb.embedding.embed_query = embed


async def awaited():
    tasks = [
        asyncio.create_task(graph.ainvoke({"query": f"{QUERY} {number}"}))
        for number in range(LOOKUPS)
    ]
    while not entered.is_set():
        await asyncio.sleep(0.001)
    if way == "sigterm":
        print("ready", flush=True)
        await asyncio.gather(*tasks)


def in_threads():
    for number in range(LOOKUPS):
        threading.Thread(
            target=graph.invoke, args=({"query": f"{QUERY} {number}"},), daemon=True
        ).start()
    entered.wait()
    time.sleep(0.002)


def in_children():
    """Look up before and after the fork; each child ends as usual, by `sys.exit`."""
    graph.invoke({"query": "refund"})
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            result = graph.invoke({"query": "how do I get my money back"})
            sys.exit(0 if result["l1"]["status"] == "ok" else 3)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(0 if statuses == [0, 0] else f"the children ended with {statuses}")


if way == "threads":
    in_threads()
elif way == "fork":
    in_children()
else:
    asyncio.run(awaited())
