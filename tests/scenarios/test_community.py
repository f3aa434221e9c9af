"""Documents of loaders become entries; langchain-community's embeddings plug in."""

import os
import warnings
from pathlib import Path

import pytest
from conftest import write_files
from langchain_core.documents import Document

from langchain_lookup_knowledge import (
    DocumentError,
    FrontmatterFields,
    KnowledgeBase,
    create_lookup_knowledge_tool,
)
from langchain_lookup_knowledge.reading.metadata.frontmatter import MAX_VALUE_CHARS
from langchain_lookup_knowledge.scope import is_visible

DOCUMENTS = [
    Document(
        "Refunds take five days.",
        metadata={
            "source": "refunds.pdf",
            "title": "Refunds",
            "keywords": ["refund", "C++"],
            "Category": "Billing",
        },
    ),
    Document(
        "Parental leave is twelve weeks.",
        metadata={"source": "https://x.example/leave?a=1", "tags": "leave, hr"},
    ),
    Document("Page two.", metadata={"source": "refunds.pdf", "page": 2, "aliases": ("Stripe",)}),
    Document("# VPN\n\nInstall the client."),
]


@pytest.fixture
def opened(tmp_path, embedding):
    with KnowledgeBase.from_documents(
        DOCUMENTS, data_dir=tmp_path / "manual", embedding=embedding
    ) as kb:
        yield kb


def test_metadata_is_read_as_frontmatter(opened):
    refunds, leave, second, vpn = opened.entries
    assert (refunds.entry_id, refunds.title, refunds.categories) == (
        "refunds.pdf",
        "Refunds",
        ("Billing",),
    )
    assert refunds.keywords == ("refund", "C++")
    assert (leave.entry_id, leave.keywords) == ("https://x.example/leave?a=1", ("leave", "hr"))
    assert (second.entry_id, second.entities, second.text.strip()) == (
        "refunds.pdf#2",
        ("Stripe",),
        "Page two.",
    )
    assert (vpn.entry_id, vpn.title) == ("document-4", "VPN")
    assert opened.problems == []


def test_the_tool_answers_from_documents(opened):
    tool = create_lookup_knowledge_tool(opened)
    result = tool.invoke(
        {"type": "tool_call", "name": tool.name, "args": {"query": "refund"}, "id": "c"}
    ).artifact
    assert result["primary"]["source"] == "refunds.pdf"
    assert (result["retrieval_layer"], result["recorded"]) == ("L0+L1", "stored")
    assert "'manual' (4 entries)" in tool.description


def test_only_changed_documents_are_embedded_again(opened, tmp_path, embedding):
    opened.close()
    embedding.embedded.clear()
    changed = [DOCUMENTS[0], Document("Sixteen weeks.", metadata=DOCUMENTS[1].metadata)]
    with KnowledgeBase.from_documents(
        changed, data_dir=tmp_path / "manual", embedding=embedding
    ) as kb:
        assert len(kb.entries) == 2
        assert [text.splitlines()[-1] for text in embedding.embedded] == ["Sixteen weeks."]
        assert kb.sync().embedded == 0


@pytest.mark.parametrize(
    "value",
    [
        "a: b",
        "- x",
        "#foo",
        '"',
        "---",
        "{x: y}",
        "a\u2028b",
        "on",
        "x" * 3000,
        "\N{GRINNING FACE}",
    ],
)
def test_any_title_comes_back_as_it_was(tmp_path, value):
    document = Document("Text.", metadata={"source": "s", "title": value})
    with KnowledgeBase.from_documents([document], data_dir=tmp_path, index=None) as kb:
        assert kb.entries[0].title == " ".join(value.split())[:MAX_VALUE_CHARS]


def test_text_with_frontmatter_of_its_own_is_read_as_a_file_is(tmp_path):
    text = "---\ntitle: Leave\nkeywords: [leave]\n---\nTwelve weeks.\n"
    with KnowledgeBase.from_documents([Document(text)], data_dir=tmp_path, index=None) as kb:
        assert (kb.entries[0].title, kb.entries[0].keywords) == ("Leave", ("leave",))


def test_values_that_are_no_text_are_told(tmp_path):
    document = Document("Text.", metadata={"source": "s", "topics": {"a": 1}, "title": None})
    fields = FrontmatterFields(keywords=("topics",))
    with KnowledgeBase.from_documents(
        [document], data_dir=tmp_path, index=None, fields=fields
    ) as kb:
        assert "topics: a mapping is ignored" in str(kb.problems[0])
        assert kb.entries[0].title == "s"


def test_a_document_without_text_is_what_its_metadata_say(tmp_path):
    documents = [
        Document("", metadata={"source": Path("a/b.pdf"), "title": "Refund", "keywords": ["RMA"]})
    ]
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert [(entry.entry_id, entry.keywords) for entry in kb.entries] == [("a/b.pdf", ("RMA",))]
        assert kb.problems == []


def test_documents_cannot_be_watched(opened):
    with pytest.raises(ValueError, match="no folder to watch"):
        next(opened.watch())


def test_no_document_is_told(tmp_path):
    with KnowledgeBase.from_documents([], data_dir=tmp_path, index=None) as kb:
        assert "there are no documents" in str(kb.problems[0])


def test_a_data_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DocumentError, match="cannot be written"):
        KnowledgeBase.from_documents([], data_dir=tmp_path / "file")


@pytest.fixture
def community():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is sunset, and says so at import
        pytest.importorskip("langchain_community")
        yield


