"""Lookups through the tool while something is wrong with the database."""

import asyncio

from langchain_lookup_knowledge import LookupOptions

LOOKUPS = 3
PATIENT = LookupOptions(l1_timeout=60)
"""For tools whose database fails: L1 is to answer on the busiest machine."""


def look_up(tool, query, *, asynchronous):
    """Return the results of lookups: that each is answered while a fault lasts shows that none
    waits for it.
    """
    results = []
    for number in range(LOOKUPS):
        call = {
            "name": tool.name,
            "args": {"query": query},
            "id": f"call{number}",
            "type": "tool_call",
        }
        message = asyncio.run(tool.ainvoke(call)) if asynchronous else tool.invoke(call)
        results.append(message.artifact)
    return results
