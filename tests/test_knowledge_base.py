"""Opening and syncing: what is embedded, what is remembered, and what is out of reach."""

import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from conftest import VPN, WordEmbeddings, write_files

from langchain_lookup_knowledge import (
    DocumentError,
    EmbeddingError,
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.data_folder import read_settings


def top(kb, query):
    result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": query})
    assert result["l1"]["status"] == "ok", result["l1"]
    return result["primary"]["entry_id"]


def test_open_reads_entries_and_makes_a_data_folder_that_git_ignores(kb):
    assert [entry.entry_id for entry in kb.entries] == [
        "billing/refunds.md",
        "hr/leave.md",
        "it/vpn.md",
    ]
    assert kb.problems == []
    assert (kb.data_folder / ".gitignore").read_text() == "*\n"


def test_an_unchanged_folder_embeds_nothing(folder, kb):
    again = WordEmbeddings()
    with KnowledgeBase.open(folder, embedding=again) as reopened:
        assert again.embedded == []
        assert top(reopened, "vpn") == "it/vpn.md"
        assert reopened.sync().embedded == 0


def test_only_what_changed_is_embedded_and_what_went_is_gone(folder, kb, embedding):
    embedding.embedded.clear()
    write_files(
        folder,
        {
            "it/vpn.md": VPN.replace("laptop", "phone"),
            "it/badge.md": "# Badge\nAsk the front desk.\n",
        },
    )
    (folder / "hr/leave.md").unlink()
    report = kb.sync()
    assert (report.entries, report.renewed, report.removed, report.embedded) == (3, 2, 1, 2)
    assert len(embedding.embedded) == 2
    assert top(kb, "front desk badge") == "it/badge.md"
    result = create_lookup_knowledge_graph(kb, record=None).invoke(
        {"query": "parental leave twelve weeks"}
    )
    assert "hr/leave.md" not in [match["entry_id"] for match in result["matches"]]


def test_a_folder_that_became_empty_does_not_empty_the_index(folder, kb):
    for path in folder.glob("*/*.md"):
        path.unlink()
    with pytest.raises(
        StoreError, match="no entries any more; to empty the index, use --allow-empty"
    ):
        kb.sync()
    assert kb.sync(allow_empty=True).removed == 3


def test_another_model_is_refused_until_the_index_is_rebuilt(folder, kb):
    other = WordEmbeddings()
    other.model = "words-64-b"
    with KnowledgeBase.open(folder, embedding=other) as reopened:
        l1 = create_lookup_knowledge_graph(reopened, record=None).invoke({"query": "refund"})["l1"]
        assert l1["status"] == "failed"
        assert "words-64'" in l1["reason"]
        assert "run `lookup-knowledge index --rebuild`" in l1["reason"]
        assert reopened.sync(rebuild=True).embedded == 3
        assert top(reopened, "refund") == "billing/refunds.md"


@pytest.mark.parametrize(
    ("failure", "match"),
    [
        (
            lambda e: setattr(e, "failure", RuntimeError("key sk-1")),
            "model failed with RuntimeError",
        ),
        (
            lambda e: setattr(
                e, "embed_documents", lambda texts: [[float("nan")] * 64] * len(texts)
            ),
            "not finite",
        ),
        (
            lambda e: setattr(e, "embed_documents", lambda texts: [[1.0] * 64]),
            "returned 1 vectors for 3 texts",
        ),
    ],
)
def test_an_embedding_that_fails_does_not_stop_open_and_is_told(folder, failure, match):
    embedding = WordEmbeddings()
    failure(embedding)
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
        assert result["status"] == "degraded"
        assert result["l1"]["status"] in ("failed", "unavailable")
        assert match in result["l1"]["reason"]
        assert result["primary"]["entry_id"] == "billing/refunds.md"
        with pytest.raises(EmbeddingError, match=match):
            kb.sync()


def eventually(check, seconds=60.0):
    """Return whether `check` comes to hold in time."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def lookup(kb, query):
    return create_lookup_knowledge_graph(kb, record=None).invoke({"query": query})


def test_a_rebuild_leaves_nothing_of_what_was_deleted(folder, kb):
    (folder / "hr/leave.md").unlink()
    kb.sync(rebuild=True)
    assert "hr/leave.md" not in [
        match["entry_id"] for match in lookup(kb, "parental leave")["matches"]
    ]


def test_a_rebuild_with_another_model_is_noticed_by_who_has_the_index_open(folder, kb):
    assert lookup(kb, "refund")["l1"]["status"] == "ok"
    other = WordEmbeddings()
    other.model = "other"
    with KnowledgeBase.open(folder, embedding=other, sync=False) as elsewhere:
        elsewhere.sync(rebuild=True)
    l1 = lookup(kb, "refund")["l1"]
    assert l1["status"] == "failed"
    assert "the index was built with another model" in l1["reason"]


def test_a_server_collection_can_be_rebuilt_with_another_model(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=QdrantIndex(":memory:", "kb")) as kb:
        kb.sync()
        embedding.model = "other"
        with pytest.raises(StoreError, match="built with another model"):
            kb.sync()
        kb.sync(rebuild=True)
        assert top(kb, "refund") == "billing/refunds.md"


def test_while_another_process_writes_the_old_index_answers_and_says_so(folder, kb):
    from filelock import FileLock

    write_files(folder, {"it/vpn.md": VPN.replace("laptop", "phone")})
    with FileLock(folder / ".lookup-knowledge/index/writer.lock"):
        late = KnowledgeBase.open(folder, embedding=WordEmbeddings())
        result = lookup(late, "refund")
        assert (result["status"], result["l1"]["status"]) == ("ok", "ok")
        assert result["l1"]["reason"].startswith(
            "the index is behind the folder: another process is writing"
        )
    kb.sync()
    assert eventually(lambda: lookup(late, "refund")["l1"]["reason"] is None)


def test_while_another_process_holds_the_lock_an_unchanged_index_is_not_behind(folder, kb):
    with kb.index.lock(), KnowledgeBase.open(folder, embedding=WordEmbeddings()) as other:
        assert (other.health()["index"], other.health()["message"]) == ("current", None)
        assert lookup(other, "refund")["l1"]["reason"] is None
        assert other.sync().written is False
        write_files(folder, {"it/vpn.md": VPN.replace("laptop", "phone")})
        with pytest.raises(StoreError, match="another process is writing the index"):
            other.sync()
        message = "another process is writing the index: wait until it is done"
        assert (other.health()["index"], other.health()["message"]) == ("behind", message)


def test_an_embedded_index_remembers_how_it_was_built(folder, embedding):
    fields = FrontmatterFields(category_from_path=1)
    with KnowledgeBase.open(folder, embedding=embedding, fields=fields):
        pass
    with KnowledgeBase.open(folder, embedding=embedding) as again:
        assert again.fields == fields
        assert again.sync().embedded == 0


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"index": "http://h"}, "index takes a QdrantIndex"),
        ({"fields": {}}, "fields takes"),
        ({"embedding": 7}, "takes a"),
    ],
)
def test_a_wrong_argument_is_named(folder, wrong, match):
    with pytest.raises(ValueError, match=match):
        KnowledgeBase.open(folder, **wrong)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ('{"fields": {"zz": 1}}', r"field mapping that cannot be used \(.*zz"),
        ('{"fields": {"title": 5}}', "field mapping that cannot be used"),
        ('{"fields": []}', "field mapping that cannot be used"),
        ('{"index": {"url": "x"}}', "index that cannot be used"),
        ('{"index": null}', "index that cannot be used"),
        ("[]", "does not hold settings"),
    ],
)
def test_settings_that_hold_nonsense_are_named(folder, settings, match):
    write_files(folder, {".lookup-knowledge/settings.json": settings})
    with pytest.raises(DocumentError, match=match):
        KnowledgeBase.open(folder)


def test_settings_are_remembered_by_several_at_once(folder, embedding):
    kbs = [KnowledgeBase.open(folder, embedding=embedding, index=None) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda n: kbs[n % 8].save_settings(), range(200)):
            pass  # an error is raised here
    assert sorted(path.name for path in (folder / ".lookup-knowledge").iterdir()) == [
        ".gitignore",
        "entries.kept",
        "settings.json",
    ]


def test_index_none_is_l0_alone_and_embeds_nothing(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, index=None) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
    assert embedding.embedded == []
    assert (result["status"], result["retrieval_layer"], result["l1"]["status"]) == (
        "ok",
        "L0",
        "disabled",
    )


def test_a_server_collection_is_written_by_sync_alone(folder, embedding):
    index = QdrantIndex(":memory:", "kb")
    with KnowledgeBase.open(folder, embedding=embedding, index=index) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
        assert (result["l1"]["status"], result["retrieval_layer"]) == ("unavailable", "L0")
        assert "run `lookup-knowledge index`" in result["l1"]["reason"]
        kb.sync()
        assert top(kb, "refund") == "billing/refunds.md"


def test_open_loads_what_the_first_lookup_needs_and_asks_a_server_nothing(folder):
    from langchain_lookup_knowledge import FastEmbedModel

    model = FastEmbedModel()
    with KnowledgeBase.open(
        folder, embedding=model, index=QdrantIndex("http://127.0.0.1:9", "c")
    ) as kb:
        assert model._model is not None
        assert kb.index.connection._client is not None


def test_both_engines_give_the_same_matches(folder, embedding, kb):
    with KnowledgeBase.open(
        folder, embedding=embedding, index=QdrantIndex(":memory:", "kb")
    ) as served:
        served.sync()
        for query in ("refund", "twelve weeks", "how do I install the client"):
            one, other = (
                create_lookup_knowledge_graph(k, record=None).invoke({"query": query})
                for k in (kb, served)
            )
            assert [(m["entry_id"], m["similarity"]) for m in one["matches"]] == [
                (m["entry_id"], pytest.approx(m["similarity"], abs=1e-5)) for m in other["matches"]
            ]


def test_what_index_was_told_is_remembered_and_an_argument_wins(folder, embedding):
    fields = FrontmatterFields(keywords=("none",), category_from_path=1)
    with KnowledgeBase.open(
        folder, embedding=embedding, fields=fields, index=QdrantIndex("http://h:1", "c")
    ) as kb:
        kb.save_settings()
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        assert kb.fields == fields
        assert (kb.index.url, kb.index.collection) == ("http://h:1", "c")
    with KnowledgeBase.open(
        folder, embedding=embedding, fields=FrontmatterFields(), index=None
    ) as kb:
        assert kb.fields == FrontmatterFields()
        assert kb.index is None


def test_an_api_key_is_never_remembered(folder, embedding):
    with KnowledgeBase.open(
        folder,
        embedding=embedding,
        index=QdrantIndex("https://h:1/p", "c", api_key="SECRET"),
    ) as kb:
        kb.save_settings()
    settings = (folder / ".lookup-knowledge" / "settings.json").read_text()
    assert "SECRET" not in settings
    assert '"url": "https://h:1/p"' in settings


def test_damaged_settings_are_named(folder, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "settings.json").write_text("{")
    with pytest.raises(DocumentError, match=r"settings\.json cannot be read: delete it"):
        KnowledgeBase.open(folder, data_dir=data)
    assert read_settings(tmp_path / "nowhere") == {}


def test_data_dir_moves_everything(folder, embedding, tmp_path):
    with KnowledgeBase.open(folder, embedding=embedding, data_dir=tmp_path / "data") as kb:
        create_lookup_knowledge_graph(kb).invoke({"query": "refund"})
    assert not (folder / ".lookup-knowledge").exists()
    assert {path.name for path in (tmp_path / "data").iterdir()} >= {
        "index",
        "invocations.db",
        ".gitignore",
    }


def test_a_data_dir_that_cannot_be_made_is_named(folder, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        DocumentError, match="file/data cannot be written: choose another with data_dir"
    ):
        KnowledgeBase.open(folder, data_dir=tmp_path / "file" / "data")


def test_a_folder_that_cannot_hold_the_data_falls_back_to_the_cache(
    folder, embedding, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder / ".lookup-knowledge").write_text("in the way")
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        assert kb.data_folder.is_relative_to(tmp_path / "cache")
        assert top(kb, "refund") == "billing/refunds.md"
        (problem,) = kb.problems
    assert "read-only; the index and the records are in" in problem.message
    assert sum("read-only" in record.message for record in caplog.records) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_read_only_folder_falls_back_to_the_cache(folder, embedding, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        assert kb.data_folder.is_relative_to(tmp_path / "cache")


def test_case_sensitive_terms_are_an_option(tmp_path):
    files = {"mia.md": "---\ntitle: t\nkeywords: [MIA]\n---\nx\n"}
    for named, found in (((), ["MIA"]), (("MIA",), [])):
        fields = FrontmatterFields(case_sensitive=named)
        with KnowledgeBase.open(
            write_files(tmp_path / "kb", files), fields=fields, index=None
        ) as kb:
            assert kb.hints("mia casa")["keywords"] == found


def test_a_model_of_other_dimensions_is_named(folder, kb, monkeypatch):
    monkeypatch.setattr(kb.l1, "embedding", WordEmbeddings())
    kb.embedding.embed_query = lambda text: [1.0, 0.0]
    l1 = lookup(kb, "refund")["l1"]
    assert (l1["status"], "embedding is 2-d, collection is 64-d" in l1["reason"]) == (
        "failed",
        True,
    )


def slow_embeddings():
    """Return embeddings that embed documents only once they are let: `started` and `released` are
    events.
    """
    embedding = WordEmbeddings()
    embedding.started, embedding.released = threading.Event(), threading.Event()
    usual = embedding.embed_documents

    def embed_documents(texts):
        embedding.started.set()
        assert embedding.released.wait(60)
        return usual(texts)

    embedding.embed_documents = embed_documents
    return embedding


def test_in_the_background_l0_answers_at_once_and_says_how_far_the_index_is(folder):
    embedding = slow_embeddings()
    with KnowledgeBase.open(folder, embedding=embedding, background=True) as kb:
        assert embedding.started.wait(60)
        result = lookup(kb, "refund")
        assert (result["status"], result["retrieval_layer"], result["l1"]["status"]) == (
            "degraded",
            "L0",
            "unavailable",
        )
        assert result["l1"]["reason"] == "the index is being built, 0 %"
        embedding.released.set()
        kb._syncing.builder.join(60)
        assert kb._syncing.state.building is None
        assert top(kb, "refund") == "billing/refunds.md"
        assert lookup(kb, "refund")["l1"]["reason"] is None


def test_an_older_index_answers_while_a_new_one_is_built(folder, kb):
    write_files(folder, {"it/vpn.md": VPN.replace("laptop", "phone")})
    embedding = slow_embeddings()
    with KnowledgeBase.open(folder, embedding=embedding, background=True) as late:
        assert embedding.started.wait(60)
        result = lookup(late, "refund")
        assert (result["status"], result["l1"]["status"]) == ("ok", "ok")
        assert (
            result["l1"]["reason"]
            == "the index is behind the folder: the index is being built, 0 %"
        )
        embedding.released.set()


def test_a_failure_in_the_background_is_told(folder, embedding):
    embedding.failure = RuntimeError()
    with KnowledgeBase.open(folder, embedding=embedding, background=True) as kb:
        kb._syncing.builder.join(60)
        assert kb._syncing.state.failure == "the embedding model failed with RuntimeError"
        embedding.failure = None
        l1 = lookup(kb, "refund")["l1"]
        assert (l1["status"], l1["reason"]) == (
            "unavailable",
            "the embedding model failed with RuntimeError",
        )


def test_a_missing_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(DocumentError, match="nowhere is not a folder"):
        KnowledgeBase.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_close_twice_is_harmless(kb):
    kb.close()
    kb.close()


def test_the_default_model_finds_by_meaning_and_embeds_long_passages_whole(tmp_path):
    """The bundled model: no network, right pooling and length, in FastEmbed's own hands."""
    from langchain_lookup_knowledge import FastEmbedModel

    model = FastEmbedModel()
    money, refund, weather = model.embed_documents(
        ["how do I get my money back", "refund policy", "weather in Paris"]
    )
    near, far = (
        sum(a * b for a, b in zip(money, other, strict=True)) for other in (refund, weather)
    )
    assert near > 0.5
    assert far < 0.1
    assert sum(value * value for value in money) == pytest.approx(1, abs=1e-5)
    start = "word " * 240
    whole, same = model.embed_documents([start + "refund", start + "weather"])
    assert sum(a * b for a, b in zip(whole, same, strict=True)) < 0.999


def test_a_script_the_model_does_not_know_gives_no_similarity_and_no_semantic_claim(tmp_path):
    refund = (
        "---\ntitle: 退款政策\nkeywords: [退款]\ncategory: 售后\n---\n"
        "收到退货后三到五个工作日内退款到原支付方式。\n"
    )
    kb = KnowledgeBase.open(
        write_files(
            tmp_path / "kb",
            {
                "zh.md": refund,
                "en.md": "# Weather\nIt rains in Paris on most of the days in each month.\n",
                "it.md": "# Printer\nThe printer that you want is on the second floor.\n",
            },
        )
    )
    result = lookup(kb, "退款多久到账")
    assert result["primary"]["entry_id"] == "zh.md"
    assert result["primary"]["similarity"] is None
    assert result["relevance"]["semantic_support"] is False
    assert "the embedding model does not know Chinese" in result["l1"]["reason"]
    nothing = lookup(kb, "Гроза")
    assert (nothing["status"], nothing["l1"]["status"]) == ("no_match", "empty")
    assert "does not know another language" in nothing["l1"]["reason"]
    assert lookup(kb, "refund to my card")["l1"]["reason"] is None
    assert kb.problems == []
    (suggestion,) = (found for found in kb.suggestions() if "Chinese" in found.message)
    assert "1 entry is in Chinese, which the embedding model does not know" in suggestion.message
    with KnowledgeBase.open(write_files(tmp_path / "zh", {"zh.md": refund})) as chinese:
        (problem,) = chinese.problems
    assert "--model multilingual" in problem.message


def test_a_model_of_somebody_elses_is_taken_to_know_every_script(kb):
    assert lookup(kb, "退款多久到账")["l1"]["reason"] is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("all-MiniLM-L6-v2", r"did you mean 'sentence-transformers/all-MiniLM-L6-v2' or '"),
        ("baai/bge-small-en-v1.5", r"did you mean 'BAAI/bge-small-en-v1.5' or '"),
        ("nobody/zzz", r"it knows BAAI/bge-base-en, .*, all-MiniLM-L6-v2-int8, "),
    ],
)
def test_a_model_that_fastembed_does_not_know_fails_at_open_with_those_near(folder, name, near):
    from langchain_lookup_knowledge import FastEmbedModel

    for embedding in (name, FastEmbedModel(name)):
        with pytest.raises(ValueError, match=f"FastEmbed knows no model '{name}': {near}"):
            KnowledgeBase.open(folder, embedding=embedding)
    with pytest.raises(EmbeddingError, match=f"FastEmbed knows no model '{name}': {near}"):
        FastEmbedModel(name).embed_query("word")


