"""The eight rules of the product, each by its title, through the compiled graph with Qdrant Edge
and SQLite.
"""

from langchain_lookup_knowledge import (
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.l1.stores.embedded_index import EmbeddedIndex
from langchain_lookup_knowledge.l1.stores.vector_index import CATEGORY_FIELD


class WatchedIndex(EmbeddedIndex):
    """The real index, noting the filters it is sent."""

    def __init__(self, folder):
        super().__init__(folder)
        self.filters = []

    def search(self, dense, text, filters, limit):
        self.filters.append(filters)
        return super().search(dense, text, filters, limit)


def watch(kb):
    kb.l1.index = WatchedIndex(kb.data_folder / "index")
    return kb.index


def test_l0_produces_traceable_hint_data(ask):
    hints = ask("Stripe refund")["hints"]
    assert hints["titles"] == ["Refunds"]
    assert hints["keywords"] == ["refund"]
    assert hints["domains"] == ["Billing"]
    assert hints["entities"] == ["Stripe"]
    assert hints["entries"][0]["entry_id"] == "billing/refunds.md"


def test_l0_does_not_bypass_semantic_retrieval_by_default(kb, ask):
    index = watch(kb)
    result = ask("refund")
    assert len(index.filters) == 1
    assert result["l1"]["status"] == "ok"
    assert result["primary"]["similarity"] is not None


def test_l0_answers_alone_when_l1_is_disabled_by_configuration(kb, ask):
    index = watch(kb)
    result = ask("refund", options=LookupOptions(l1_enabled=False))
    assert index.filters == []
    assert (result["l1"]["status"], result["retrieval_layer"], result["status"]) == (
        "disabled",
        "L0",
        "ok",
    )


def test_single_domain_filter(kb, ask):
    index = watch(kb)
    result = ask("refund", options=LookupOptions(filter_mode="strict"))
    assert index.filters == [[[(CATEGORY_FIELD, ["billing"])]]]
    assert result["filter"] == {"category": "Billing", "reason": "single_domain", "relaxed": False}
    assert {match["entry_id"] for match in result["matches"]} == {"billing/refunds.md"}


def test_ambiguous_domain_fallback(kb, ask):
    index = watch(kb)
    several, none = ask("refund for the vpn"), ask("how do I get there")
    assert index.filters == [[[]], [[]]]
    assert several["filter"] == {"category": None, "reason": "several_domains", "relaxed": False}
    assert none["filter"] == {"category": None, "reason": "no_domain", "relaxed": False}


def test_l1_has_no_results(ask):
    result = ask("refund", options=LookupOptions(min_similarity=0.99))
    assert result["l1"]["status"] == "below_threshold"
    assert result["primary"]["layers"] == ["L0"]
    assert result["relevance"]["semantic_support"] is False
    assert result["retrieval_layer"] == "L0"


def test_l1_fails(kb, ask, embedding, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    embedding.failure = RuntimeError("401 https://api.example/v1?api_key=sk-SECRET")
    result = ask("refund", record=recorder)
    assert result["primary"]["entry_id"] == "billing/refunds.md"
    assert (result["status"], result["retrieval_layer"], result["l1"]["status"]) == (
        "degraded",
        "L0",
        "failed",
    )
    (row,) = recorder.invocations()
    assert row["retrieval_details"]["l0_hints"]["keywords"] == ["refund"]
    assert "RuntimeError" in row["retrieval_details"]["l1"]["reason"]
    assert "SECRET" not in str(row) + str(result)


def test_l1_times_out(kb, ask, embedding):
    import threading

    release = threading.Event()
    embedding.embed_query = lambda text: release.wait(5) and [0.0] * 64
    result = ask("refund", options=LookupOptions(l1_timeout=0.05))
    release.set()
    assert (result["status"], result["retrieval_layer"], result["l1"]["status"]) == (
        "degraded",
        "L0",
        "timeout",
    )
    assert result["primary"]["entry_id"] == "billing/refunds.md"


def test_retrieval_details_include_l0_hints(kb, tmp_path):
    recorder = SQLInvocationRecorder(f"sqlite:///{tmp_path / 'calls.db'}")
    result = create_lookup_knowledge_graph(kb, record=recorder).invoke({"query": "Stripe refund"})
    (row,) = recorder.invocations()
    assert row["id"] == result["invocation_id"]
    hints = row["retrieval_details"]["l0_hints"]
    assert (hints["keywords"], hints["domains"]) == (["refund"], ["Billing"])
    assert (hints["entities"], hints["titles"]) == (["Stripe"], ["Refunds"])


def test_retrieval_layer_reflects_cooperating_retrieval(ask):
    assert ask("refund")["retrieval_layer"] == "L0+L1"
    assert ask("laptop")["retrieval_layer"] == "L1"
