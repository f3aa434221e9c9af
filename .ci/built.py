"""Use the installed package as its users do: `python -I built.py KNOWLEDGE_FOLDER CHECKOUT`,
outside the checkout.
"""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import langchain_lookup_knowledge
from langchain_lookup_knowledge import KnowledgeBase, create_lookup_knowledge_graph

folder, checkout = sys.argv[1], Path(sys.argv[2]).resolve()
COMMAND = str(Path(sys.executable).with_name("lookup-knowledge"))
QUERY = "my card was declined with E-4711"

place = Path(langchain_lookup_knowledge.__file__).resolve()
assert checkout not in place.parents, place
assert place.with_name("py.typed").is_file(), "type checkers would not use the annotations"

asked = subprocess.run([COMMAND, "ask", folder, QUERY], capture_output=True, text=True, check=True)
assert "billing/payment-error-e-4711.md" in asked.stdout, asked.stdout

with KnowledgeBase.open(folder) as kb:
    result = create_lookup_knowledge_graph(kb).invoke({"query": "how do I get my money back"})
assert result["l1"]["status"] == "ok", result["l1"]
assert "L1" in result["retrieval_layer"], result
assert result["primary"]["similarity"] > 0.3, result["primary"]

with subprocess.Popen(
    [COMMAND, "inspect", folder, "--port", "0"], stdout=subprocess.PIPE, text=True
) as inspector:
    address = re.search(r"http://\S+", inspector.stdout.readline())[0]
    with urllib.request.urlopen(address) as page:
        assert "Lookups" in page.read().decode()
    inspector.terminate()

subprocess.run([COMMAND, "report", folder, "--out", "report.html"], check=True, capture_output=True)
assert "E-4711" in Path("report.html").read_text("utf-8")
print(
    f"langchain-lookup-knowledge {langchain_lookup_knowledge.__version__} "
    "works where it is installed"
)
