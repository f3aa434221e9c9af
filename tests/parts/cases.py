"""The cases in `tests/cases`: situations found in public reports, restated, each under an id that
stays.

One JSON object a line: `id`, `about` (what must hold), `input`. A case of `reports.jsonl` may name
the issue that will make it hold (`later`), or the test file in which it is tested (`test`).

`input["files"]` is a mapping from names to contents, or the name of a set in `SETS`. Contents are
text, or an object: `b64` (bytes), `symlink` (its target), `dir`, or `repeat` (text, how often)
between `prefix` and `suffix`; with `times`, it is that many files, and `{}` in the name and the
prefix is the number of each.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "cases"
SETS = {
    "refunds, leave and vpn": {
        "b.md": "---\ntitle: Refunds\nkeywords: [refund]\ncategory: Billing\n---\n"
        "Refunds take five days.\n",
        "h.md": "---\ntitle: Leave\nkeywords: [leave]\ncategory: HR\n---\n"
        "Parental leave is twelve weeks.\n",
        "i.md": "---\ntitle: VPN\nkeywords: [vpn]\ncategory: IT\n---\nInstall the VPN client.\n",
    }
}


def read_cases(name: str) -> dict[str, dict[str, Any]]:
    """Return the cases of a file by their ids, in its order."""
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    return {case["id"]: case for case in cases}


def parameters(name: str) -> list[Any]:
    """Return the cases of a file as pytest parameters, named by their ids."""
    return [pytest.param(case, id=case_id) for case_id, case in read_cases(name).items()]


def files_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the files of a case: text or bytes by name, or the object of what is no regular
    file.
    """
    files = case["input"]["files"]
    found: dict[str, Any] = {}
    for name, content in (SETS[files] if isinstance(files, str) else files).items():
        times = content.get("times") if isinstance(content, dict) else None
        for number in range(times or 1):
            numbered = name.replace("{}", f"{number:03}") if times else name
            found[numbered] = _content(content, str(number))
    return found


def _content(content: Any, number: str) -> Any:
    if isinstance(content, str):
        return content
    if "b64" in content:
        return base64.b64decode(content["b64"])
    if "repeat" in content:
        unit, count = content["repeat"]
        prefix = content.get("prefix", "").replace("{}", number)
        return prefix + unit * count + content.get("suffix", "")
    return content


def write_case(folder: Path, case: dict[str, Any]) -> Path:
    """Write the files of a case below a folder and return the knowledge folder among them."""
    for name, content in files_of(case).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str | bytes):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif "symlink" in content:
            path.symlink_to(content["symlink"])
        else:
            path.mkdir()
    for file in case["input"].get("files_bytes_names", ()):
        (folder / os.fsdecode(base64.b64decode(file["name_b64"]))).write_text(file["text"])
    return folder / case["input"].get("root", "")
