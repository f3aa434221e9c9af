"""The standard tests that LangChain has for tools and retrievers."""

import pytest
from conftest import FILES, WordEmbeddings, write_files
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupKnowledgeRetriever,
    create_lookup_knowledge_tool,
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with KnowledgeBase.open(
        write_files(tmp_path_factory.mktemp("kb"), FILES), embedding=WordEmbeddings()
    ) as kb:
        yield kb


class _Tool:
    @pytest.fixture(autouse=True)
    def _knowledge_base(self, opened):
        type(self).kb = opened

    @property
    def tool_constructor(self):
        return create_lookup_knowledge_tool(self.kb)

    @property
    def tool_invoke_params_example(self):
        return {"query": "refund"}


class TestToolUnit(_Tool, ToolsUnitTests):
    pass


class TestToolIntegration(_Tool, ToolsIntegrationTests):
    pass


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _knowledge_base(self, opened):
        type(self).kb = opened

    @property
    def retriever_constructor(self):
        return LookupKnowledgeRetriever

    @property
    def retriever_constructor_params(self):
        return {"knowledge_base": self.kb}

    @property
    def retriever_query_example(self):
        return "refund or parental leave or vpn"


def test_documents_say_how_they_were_found(opened):
    retriever = LookupKnowledgeRetriever(knowledge_base=opened, k=1).with_details()
    document = retriever.invoke("refund")[0]
    assert document.metadata["source"] == "billing/refunds.md"
    assert document.page_content == "Refunds take five days."
    assert document.metadata["layers"] == ["L0", "L1"]
    assert document.metadata["matched"][0] == {"field": "keywords", "text": "refund"}
    assert document.metadata["score"] > 0


async def test_the_retriever_takes_k_in_each_call_awaited_and_in_batches(opened):
    retriever = LookupKnowledgeRetriever(knowledge_base=opened, k=2)
    query = "refund or parental leave or vpn"
    assert [len(retriever.invoke(query, k=k)) for k in (1, 3)] == [1, 3]
    assert len(retriever.invoke(query)) == len(await retriever.ainvoke(query)) == 2
    assert len(await retriever.ainvoke(query, k=1)) == 1
    refund, vpn = retriever.batch(["refund", "vpn"])
    assert (refund[0].metadata["source"], vpn[0].metadata["source"]) == (
        "billing/refunds.md",
        "it/vpn.md",
    )


def test_the_retriever_drops_into_a_chain(opened):
    chain = LookupKnowledgeRetriever(knowledge_base=opened, k=1) | (
        lambda documents: documents[0].page_content
    )
    assert chain.invoke("refund") == "Refunds take five days."


def test_the_retriever_makes_one_recorder_for_every_k(opened):
    retriever = LookupKnowledgeRetriever(knowledge_base=opened)
    for k in (1, 2, 3):
        retriever.invoke("refund", k=k)
    assert len(opened._closing) == 1
