"""The retriever as a building block: equal passages are equal documents, whatever was asked."""

import pytest
from conftest import WordEmbeddings, write_files
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from parts.cases import read_cases, write_case

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase, LookupKnowledgeRetriever

STABLE = {"title", "source", "heading", "lines", "categories"}
DETAILS = {
    "score",
    "similarity",
    "layers",
    "matched",
    "status",
    "retrieval_layer",
    "relevance",
    "invocation_id",
}
CITED = """---
title: Cited
URL: https://x.example/cited
author: [Ann, Bob]
updated: 2026-03-01
owner: Carol
---
# First

Alpha beta.

# Second

Gamma delta.
"""


@pytest.mark.parametrize("words", [1, 150])
def test_the_same_passages_are_equal_documents(tmp_path, embedding, words):
    """Also if each query has another best passage of them."""
    text = "\n\n".join(f"# {name}\n\n{name} {'filler ' * words}" for name in ("Alpha", "Gamma"))
    with KnowledgeBase.open(write_files(tmp_path, {"a.md": text}), embedding=embedding) as kb:
        retriever = LookupKnowledgeRetriever(knowledge_base=kb)
        best = [
            retriever.with_details().invoke(query)[0].metadata["matched"]
            for query in ("alpha", "gamma")
        ]
        first, second = (retriever.invoke(query) for query in ("alpha", "gamma"))
    assert best[0] != best[1]
    assert first == second
    (document,) = first
    assert (document.metadata["heading"], document.metadata["lines"]) == ("Alpha", [3, 7])


def test_ids_tell_passages_apart(kb):
    retriever = LookupKnowledgeRetriever(knowledge_base=kb)
    documents = retriever.invoke("refund or parental leave or vpn")
    assert len({document.id for document in documents}) == len(documents) == 3
    assert all(set(document.metadata) == STABLE for document in documents)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        (
            FrontmatterFields(),
            {
                "url": "https://x.example/cited",
                "author": ["Ann", "Bob"],
                "updated": "2026-03-01",
            },
        ),
        (FrontmatterFields(shown=("Owner", "missing")), {"Owner": "Carol"}),
        (FrontmatterFields(shown=()), {}),
    ],
)
def test_a_citation_has_the_frontmatter_that_is_shown(tmp_path, embedding, fields, shown):
    folder = write_files(tmp_path / "cited", {"cited.md": CITED})
    with KnowledgeBase.open(folder, embedding=embedding, fields=fields) as kb:
        (document,) = LookupKnowledgeRetriever(knowledge_base=kb).invoke("alpha")
    assert {key: value for key, value in document.metadata.items() if key not in STABLE} == shown


async def test_details_are_a_copy_away(kb):
    retriever = LookupKnowledgeRetriever(knowledge_base=kb)
    plain, detailed = retriever.invoke("refund"), await retriever.with_details().ainvoke("refund")
    assert set(detailed[0].metadata) == STABLE | DETAILS
    assert detailed[0].metadata["matched"][0] == {"field": "keywords", "text": "refund"}
    assert [document.id for document in plain] == [document.id for document in detailed]
    assert set(retriever.invoke("refund")[0].metadata) == STABLE


def test_px_33_langchain_removes_duplicates_of_several_queries(tmp_path):
    retrievers = pytest.importorskip("langchain_classic.retrievers")
    case = read_cases("reports")["PX-33"]
    rewrites = FakeListChatModel(responses=["how hot is the kiln\nkiln temperature, degrees"])
    with KnowledgeBase.open(write_case(tmp_path / "kb", case), embedding=WordEmbeddings()) as kb:
        retriever = retrievers.MultiQueryRetriever.from_llm(
            retriever=LookupKnowledgeRetriever(knowledge_base=kb), llm=rewrites
        )
        documents = retriever.invoke(case["input"]["query"])
    sources = [document.metadata["source"] for document in documents]
    assert sorted(sources) == sorted(set(sources)) == ["a.md", "c.md"]
    assert all(isinstance(document, Document) for document in documents)


@pytest.mark.parametrize(
    ("query", "lines", "embedded"),
    [
        ("opening hours phone", [3, 5], [{"source": "contact.md", "lines": [3, 4]}]),
        ("bread", None, [{"source": "many.md", "lines": [4 * n + 3] * 2} for n in range(6)]),
        ("garden", [3, 3], None),
    ],
)
def test_lines_are_those_of_the_source_and_embedded_text_has_its_own(
    tmp_path, query, lines, embedded
):
    files = {
        "contact.md": "# Reach us\n\nPhone 555, every\nworking day.\n",
        "host.md": "# Visit\n\n![[contact]]\n\nOpening hours.\n",
        "bare.md": "![[many]]\n",
        "many.md": "\n".join(f"# Bread {n}\n\n{'Bread salt. ' * 90}\n" for n in range(6)),
        "other.md": "# Garden\n\nThe garden.\n",
    }
    with KnowledgeBase.open(write_files(tmp_path, files), embedding=WordEmbeddings()) as kb:
        found = LookupKnowledgeRetriever(knowledge_base=kb, k=5).invoke(query)
    source = {"garden": "other.md", "bread": "bare.md"}.get(query, "host.md")
    (document,) = (one for one in found if one.metadata["source"] == source)
    assert document.metadata["lines"] == lines
    own = document.metadata.get("embedded")
    assert own == embedded or (lines is None and own and all(one in embedded for one in own))
