"""Collections shared with langchain-qdrant: theirs read, ours opened by it."""

import pytest
from conftest import FILES, WordEmbeddings, write_files
from langchain_core.documents import Document
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    QdrantIndex,
    StoreError,
    create_lookup_knowledge_graph,
)

DOCUMENTS = [
    Document(
        "Refunds take five days.",
        metadata={"source": "/kb/billing/refunds.md", "category": "Billing"},
    ),
    Document(
        "Parental leave is twelve weeks.",
        metadata={"source": "/kb/hr/leave.md", "category": ["HR"], "title": "Leave"},
    ),
    Document("Install the VPN client.", metadata={"source": "/kb/it/vpn.md", "category": "IT"}),
]


@pytest.fixture
def client():
    client = QdrantClient(":memory:")
    yield client
    client.close()


@pytest.fixture
def theirs(client):
    """A collection that langchain-qdrant made."""
    client.create_collection("kb", models.VectorParams(size=64, distance=models.Distance.COSINE))
    QdrantVectorStore(client, "kb", WordEmbeddings()).add_documents(DOCUMENTS)
    return client


def lookup(folder, index, query, embedding=None, **options):
    with KnowledgeBase.open(folder, index=index, embedding=embedding or WordEmbeddings()) as kb:
        graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(**options))
        return graph.invoke({"query": query})


def existing(client, **arguments):
    return QdrantIndex.from_existing("", "kb", client=client, **{"root": "/kb/", **arguments})


def test_an_existing_collection_takes_part(folder, theirs):
    result = lookup(folder, existing(theirs), "how long is parental leave", filter_mode="strict")
    assert (result["retrieval_layer"], result["l1"]["status"]) == ("L0+L1", "ok")
    assert result["filter"]["category"] == "HR"
    assert [match["entry_id"] for match in result["matches"]] == ["hr/leave.md"]
    assert result["matches"][0]["snippet"] == "Parental leave is twelve weeks."
    assert result["primary"]["layers"] == ["L0", "L1"]
    assert result["primary"]["similarity"] > 0.4


def test_categories_are_sought_as_the_files_write_them(folder, theirs):
    assert lookup(folder, existing(theirs), "refund", filter_mode="strict")["primary"][
        "categories"
    ] == ["Billing"]


def test_an_existing_collection_is_never_written(folder, theirs):
    before = theirs.count("kb").count
    with (
        KnowledgeBase.open(folder, index=existing(theirs), embedding=WordEmbeddings()) as kb,
        pytest.raises(StoreError, match="created elsewhere, so it is read-only"),
    ):
        kb.sync(rebuild=True)
    assert theirs.count("kb").count == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"content_key": "body"},
            'no passage of the collection has a text under "body": set content_key',
        ),
        ({"entry_key": "path"}, 'no passage of the collection has "metadata.path": set entry_key'),
        ({"vector_name": "big"}, 'the collection has no dense vector "big": vector_name is one of'),
    ],
)
def test_wrong_keys_are_named(folder, theirs, arguments, reason):
    result = lookup(folder, existing(theirs, **arguments), "refund")
    assert (result["l1"]["status"], result["retrieval_layer"]) == ("failed", "L0")
    assert result["l1"]["reason"].startswith(reason)


def test_other_dimensions_and_distances_are_refused(folder, client):
    client.create_collection("kb", models.VectorParams(size=8, distance=models.Distance.COSINE))
    assert (
        "embedding is 64-d, collection is 8-d: open it with the embedding model"
        in lookup(folder, existing(client), "refund")["l1"]["reason"]
    )
    client.delete_collection("kb")
    client.create_collection("kb", models.VectorParams(size=64, distance=models.Distance.DOT))
    assert (
        "not by cosine: it cannot be searched"
        in lookup(folder, existing(client), "refund")["l1"]["reason"]
    )


def test_a_flat_payload_is_read_too(folder, client):
    client.create_collection(
        "kb", {"text": models.VectorParams(size=64, distance=models.Distance.COSINE)}
    )
    payload = {"body": "Refunds take five days.", "file": "billing\\refunds.md", "area": "Billing"}
    vector = {"text": WordEmbeddings().embed_query("Refunds take five days.")}
    client.upsert(
        "kb",
        [
            models.PointStruct(id=1, vector=vector, payload=payload),
            models.PointStruct(id=2, vector=vector),
        ],
    )
    index = QdrantIndex.from_existing(
        "",
        "kb",
        client=client,
        vector_name="text",
        content_key="body",
        metadata_key="",
        entry_key="file",
        category_key="area",
    )
    result = lookup(folder, index, "refunds")
    assert (result["primary"]["entry_id"], result["l1"]["candidates"]) == ("billing/refunds.md", 1)


def test_langchain_qdrant_opens_ours(tmp_path, client):
    folder = write_files(tmp_path / "kb", FILES)
    with KnowledgeBase.open(
        folder, index=QdrantIndex("", "kb", client=client), embedding=WordEmbeddings()
    ) as kb:
        kb.sync()
    store = QdrantVectorStore(client, "kb", WordEmbeddings(), vector_name="dense")
    (document,) = store.similarity_search("install the vpn client", k=1)
    assert document.page_content == "Install the VPN client on your laptop."
    assert document.metadata["source"] == "it/vpn.md"
    condition = models.FieldCondition(
        key="metadata.categories_key", match=models.MatchValue(value="hr")
    )
    (document,) = store.similarity_search(
        "install the vpn client", k=1, filter=models.Filter(must=[condition])
    )
    assert document.metadata["entry_id"] == "hr/leave.md"


def test_points_of_others_beside_ours_do_no_harm(folder, client):
    index = QdrantIndex("", "kb", client=client)
    with KnowledgeBase.open(folder, index=index, embedding=WordEmbeddings()) as kb:
        kb.sync()
        QdrantVectorStore(client, "kb", WordEmbeddings(), vector_name="dense").add_documents(
            DOCUMENTS
        )
        assert kb.sync().embedded == 0
        assert (
            create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})["l1"][
                "status"
            ]
            == "ok"
        )


@pytest.mark.parametrize("field", ["title", "source", "heading"])
def test_what_a_lying_server_stores_is_left_out(folder, client, field):
    with KnowledgeBase.open(
        folder, index=QdrantIndex("", "kb", client=client), embedding=WordEmbeddings()
    ) as kb:
        kb.sync()
        points, _ = client.scroll("kb", limit=10)
        client.set_payload("kb", {field: 5}, points=[point.id for point in points], key="metadata")
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "refund"})
    assert (result["status"], result["primary"]["layers"]) == ("ok", ["L0"])


def test_texts_of_others_are_cleaned(folder, client):
    client.create_collection("kb", models.VectorParams(size=64, distance=models.Distance.COSINE))
    text = "Refunds take five days. <!-- HIDDEN --> \u202e\u200b\x1b[31m"
    document = Document(text, metadata={"source": "/kb/billing/refunds.md"})
    QdrantVectorStore(client, "kb", WordEmbeddings()).add_documents([document])
    assert (
        lookup(folder, existing(client), "refunds")["matches"][0]["snippet"]
        == "Refunds take five days.  [31m"
    )
