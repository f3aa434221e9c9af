"""Read-only and nearly full disks: an index that is there is read, and no disk ends the process."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import FILES, write_files
from parts.command_line import COMMAND, run_process

from langchain_lookup_knowledge.data_folder import DATA_FOLDER, find_data_folder

UNSHARE = shutil.which("unshare")


def can_mount() -> bool:
    if UNSHARE is None:
        return False
    done = subprocess.run([UNSHARE, "-rm", "true"], capture_output=True, check=False)
    return done.returncode == 0


pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not can_mount(), reason="needs a mount namespace"),
]


def mounted(tmp_path: Path, setup: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run shell commands after `setup` in a mount namespace of their own."""
    script = "\n".join(["set -e", setup, "set +e", *commands])
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert UNSHARE
    return subprocess.run(
        [UNSHARE, "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def test_the_index_of_a_read_only_folder_is_read(tmp_path):
    folder = write_files(tmp_path / "kb", FILES)
    assert run_process("index", folder).returncode == 0
    bind = f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}"
    command = " ".join([*COMMAND, "ask", str(folder), "refund", "--json"])
    done = mounted(tmp_path, bind, command, command)
    assert done.returncode == 0, done.stderr
    assert "the knowledge folder is read-only" in done.stderr
    for line in done.stdout.replace("}\n{", "}\0{").split("\0"):
        result = json.loads(line)
        assert (result["l1"]["status"], result["retrieval_layer"]) == ("ok", "L0+L1")
    copied = next((tmp_path / "cache/lookup-knowledge").iterdir())
    pointers = [data / "index/CURRENT" for data in (folder / DATA_FOLDER, copied)]
    assert pointers[0].read_text() == pointers[1].read_text()


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [20, 90, 101, 130])
def test_a_full_disk_is_a_reported_error(tmp_path, megabytes):
    """The disk is full before the index is built, or while it is: the process never aborts."""
    folder = tmp_path / "kb"
    folder.mkdir()
    files = write_files(
        tmp_path / "files",
        {f"{n}.md": f"# Topic {n}\n\nA text about things.\n" for n in range(70)},
    )
    mount = f"mount -t tmpfs -o size={megabytes}m disk {folder}; cp -r {files}/. {folder}"
    command = " ".join([*COMMAND, "index", str(folder)])
    ask = " ".join([*COMMAND, "ask", str(folder), "things"])
    change = f"echo new >> {folder}/1.md"
    steps = [f"{step}; echo status $?" for step in (command, ask, f"{change}; {command}", ask)]
    done = mounted(tmp_path, mount, *steps)
    statuses = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("status")]
    assert len(statuses) == 4
    assert set(statuses) <= {"0", "1", "2"}, done.stderr
    if "2" in statuses:
        assert "free some space" in done.stderr or "No space left" in done.stderr, done.stderr


def test_a_copied_index_is_copied_again_once_its_origin_changed(tmp_path, monkeypatch):
    """Without a mount: a file in place of the data folder cannot be written either."""
    from langchain_lookup_knowledge import data_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_files(tmp_path / "kb", {**FILES, f"{DATA_FOLDER}/settings.json": "{}"})
    usual = folder / DATA_FOLDER
    writable = data_folder._is_writable
    monkeypatch.setattr(data_folder, "_is_writable", lambda path: path != usual and writable(path))
    for generation in ("generation-aaaaaaaaaaaa", "generation-bbbbbbbbbbbb"):
        write_files(
            usual / "index",
            {"CURRENT": generation, f"{generation}/shard/a.dat": generation},
        )
        found = find_data_folder(folder)
        assert found != usual
        assert (found / "index/CURRENT").read_text() == generation
        assert (found / "index" / generation / "shard/a.dat").read_text() == generation
        (found / "settings.json").unlink()
        assert not (find_data_folder(folder) / "settings.json").exists()
