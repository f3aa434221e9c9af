"""Work on records that a test kills: `python killed_work.py WAY URL SPOOL`.

Prints the id of each row that was handed over, and goes on until it is killed.
"""

import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from langchain_lookup_knowledge import SQLInvocationRecorder
from parts.invocations import INVOCATION

way, url, spool = sys.argv[1:]
recorder = SQLInvocationRecorder(url, spool=spool)
print("ready", flush=True)
if way == "migrate":
    recorder.migrate()
while True:
    made = {**INVOCATION, "id": str(uuid.uuid4()), "query": "a new query"}
    recorder.record(made)
    print(made["id"], flush=True)
    if way == "redact":
        recorder.redact()
    if way == "prune":
        recorder.prune(datetime(2026, 1, 1, tzinfo=UTC))
