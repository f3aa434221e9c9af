"""One who looks up over and over while another process writes."""

from langchain_lookup_knowledge import LookupOptions, create_lookup_knowledge_graph


def read(kb, stopped, note):
    """Look up until stopped; note which edition of the passages, and of L0's texts, was seen
    first.
    """
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(l1_timeout=30))
    seen = set()
    while not stopped():
        result = graph.invoke({"query": "edition of the entry"})
        assert result["l1"]["status"] == "ok", result["l1"]
        editions = {match["snippet"].split()[0] for match in result["matches"]}
        assert len(editions) == 1, editions
        (excerpt,) = kb.l0.excerpt("0.md", [])
        for found in (f"L1-{editions.pop()}", f"L0-{excerpt['text'].split()[3]}"):
            if found not in seen:
                seen.add(found)
                note(found)