def test_a_model_that_cannot_be_fetched_fails_no_open_and_is_among_the_problems(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("fastembed.common.model_management.time.sleep", lambda seconds: None)
    with KnowledgeBase.open(folder, embedding="BAAI/bge-small-en") as kb:
        (problem,) = kb.problems
        result = lookup(kb, "refund")
    assert str(problem).startswith(
        ".: the index is behind the folder: cannot load the model 'BAAI/bge-small-en' ("
    )
    assert (result["retrieval_layer"], result["status"]) == ("L0", "degraded")
    assert result["primary"]["entry_id"] == "billing/refunds.md"


def test_a_reader_follows_another_writer_in_both_layers(folder):
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as reader:
        lookup(reader, "refund")
        write_files(
            folder,
            {
                "it/printer.md": "---\ntitle: Printer\nkeywords: [paper jam]\ncategory: IT\n"
                "---\nOpen the tray.\n"
            },
        )
        with KnowledgeBase.open(folder, embedding=WordEmbeddings()):
            pass
        result = lookup(reader, "paper jam tray")
        assert result["primary"]["entry_id"] == "it/printer.md"

        def follows():
            result = lookup(reader, "paper jam tray")
            found = result["primary"]["entry_id"], result["hints"]["keywords"]
            return found == ("it/printer.md", ["paper jam"]) and result["l1"]["reason"] is None

        assert eventually(follows)
        assert len(reader.entries) == 4


@contextmanager
def watching(kb):
    """Watch in another thread, and give the list of its reports."""
    stop, reports = threading.Event(), []
    watcher = threading.Thread(target=lambda: reports.extend(kb.watch(stop)))
    watcher.start()
    try:
        yield reports
    finally:
        stop.set()
        watcher.join()


def test_watch_syncs_after_each_change_and_leaves_hidden_files_alone(folder, kb):
    with watching(kb) as reports:
        time.sleep(0.5)
        write_files(folder, {".obsidian/a.md": "# Hidden\n"})
        write_files(
            folder,
            {"hr/pets.md": "---\ntitle: Pets\nkeywords: [dog]\n---\nBring your dog on Fridays.\n"},
        )
        assert eventually(
            lambda: lookup(kb, "dog on fridays")["primary"]["entry_id"] == "hr/pets.md"
        )
        assert eventually(lambda: reports)
    assert {(report.entries, report.embedded) for report in reports} == {(4, 1)}


def test_a_watch_outlives_a_sync_that_fails(folder, kb, embedding, caplog):
    stop = threading.Event()
    reports = kb.watch(stop)
    waiting = threading.Thread(target=lambda: next(reports))
    waiting.start()
    time.sleep(0.5)
    embedding.failure = RuntimeError("down")
    write_files(folder, {"hr/pets.md": "# Pets\n"})
    assert eventually(lambda: "is not up to date" in caplog.text)
    embedding.failure = None
    write_files(folder, {"hr/pets.md": "# Pets\n\nBring your dog.\n"})
    waiting.join(60)
    assert not waiting.is_alive()
    assert kb._syncing.state.failure is None
    stop.set()


def test_a_watch_tries_again_what_failed_without_another_change(folder, kb, embedding):
    stop, reports = threading.Event(), []
    watcher = threading.Thread(target=lambda: reports.extend(kb.watch(stop)))
    with kb.index.lock():
        watcher.start()
        write_files(folder, {"hr/pets.md": "# Pets\n\nBring your dog.\n"})
        assert eventually(lambda: kb._syncing.state.failure)
        assert "another process is writing" in lookup(kb, "dog")["l1"]["reason"]
    try:
        assert eventually(lambda: reports)
        assert (top(kb, "dog"), lookup(kb, "dog")["l1"]["reason"]) == ("hr/pets.md", None)
    finally:
        stop.set()
        watcher.join()


def test_a_watch_begins_with_what_changed_before_it_listened(folder, kb):
    write_files(folder, {"hr/pets.md": "# Pets\n\nBring your dog.\n"})
    report = next(kb.watch(threading.Event()))
    assert (report.renewed, report.entries) == (1, 4)


@pytest.mark.slow
def test_a_watch_follows_a_folder_that_takes_the_place_of_the_watched_one(folder, kb):
    shutil.copytree(folder, folder.with_name("new"))
    with watching(kb) as reports:
        time.sleep(0.5)
        folder.rename(folder.with_name("old"))
        folder.with_name("new").rename(folder)
        assert eventually(lambda: reports)
        write_files(folder, {"hr/pets.md": "# Pets\n\nBring your dog.\n"})
        assert eventually(lambda: any(report.renewed for report in reports))
        assert top(kb, "dog") == "hr/pets.md"


@pytest.mark.slow
def test_a_watch_outlives_a_name_that_is_not_utf_8(folder, kb):
    with watching(kb) as reports:
        time.sleep(1.5)
        (folder / os.fsdecode(b"caf\xe9.md")).write_text("# Pets\n\nBring your dog.\n")
        assert eventually(lambda: any(report.renewed for report in reports))
        write_files(folder, {"hr/cats.md": "# Cats\n\nNo cats.\n"})
        assert eventually(
            lambda: (lookup(kb, "cats")["primary"] or {}).get("entry_id") == "hr/cats.md"
        )


def test_a_sync_says_that_it_is_under_way_and_that_it_failed(folder):
    embedding = slow_embeddings()
    embedding.released.set()
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        write_files(folder, {"hr/pets.md": "# Pets\n\nBring your dog.\n"})
        embedding.started.clear()
        embedding.released.clear()
        with ThreadPoolExecutor(1) as pool:
            syncing = pool.submit(kb.sync)
            assert embedding.started.wait(60)
            assert (
                lookup(kb, "refund")["l1"]["reason"]
                == "the index is behind the folder: the index is being built, 0 %"
            )
            embedding.failure = RuntimeError()
            embedding.released.set()
            with pytest.raises(EmbeddingError):
                syncing.result()
        embedding.failure = None
        reason = "the index is behind the folder: the embedding model failed with RuntimeError"
        assert lookup(kb, "refund")["l1"]["reason"] == reason
        kb.sync()
        assert lookup(kb, "refund")["l1"]["reason"] is None


@pytest.mark.slow
def test_syncs_of_several_threads_leave_the_index_in_step(folder, kb, monkeypatch):
    """Between reading the folder and writing the index there is time: that in which the index is
    asked what it holds.
    """
    contents = kb.index.contents

    def slow():
        time.sleep(0.02)
        return contents()

    monkeypatch.setattr(kb.index, "contents", slow)

    def change(number):
        for round_ in range(4):
            write_files(folder, {f"x{number}.md": f"Version {round_} of {number}.\n"})
            kb.sync()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(change, range(3)))
    answer = kb.index.search(kb.embedding.embed_query("version"), "version", [[]], 30)
    texts = {
        payload["page_content"]
        for payload in answer.payloads(
            [hit.point_id for hit in answer.lists[0].lists["dense"]]
        ).values()
    }
    assert {f"Version 3 of {number}." for number in range(3)} < texts
    assert len(texts) == 6


