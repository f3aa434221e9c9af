"""Rerankers: they order the passages that were found, and a lookup answers without one that
fails.
"""

import threading

import pytest
from conftest import FILES, write_files
from langchain_core.documents import BaseDocumentCompressor, Document
from parts.cross_encoder import make_cross_encoder
from parts.found import candidate, passage
from pydantic import ConfigDict, Field

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.errors import EmbeddingError
from langchain_lookup_knowledge.l1.circuit_breaker import CircuitBreaker
from langchain_lookup_knowledge.l1.models.reranking import (
    CompressorScorer,
    CrossEncoderScorer,
    Reranker,
    as_reranker,
)

QUERY = "how many days until it is done"
"""Words of no title, keyword or entity: hints take no part."""


class Contains(BaseDocumentCompressor):
    """Puts documents with a word first; may drop the others, score them, fail or hang."""

    word: str
    drops: bool = False
    scored: bool = False
    failure: Exception | None = None
    release: threading.Event | None = None
    seen: list[list[str]] = Field(default_factory=list)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def compress_documents(self, documents, query, callbacks=None):
        self.seen.append([document.page_content for document in documents])
        if self.release:
            self.release.wait(60)
        if self.failure:
            raise self.failure
        if self.scored:  # in the order in which they came, as copies
            return [
                Document(
                    page_content=document.page_content,
                    metadata={
                        **document.metadata,
                        "relevance_score": float(self.word in document.page_content),
                    },
                )
                for document in documents
            ]
        first = [document for document in documents if self.word in document.page_content]
        return first if self.drops else [*first, *(d for d in documents if d not in first)]


@pytest.fixture
def opened(folder, embedding):
    made = []

    def open_with(**arguments):
        made.append(KnowledgeBase.open(folder, embedding=embedding, **arguments))
        return made[-1]

    yield open_with
    for kb in made:
        kb.close()


def ask(kb, query=QUERY, record=None, **options):
    graph = create_lookup_knowledge_graph(kb, record=record, options=LookupOptions(**options))
    return graph.invoke({"query": query})


def ids(result):
    return [match["entry_id"] for match in result["matches"]]


@pytest.mark.parametrize("how", [{}, {"drops": True}, {"scored": True}])
def test_the_order_is_that_of_the_compressor(opened, how):
    without = ids(ask(opened()))
    last = without[-1]
    word = {"it/vpn.md": "laptop", "hr/leave.md": "twelve", "billing/refunds.md": "five"}[last]
    result = ask(opened(rerank=Contains(word=word, **how)))
    assert ids(result) == [last, *without[:-1]]
    assert result["l1"]["reranked"] is True
    assert result["l1"]["reason"] is None
    scores = [match["score"] for match in result["matches"]]
    assert scores == sorted(set(scores), reverse=True)


def test_a_compressor_gets_each_passage_once_with_its_title(opened):
    compressor = Contains(word="five")
    ask(opened(rerank=compressor))
    (seen,) = compressor.seen
    assert sorted(seen) == [
        "Parental leave\nParental leave is twelve weeks.",
        "Refunds\nRefunds take five days.",
        "VPN\nInstall the VPN client on your laptop.",
    ]


def test_without_a_reranker_the_report_has_no_such_key(opened):
    assert "reranked" not in ask(opened())["l1"]


def test_passages_of_an_entry_and_across_entries_follow_the_scores():
    found = [
        candidate("a", score=0.9, passages=[passage("one", 0.8, 0), passage("two", 0.7, 1)]),
        candidate("b", score=0.5, passages=[passage("three", 0.6, 0), passage("four", 0.5, 1)]),
        candidate("c", score=0.5, passages=[passage("five", 0.5, 0)]),
    ]
    other = [candidate("b", score=0.4, passages=[passage("three", 0.3), passage("four", 0.2, 1)])]
    reranker = Reranker(CompressorScorer(Contains(word="f", drops=True)))
    assert reranker.rerank("?", [found, other]) is None
    shown = [(c["entry_id"], [(p["text"], p["score"]) for p in c["passages"]]) for c in found]
    assert shown == [
        ("b", [("four", 0.8), ("three", 0.5)]),
        ("c", [("five", 0.7)]),
        ("a", [("one", 0.6), ("two", 0.500001)]),
    ]
    assert [c["score"] for c in found] == [0.9, 0.500001, 0.5]
    assert [p["text"] for p in other[0]["passages"]] == ["four", "three"]
    assert other[0]["score"] == 0.4


def test_a_failure_keeps_the_order_and_is_in_the_reason_without_its_text(opened, caplog):
    without = ask(opened())
    kb = opened(rerank=Contains(word="laptop", failure=RuntimeError("sk-SECRET")))
    for _ in range(2):
        result = ask(kb)
        assert (result["status"], ids(result)) == ("ok", ids(without))
        assert result["l1"]["reranked"] is False
        assert result["l1"]["reason"] == (
            "the passages were not reranked: the reranker failed with RuntimeError"
        )
    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert logged == ["the reranker failed: the reranker failed with RuntimeError"]
    assert "SECRET" not in caplog.text


def test_a_reranker_that_hangs_costs_no_more_than_the_time_of_the_lookup(opened):
    release = threading.Event()
    without = ask(opened())
    kb = opened(rerank=Contains(word="laptop", release=release))
    result = ask(kb, l1_timeout=0.5)
    assert (result["status"], ids(result)) == ("ok", ids(without))
    assert result["l1"]["reranked"] is False
    assert result["l1"]["reason"] == (
        "the passages were not reranked: the reranker did not finish in time"
    )
    release.set()


