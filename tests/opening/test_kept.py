"""Entries kept in the data folder: an opening that uses them gives what a cold one gives."""

import os
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import REFUNDS, write_files
from parts import hostile

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.opening import kept
from langchain_lookup_knowledge.opening.kept import KEPT_FILE
from langchain_lookup_knowledge.reading import documents
from langchain_lookup_knowledge.reading.known import files
from langchain_lookup_knowledge.reading.known.files import FileKey

QUERIES = ["refund money back", "PTO and VPN", "what is a host page", "obey system", "straße 退款"]
ODD = {
    "host.md": "# Host\n\n![[part#Section]]\n\nSee [[refunds]], [a](sub/b.md) and [[none]].\n",
    "part.md": "---\ntenant: a\n---\n# Part\n\n## Section\n\nEmbedded `text`.\n\n![[deep]]\n",
    "deep.md": "---\ntitle: Deep\nversion: 1.2\nsuperseded_by: part.md\n---\nDeep text.\n",
    "sub/b.md": "---\nkeywords: [PTO, the]\n---\nPaid time off (PTO). <!-- x\ny --> [[host]]\n",
    "sub/index.md": "---\ntags: [退款, straße]\ncategory: [x, X]\n---\n{% include part.md %}\n",
    "draft.md": "---\ndraft: true\n---\nDraft.\n",
    "empty.md": " \n",
    "broken.md": "---\ntitle: [\n---\nText.\n",
    "self.md": "![[self]]\n",
    "surrogate.md": '---\ntitle: "\\uD800 odd"\nkeywords: ["\\uDFFF"]\n---\nText.\n',
    "refunds.md": REFUNDS,
    "words.yaml": "VPN: virtual private network\n",
    ".gitignore": "ignored/\n",
    "ignored/c.md": "Ignored.\n",
    "d.txt": "Not read.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = random.Random(5)
    written = {f"hostile-{number}.md": hostile.document(rng, number) for number in range(20)}
    folder = write_files(tmp_path / "kb", {**ODD, **written})
    (folder / "latin.md").write_bytes(b"caf\xe9 latin\n")
    (folder / "wide.md").write_bytes("# Wide\n\nUTF-16.\n".encode("utf-16"))
    (folder / "linked.md").symlink_to("refunds.md")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "leaves.md").symlink_to("/etc/hostname")
    return folder


@pytest.fixture
def settled(monkeypatch):
    """Let each file count as written long before it is read."""
    monkeypatch.setattr(files, "SETTLED", -(10**20))


def keep_times(monkeypatch, kept_time):
    """Let the file system keep one time of a file, as `kept_time` makes it of the real one."""
    real = files._key

    def key(path):
        found = real(path)
        return found if found.size < 0 else FileKey(found.size, *[kept_time(found.modified)] * 2)

    monkeypatch.setattr(files, "_key", key)


@pytest.fixture
def coarse(monkeypatch):
    """Let the file system keep no time at all."""
    keep_times(monkeypatch, lambda modified: 0)


def opened(folder, **given):
    return KnowledgeBase.open(folder, index=None, glossary="words.yaml", **given)


def all_of(kb):
    scoped = kb.seen_by({"tenant": "a"})
    return {
        "entries": kb.entries,
        "problems": kb.problems,
        "report": kb.load_report,
        "hints": [kb.hints(query) for query in QUERIES],
        "metadata": [kb.l0.search_metadata(query, 5) for query in QUERIES],
        "suggestions": kb.l0.suggestions(),
        "scoped": (list(scoped.entries.values()), [scoped.hints(query) for query in QUERIES]),
    }


def assert_as_cold(folder, tmp_path, *, state="used", **given):
    """Open with the kept entries and without them, and compare."""
    shutil.rmtree(tmp_path / "cold", ignore_errors=True)
    with (
        opened(folder, **given) as kb,
        opened(folder, data_dir=tmp_path / "cold", **given) as cold,
    ):
        assert cold.health()["kept_entries"] == "none"
        assert kb.health()["kept_entries"] == state
        assert all_of(kb) == all_of(cold)
        return kb.l0.known.parsed


