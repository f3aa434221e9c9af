"""Make `kb.tar.gz`: a folder, its index and its records, written by an older version.

Run with that version (commit 165bc43, payload 5) on PYTHONPATH, in an empty folder. Then:
`tar -S -czf kb.tar.gz --owner=0 --group=0 --numeric-owner kb`; -S keeps the holes of its files.
"""

from pathlib import Path

from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph

FILES = {
    "billing/refunds.md": """---
title: Refunds
keywords: [refund, money back]
category: Billing
entities: [Stripe]
---
Refunds take five days. A card that was declined with E-4711 is charged again after two hours.
""",
    "hr/leave.md": """---
title: Parental leave
keywords: [parental leave]
category: HR
---
Parental leave is twelve weeks, paid in full.
""",
    "it/vpn.md": """---
title: VPN
keywords: [vpn]
category: IT
---
# Setting up

Install the VPN client on your laptop.

# Ports

| port | for |
|---|---|
| 8443 | staff |
| 9443 | guests |
""",
    "it/wifi.md": """---
title: Guest network
category: IT
---
Visitors ask the front desk for a password of the day.
""",
}
QUERIES = (
    "how do I get my money back",
    "where do visitors get the password",
    "zebra stripes in the moonlight",
)

if __name__ == "__main__":
    for name, text in FILES.items():
        path = Path("kb") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    with KnowledgeBase.open("kb") as kb:
        graph = create_lookup_knowledge_graph(kb)
        for query in QUERIES:
            graph.invoke({"query": query})