def test_a_community_loader_and_its_embeddings(community, tmp_path, monkeypatch):
    from langchain_community.document_loaders import DirectoryLoader, TextLoader
    from langchain_community.embeddings import FastEmbedEmbeddings

    import langchain_lookup_knowledge.l1.models.embeddings as ours

    folder = write_files(
        tmp_path / "texts", {"a.txt": "Refunds take five days.", "b.txt": "The VPN needs a client."}
    )
    documents = DirectoryLoader(str(folder), glob="*.txt", loader_cls=TextLoader).load()
    ours._load_bundled(
        {"threads": 1}
    )  # registers the bundled model, the only one that needs no network, by its name
    embedding = FastEmbedEmbeddings.model_construct(model_name=ours.DEFAULT_MODEL)
    embedding.model = ours._load_bundled({"threads": 1})
    with KnowledgeBase.from_documents(
        documents, data_dir=tmp_path / "data", embedding=embedding
    ) as kb:
        tool = create_lookup_knowledge_tool(kb)
        call = {
            "type": "tool_call",
            "name": tool.name,
            "args": {"query": "how long until I get my money back"},
            "id": "c",
        }
        result = tool.invoke(call).artifact
    assert result["primary"]["source"].endswith("a.txt")
    assert result["primary"]["similarity"] > 0.3


NOTES = {
    "Billing/Refunds.md": "---\ntags: [refund, money back]\naliases: [Returns, 'R, MA']\n"
    "category: Billing\nowner:\ntenant: [acme, beta]\nurl: https://x.example/r\n---\n"
    "Refunds take five days. #urgent\n",
    "HR/Refunds.md": "---\ntitle: Refunds of travel\n---\nTrains are refunded.\n",
}


def test_notes_of_the_obsidian_loader_are_read_as_they_are_written(community, tmp_path, embedding):
    from langchain_community.document_loaders import ObsidianLoader

    vault = write_files(tmp_path / "vault", NOTES)
    fields = FrontmatterFields(category_from_path=1)
    for run in range(2):
        documents = ObsidianLoader(str(vault)).load()
        with KnowledgeBase.from_documents(
            documents, data_dir=tmp_path / "data", embedding=embedding, fields=fields
        ) as kb:
            entries = {
                Path(entry.entry_id).relative_to(vault).as_posix(): entry for entry in kb.entries
            }
            assert kb.problems == []
        if run == 0:
            embedding.embedded.clear()
            for path in vault.rglob("*.md"):
                os.utime(path, (1, 1))
    assert embedding.embedded == []
    assert set(entries) == set(NOTES)
    refunds, travel = (entries[name] for name in NOTES)
    assert set(refunds.keywords) == {"refund", "money back", "urgent"}
    assert (refunds.entities, refunds.categories) == (("Returns", "R, MA"), ("Billing",))
    assert (refunds.values("url"), refunds.values("owner")) == (["https://x.example/r"], [])
    assert is_visible(refunds, (("tenant", "beta"),))
    assert (travel.title, travel.categories) == ("Refunds of travel", ("HR",))


def test_pages_of_the_notion_loader_have_titles_without_their_ids(community, tmp_path):
    from langchain_community.document_loaders import NotionDirectoryLoader

    page = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
    files = {f"Desk {page}/Parking {page}.md": "Park behind the house.\n"}
    documents = NotionDirectoryLoader(str(write_files(tmp_path / "export", files))).load()
    with KnowledgeBase.from_documents(documents, data_dir=tmp_path / "data", index=None) as kb:
        assert [entry.title for entry in kb.entries] == ["Parking"]


def test_files_of_the_directory_loader_have_their_frontmatter_and_folders(community, tmp_path):
    from langchain_community.document_loaders import DirectoryLoader, TextLoader

    folder = str(write_files(tmp_path / "notes", NOTES))
    documents = DirectoryLoader(folder, glob="**/*.md", loader_cls=TextLoader).load()
    fields = FrontmatterFields(category_from_path=1)
    with KnowledgeBase.from_documents(
        documents, data_dir=tmp_path / "data", index=None, fields=fields
    ) as kb:
        found = sorted((entry.title, entry.categories, entry.keywords) for entry in kb.entries)
    assert found == [
        ("Refunds", ("Billing",), ("refund", "money back")),
        ("Refunds of travel", ("HR",), ()),
    ]


def test_metadata_of_documents_are_scopes_and_drafts_and_come_before_the_frontmatter_of_the_text(
    tmp_path,
):
    documents = [
        Document(
            "Acme's refunds.",
            metadata={"source": "acme", "tenant": ["acme"], "meta": {"triggers": ["RMA"]}},
        ),
        Document(
            "---\ntitle: Beta\ntenant: acme\n---\nBeta's refunds.",
            metadata={"source": "beta", "tenant": "beta"},
        ),
        Document("For all: refunds.", metadata={"source": "all", "public": True}),
        Document("Nobody's refunds.", metadata={"source": "draft", "draft": True}),
    ]
    fields = FrontmatterFields(keywords=("meta.triggers",), skip_drafts=True)
    with KnowledgeBase.from_documents(
        documents, data_dir=tmp_path, index=None, fields=fields
    ) as kb:
        entries = {entry.entry_id: entry for entry in kb.entries}
        assert {
            name: is_visible(entry, (("tenant", "acme"),)) for name, entry in entries.items()
        } == {
            "acme": True,
            "beta": False,
            "all": True,
        }
        assert entries["acme"].keywords == ("RMA",)
        assert (entries["beta"].title, entries["beta"].text.strip()) == ("Beta", "Beta's refunds.")