def test_after_failures_in_a_row_the_reranker_is_not_called_for_a_while():
    compressor = Contains(word="f", failure=RuntimeError("down"))
    breaker = CircuitBreaker(failures=2, pause=60)
    reranker = Reranker(CompressorScorer(compressor), breaker=breaker)
    reasons = [reranker.rerank("?", [[candidate("a")]]) for _ in range(3)]
    assert len(compressor.seen) == 2
    assert "not reranked: not asked after 2 failures in a row" in reasons[-1]


class Forgetful(BaseDocumentCompressor):
    """Returns documents of its own, with the text of the last one or another."""

    text: str | None = None

    def compress_documents(self, documents, query, callbacks=None):
        return [Document(page_content=self.text or documents[-1].page_content)]


def test_a_document_that_was_not_given_is_a_failure(opened):
    report = ask(opened(rerank=Forgetful(text="new")))["l1"]
    assert report["reranked"] is False
    assert "returned a document that it was not given" in report["reason"]


def test_a_document_without_its_metadata_is_known_by_its_text(opened):
    result = ask(opened(rerank=Forgetful()))
    assert result["l1"]["reranked"] is True
    assert ids(result)[0] == ids(ask(opened()))[-1]


def test_nothing_found_is_not_reranked(opened):
    report = ask(opened(rerank=Contains(word="five")), min_similarity=0.99)["l1"]
    assert (report["status"], report["reranked"]) == ("below_threshold", False)


def test_where_the_model_fails_nothing_is_reranked(opened, embedding):
    kb = opened(rerank=Contains(word="five"))
    embedding.failure = RuntimeError("down")
    report = ask(kb)["l1"]
    assert (report["status"], report["reranked"]) == ("failed", False)


@pytest.mark.parametrize("failure", [None, RuntimeError("down")])
def test_a_filter_that_is_relaxed_keeps_what_is_said_of_the_reranker(opened, failure):
    kb = opened(rerank=Contains(word="laptop", failure=failure))
    result = ask(kb, "refund: the client to install on a laptop")
    assert result["filter"]["relaxed"]
    assert result["l1"]["reranked"] is (failure is None)
    assert ("not reranked" in (result["l1"]["reason"] or "")) is bool(failure)


def test_the_record_says_whether_the_passages_were_reranked(opened, folder):
    recorder = SQLInvocationRecorder.in_file(folder / "records.db")
    ask(opened(rerank=Contains(word="five")), record=recorder)
    ask(opened(rerank=Forgetful(text="new")), record=recorder)
    rows = {row["retrieval_details"]["l1"]["reranked"] for row in recorder.invocations(limit=9)}
    recorder.close()
    assert rows == {True, False}


def test_documents_are_reranked_too_and_the_settings_know_nothing_of_it(tmp_path, embedding):
    documents = [
        Document(page_content=text, metadata={"source": name}) for name, text in FILES.items()
    ]
    with KnowledgeBase.from_documents(
        documents, data_dir=tmp_path / "data", embedding=embedding, rerank=Contains(word="laptop")
    ) as kb:
        result = ask(kb)
        assert (ids(result)[0], result["l1"]["reranked"]) == ("it/vpn.md", True)
    assert "rerank" not in (tmp_path / "data" / "settings.json").read_text("utf-8")


def test_what_cannot_rerank_is_refused(folder):
    with pytest.raises(ValueError, match=r"rerank takes a LangChain BaseDocumentCompressor .* int"):
        KnowledgeBase.open(folder, rerank=3)
    assert as_reranker(None) is None


def test_a_name_that_fastembed_does_not_know_fails_at_open_with_those_near(folder):
    near = r"did you mean 'BAAI/bge-reranker-base' or '"
    with pytest.raises(ValueError, match=f"FastEmbed knows no reranker 'bge-reranker': {near}"):
        KnowledgeBase.open(folder, rerank="bge-reranker")


@pytest.fixture
def cross_encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "models"))
    return make_cross_encoder(tmp_path / "models")


def test_a_cross_encoder_orders_the_passages(opened, cross_encoder):
    query = "five days, five days"
    assert ids(ask(opened(), query))[0] == "billing/refunds.md"
    result = ask(opened(rerank=cross_encoder), query)
    assert ids(result)[-1] == "billing/refunds.md"
    assert result["l1"]["reranked"] is True


def test_a_cross_encoder_gives_one_score_for_each_text(cross_encoder):
    texts = ["Refunds take five days."] * 9 + ["Install the client."]
    scores = CrossEncoderScorer(cross_encoder).scores("five days", texts)
    assert len(scores) == 10
    assert len({round(score, 3) for score in scores[:9]}) == 1
    assert scores[9] > scores[0]


def test_a_lookup_fetches_no_cross_encoder(tmp_path, monkeypatch, cross_encoder):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "none"))
    with pytest.raises(EmbeddingError, match=r"cannot load the reranker .* call kb\.sync\(\)"):
        CrossEncoderScorer(cross_encoder).scores("five days", ["Refunds take five days."])


def test_without_an_index_a_reranker_is_not_loaded(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "models"))
    folder = write_files(tmp_path / "kb", FILES)
    with KnowledgeBase.open(folder, index=None, rerank="BAAI/bge-reranker-base") as kb:
        assert "reranked" not in ask(kb, "refund")["l1"]
    assert caplog.text == ""
    assert not (tmp_path / "models").exists()
