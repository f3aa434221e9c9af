"""L1 (vector search): searching, indexing, and vector stores.

FastEmbed and the Qdrant client import onnxruntime. It sends telemetry to its vendor and writes
files about the device to the home folder, unless environment variables forbid it before the import.
Its telemetry thread would also delay the exit of a forked child. All modules that import these
packages are in this folder, so the variables are set here. Values set by the user are kept.
"""

import os

for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")