@pytest.fixture
def plain_folder(folder):
    """The folder without links, which are read each time."""
    for name in ("linked.md", "loop.md", "leaves.md"):
        (folder / name).unlink()
    return folder


def test_an_unchanged_folder_is_not_opened_again(plain_folder, settled, monkeypatch):
    folder = plain_folder
    with opened(folder) as kb:
        before = all_of(kb)
        assert kb.l0.known.parsed == len(kb.l0.known.files) > 30

    def refuse(path, root, rules):
        raise AssertionError(path)

    monkeypatch.setattr(documents, "read_settled", refuse)
    with opened(folder) as kb:
        assert kb.health()["kept_entries"] == "used"
        assert (all_of(kb), kb.l0.known.parsed) == (before, 0)
        kb.sync()
        assert (all_of(kb), kb.l0.known.parsed) == (before, 0)


EDITS = {
    "a part that others embed": lambda f: write_files(
        f, {"part.md": "# Part\n\n## Section\n\nN.\n"}
    ),
    "an entry that others link to is gone": lambda f: (f / "refunds.md").unlink(),
    "a link finds its page": lambda f: write_files(f, {"none.md": "Here now.\n"}),
    "a page moves": lambda f: (f / "sub" / "b.md").rename(f / "b.md"),
    "a scope changes": lambda f: write_files(f, {"deep.md": "---\ntenant: a\n---\nDeep.\n"}),
    "a new abbreviation": lambda f: write_files(f, {"n.md": "Parental team option (PTO).\n"}),
    "a file is ignored": lambda f: write_files(f, {".gitignore": "ignored/\nhost*\n"}),
    "a skipped file is mended": lambda f: write_files(f, {"latin.md": "café latin\n"}),
    "the glossary": lambda f: write_files(f, {"words.yaml": "VPN: very private\n"}),
    "nothing": lambda f: None,
}


@pytest.mark.parametrize("edit", EDITS)
def test_after_a_change_it_gives_what_a_cold_opening_gives(folder, tmp_path, settled, edit):
    opened(folder).close()
    EDITS[edit](folder)
    assert_as_cold(folder, tmp_path)
    assert assert_as_cold(folder, tmp_path) == 0


def test_a_file_that_a_link_leads_to_is_read_each_time(folder, tmp_path, settled, coarse):
    opened(folder).close()
    target = folder / "refunds.md"
    target.write_text("---\ntitle: Later\n---\nLater.\n", "utf-8")
    with opened(folder) as kb:
        assert kb.entry("linked.md").title == "Later"
    assert assert_as_cold(folder, tmp_path) == 0