@pytest.mark.slow
def test_closing_beside_lookups_raises_nothing(folder, kb):
    done = time.monotonic() + 1

    def follow():
        while time.monotonic() < done:
            kb._syncing._next_check = 0.0
            kb._syncing.state.failure = "look"
            kb._syncing.follow()

    with ThreadPoolExecutor(3) as pool:
        following = [pool.submit(follow) for _ in range(2)]
        while time.monotonic() < done:
            kb.close()
        for thread in following:
            thread.result()


def test_many_tools_of_a_knowledge_base_share_one_recorder(kb):
    graphs = [create_lookup_knowledge_graph(kb) for _ in range(20)]
    assert {graph.invoke({"query": "refund"})["recorded"] for graph in graphs} == {"stored"}
    assert len(kb._closing) == 1


@pytest.mark.slow
def test_a_watch_waits_longer_each_time_that_the_same_fails(kb, monkeypatch):
    syncs, stop = [], threading.Event()

    def fail():
        syncs.append(time.monotonic())
        raise StoreError("down")

    monkeypatch.setattr(kb, "sync", fail)
    watcher = threading.Thread(target=lambda: list(kb.watch(stop)))
    watcher.start()
    assert eventually(lambda: len(syncs) > 2)
    stop.set()
    watcher.join()
    assert syncs[2] - syncs[1] > 1.5 * (syncs[1] - syncs[0])


def test_the_neighbours_of_a_match_are_at_hand(folder, tmp_path):
    long = "\n\n".join(f"## Part {i}\n\n" + f"word{i} " * 80 for i in range(5))
    write_files(folder, {"long.md": f"---\nkeywords: [long one]\n---\n# Long\n\n{long}\n"})
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        match = lookup(kb, "word2 word2")["primary"]
        assert [p.heading for p in kb.surrounding_passages(match)] == [
            "Long > Part 1",
            "Long > Part 2",
            "Long > Part 3",
        ]
        assert [p.heading for p in kb.surrounding_passages(match, 0)] == ["Long > Part 2"]
        alone = create_lookup_knowledge_graph(
            kb, record=None, options=LookupOptions(l1_enabled=False)
        )
        assert [
            p.number
            for p in kb.surrounding_passages(alone.invoke({"query": "long one"})["primary"])
        ] == [0, 1]
        write_files(folder, {"long.md": "# Long\n\nGone.\n"})
        kb.sync()
        assert kb.surrounding_passages(match) == []


def test_what_surrounds_the_best_of_several_passages_and_a_cut_one_is_at_hand(folder):
    parts = "\n\n".join(f"## Part {i}\n\n" + f"In part {i} is word{i}. " * 20 for i in range(6))
    write_files(folder, {"long.md": f"# Long\n\n{parts}\n"})
    with KnowledgeBase.open(folder, embedding=WordEmbeddings()) as kb:
        options = LookupOptions(max_chars=550, k=1)
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        cut = graph.invoke({"query": "word4"})["matches"][0]
        several = lookup(kb, "word4 of word3")
        assert len(cut["snippet"]) < 300
        assert [p.heading for p in kb.surrounding_passages(cut, 0)] == ["Long > Part 4"]
        match = several["primary"]
        assert len(match["passages"]) > 1
        assert match["heading"] in [p.heading for p in kb.surrounding_passages(match, 0)]