def test_new_times_alone_do_not_make_a_file_be_parsed(folder, tmp_path):
    opened(folder).close()
    for path in folder.rglob("*.md"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert assert_as_cold(folder, tmp_path) == 0


def test_a_change_within_the_same_tick_of_the_clock_is_seen(folder, tmp_path, monkeypatch):
    keep_times(monkeypatch, lambda modified: modified // 2_000_000_000 * 2_000_000_000)
    path = write_files(folder, {"tick.md": "aaaa\n"}) / "tick.md"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    end_of_tick = times[1] // 2_000_000_000 * 2_000_000_000 + 1_999_999_999
    monkeypatch.setattr(files, "time", SimpleNamespace(time_ns=lambda: end_of_tick))
    opened(folder).close()
    path.write_text("bbbb\n", "utf-8")
    os.utime(path, ns=times)
    with opened(folder) as kb:
        assert kb.entry("tick.md").text == "bbbb\n"
        assert kb.l0.known.parsed == 1


def test_a_file_of_the_future_is_always_compared(folder, monkeypatch):
    path = write_files(folder, {"tick.md": "aaaa\n"}) / "tick.md"
    keep_times(monkeypatch, lambda modified: modified)
    later = time.time_ns() + 3600 * 10**9
    os.utime(path, ns=(later, later))
    opened(folder).close()
    path.write_text("bbbb\n", "utf-8")
    os.utime(path, ns=(later, later))
    with opened(folder) as kb:
        assert kb.entry("tick.md").text == "bbbb\n"


def test_verify_compares_what_times_do_not_tell(folder, settled, coarse):
    path = write_files(folder, {"same.md": "aaaa\n"}) / "same.md"
    opened(folder).close()
    path.write_text("bbbb\n", "utf-8")
    with opened(folder) as kb:
        assert kb.entry("same.md").text == "aaaa\n"
    with opened(folder, verify=True) as kb:
        assert kb.entry("same.md").text == "bbbb\n"
        path.write_text("cccc\n", "utf-8")
        kb.sync()
        assert kb.entry("same.md").text == "cccc\n"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_a_damaged_file_is_made_again(folder, tmp_path, settled, share, harm):
    opened(folder).close()
    path = folder / ".lookup-knowledge" / KEPT_FILE
    data = bytearray(path.read_bytes())
    place = int(share * len(data))
    if harm == "cut":
        del data[place:]
    else:
        data[place] ^= 1
    path.write_bytes(data)
    with opened(folder) as kb:
        assert kb.health()["kept_entries"].startswith("not used: it is ")
        assert kb.l0.known.parsed == len(kb.l0.known.files)
    assert assert_as_cold(folder, tmp_path) == 0


def test_a_failure_to_write_is_forgotten_when_the_file_is_written(plain_folder, settled):
    path = plain_folder / ".lookup-knowledge" / KEPT_FILE
    with opened(plain_folder) as kb:
        before = kb.health()["kept_entries"]
        path.unlink()
        path.mkdir()
        write_files(plain_folder, {"one.md": "One.\n"})
        kb.sync()
        assert kb.health()["kept_entries"].startswith("cannot be written: ")
        path.rmdir()
        write_files(plain_folder, {"two.md": "Two.\n"})
        kb.sync()
        assert path.is_file()
        assert kb.health()["kept_entries"] == before
    with opened(plain_folder) as kb:
        assert kb.health()["kept_entries"] == "used"


def test_what_another_user_kept_is_not_used(folder, tmp_path, settled, monkeypatch):
    opened(folder).close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with opened(folder) as kb:
        assert kb.health()["kept_entries"] == "not used: this user has signed nothing yet"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with opened(folder) as kb:
        assert kb.health()["kept_entries"].endswith("another user wrote it")


def test_what_other_code_or_other_settings_read_is_not_used(folder, tmp_path, settled, monkeypatch):
    opened(folder).close()
    why = "not used: another version or other settings wrote it"
    assert_as_cold(folder, tmp_path, state=why, fields=FrontmatterFields(title=("version",)))
    monkeypatch.setattr(kept, "_code", lambda: "other")
    assert_as_cold(folder, tmp_path, state=why)
    assert_as_cold(folder, tmp_path)


def test_a_text_that_is_gone_is_not_kept(folder, settled):
    write_files(folder, {f"many/{number}.md": "Text.\n" for number in range(300)})
    write_files(folder, {"gone.md": "Nobody may read ZQXJK.\n"})
    path = folder / ".lookup-knowledge" / KEPT_FILE
    with opened(folder) as kb:
        assert b"ZQXJK" in path.read_bytes()
        (folder / "gone.md").unlink()
        kb.sync()
        assert b"ZQXJK" not in path.read_bytes()


def test_few_changes_do_not_write_the_file_again(folder, tmp_path, settled):
    write_files(folder, {f"many/{number}.md": "Text.\n" for number in range(300)})
    opened(folder).close()
    path = folder / ".lookup-knowledge" / KEPT_FILE
    before = path.read_bytes()
    write_files(folder, {"many/7.md": "Another text.\n"})
    assert assert_as_cold(folder, tmp_path) == 1
    assert path.read_bytes() == before


def test_reading_alone_writes_nothing(folder, settled):
    with KnowledgeBase.open_read_only(folder, index=None, data_dir=None):
        assert not (folder / ".lookup-knowledge").exists()


def test_what_a_killed_writer_left_is_removed(folder, settled):
    data = folder / ".lookup-knowledge"
    write_files(data, {f".aaaa.{KEPT_FILE}": "half", f".bbbb.{KEPT_FILE}": "being written"})
    os.utime(data / f".aaaa.{KEPT_FILE}", (1, 1))
    opened(folder).close()
    assert sorted(path.name for path in data.glob(f"*{KEPT_FILE}")) == [
        f".bbbb.{KEPT_FILE}",
        KEPT_FILE,
    ]