def test_an_emptied_folder_does_not_empty_the_index_by_a_rebuild_either(folder, kb):
    for path in folder.rglob("*.md"):
        path.unlink()
    with pytest.raises(StoreError, match="has no entries any more"):
        kb.sync(rebuild=True)
    assert len(kb.index.contents().digests) == 3
    assert kb.sync(rebuild=True, allow_empty=True).entries == 0


class OneBadPassage(WordEmbeddings):
    def embed_documents(self, texts):
        return [
            [float("nan")] * 64 if "unusable" in text else self.embed_query(text) for text in texts
        ]


def test_a_lone_passage_without_a_usable_vector_is_kept_for_its_words(folder):
    with KnowledgeBase.open(folder, embedding=OneBadPassage()) as kb:
        write_files(folder, {"odd.md": "# Odd\n\nunusable zebras.\n"})
        assert kb.sync().renewed == 1
        assert "odd.md" in [match["entry_id"] for match in lookup(kb, "zebras")["matches"]]


def test_after_close_a_sync_opens_again(folder, kb):
    kb.close()
    write_files(folder, {"it/vpn.md": VPN.replace("laptop", "phone")})
    assert kb.sync().embedded == 1


def test_a_sync_waits_for_the_one_in_the_background(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, background=True) as kb:
        assert kb.sync().embedded == 0
        assert kb.health()["index"] == "current"


def test_health_tells_of_an_index_that_is_missing(folder, embedding):
    with KnowledgeBase.open(folder, embedding=embedding, sync=False) as kb:
        assert kb.health()["index"] == "missing"
