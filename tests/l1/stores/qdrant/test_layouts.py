"""Collections that LlamaIndex, mcp-server-qdrant and langchain-qdrant made, read by one word."""

import json

import pytest
from conftest import WordEmbeddings, write_files
from langchain_core.documents import Document
from langchain_qdrant import QdrantVectorStore
from parts.cases import read_cases, write_case
from qdrant_client import QdrantClient, models

from langchain_lookup_knowledge import KnowledgeBase, QdrantIndex, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.stores.qdrant.layouts import guess_root

CASES = read_cases("reports")
TEXTS = {"a.md": "Fire the kiln to 1060 degrees.", "b.md": "The wheel turns left."}
DENSE = models.VectorParams(size=64, distance=models.Distance.COSINE)


@pytest.fixture
def client():
    made = QdrantClient(":memory:")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path):
    return write_case(tmp_path / "kb", CASES["PX-34"])


def fill(client, payload, vector_name="", vectors=None):
    """Make a collection of the two texts, each with the payload that a function returns."""
    client.create_collection("kb", vectors or ({vector_name: DENSE} if vector_name else DENSE))
    points = []
    for number, (path, text) in enumerate(TEXTS.items()):
        vector = WordEmbeddings().embed_query(text)
        named = {vector_name: vector} if vector_name else vector
        points.append(models.PointStruct(id=number, vector=named, payload=payload(path, text)))
    client.upsert("kb", points)


def node(path, text):
    """Return a payload as LlamaIndex's `QdrantVectorStore` writes it."""
    metadata = {"file_path": f"/srv/kb/{path}", "file_name": path}
    content = {"id_": "1", "metadata": metadata, "text": text, "class_name": "TextNode"}
    ids = dict.fromkeys(("doc_id", "document_id", "ref_doc_id"), "1")
    return {**metadata, "_node_content": json.dumps(content), "_node_type": "TextNode", **ids}


def memory(path, text):
    """Return a payload as mcp-server-qdrant writes it."""
    return {"document": text, "metadata": {"source": f"/srv/kb/{path}"}}


def chunk(path, text):
    """Return a payload as langchain-qdrant writes it."""
    return {"page_content": text, "metadata": {"source": f"/srv/kb/{path}"}}


def look_up(folder, client, **arguments):
    index = QdrantIndex.from_existing("", "kb", client=client, **arguments)
    with KnowledgeBase.open(folder, index=index, embedding=WordEmbeddings()) as kb:
        query = CASES["PX-34"]["input"]["query"]
        return create_lookup_knowledge_graph(kb, record=None).invoke({"query": query})


def check(result):
    """Check that each file is one match, which both layers found, with its own text and title."""
    assert result["l1"] == {**result["l1"], "status": "ok", "reason": None}
    found = [match["entry_id"] for match in result["matches"]]
    assert sorted(found) == sorted(set(found))
    assert set(found) <= {"a.md", "b.md"}
    first = result["matches"][0]
    assert (first["entry_id"], first["title"], first["layers"]) == ("a.md", "A book", ["L0", "L1"])
    assert first["snippet"] == TEXTS["a.md"]


LAYOUTS = {
    "llama_index": (node, ""),
    "mcp_server_qdrant": (memory, "fast-all-minilm-l6-v2"),
    "langchain": (chunk, ""),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_px_34_px_35_a_collection_is_read_by_the_name_of_what_made_it(layout, folder, client):
    payload, vector_name = LAYOUTS[layout]
    fill(client, payload, vector_name)
    check(look_up(folder, client, layout=layout))


def test_a_hybrid_collection_of_llama_index_is_read_by_its_dense_vector(folder, client):
    fill(client, node, "text-dense")
    check(look_up(folder, client, layout="llama_index"))


def test_a_hybrid_collection_of_langchain_is_read_by_its_dense_vector(folder, client):
    sparse = {"langchain-sparse": models.SparseVectorParams()}
    client.create_collection("kb", {"dense": DENSE}, sparse_vectors_config=sparse)
    store = QdrantVectorStore(client, "kb", WordEmbeddings(), vector_name="dense")
    store.add_documents(
        [Document(text, metadata={"source": f"/srv/kb/{path}"}) for path, text in TEXTS.items()]
    )
    check(look_up(folder, client))


def test_of_several_dense_vectors_one_is_asked_for(folder, client):
    vectors = {"small": DENSE, "large": DENSE}
    fill(client, chunk, "small", vectors)
    asked = look_up(folder, client)["l1"]
    assert asked["status"] == "failed"
    assert "more than one dense vector: vector_name is one of ['large', 'small']" in asked["reason"]
    check(look_up(folder, client, vector_name="small"))


def test_px_34_paths_that_do_not_fit_the_folder_are_told(folder, client):
    fill(client, lambda path, text: chunk(f"elsewhere-{path}", text))
    told = look_up(folder, client)["l1"]
    assert told["status"] == "ok"
    assert told["reason"] == (
        "no path of the collection, such as 'srv/kb/elsewhere-a.md', is a file of the folder: set "
        "root to what precedes the path in the folder"
    )


def test_a_root_that_is_given_is_not_guessed(folder, client):
    fill(client, chunk)
    check(look_up(folder, client, root="/srv/kb"))
    found = {match["entry_id"] for match in look_up(folder, client, root="")["matches"]}
    assert {"a.md", "srv/kb/a.md"} <= found


def test_keys_that_are_given_replace_those_of_the_layout(folder, client):
    fill(client, lambda path, text: {"document": text, "metadata": {"url": path}})
    check(look_up(folder, client, layout="mcp_server_qdrant", entry_key="url"))


def test_an_unknown_layout_is_refused(client):
    with pytest.raises(ValueError, match="layout takes langchain, llama_index, mcp_server_qdrant"):
        QdrantIndex.from_existing("", "kb", client=client, layout="chroma")


@pytest.mark.parametrize("content", ["plain text", "[1]", "{", '{"text": "inner"}'])
def test_a_node_that_is_not_json_is_its_own_text(tmp_path, client, content):
    folder = write_files(tmp_path / "kb", {"a.md": "# A\n\nplain text inner\n"})
    payload = {"_node_content": content, "file_path": "a.md"}
    client.create_collection("kb", DENSE)
    vector = WordEmbeddings().embed_query("plain text")
    client.upsert("kb", [models.PointStruct(id=1, vector=vector, payload=payload)])
    index = QdrantIndex.from_existing("", "kb", client=client, layout="llama_index")
    with KnowledgeBase.open(folder, index=index, embedding=WordEmbeddings()) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "plain text"})
    expected = "inner" if "inner" in content else content
    assert result["matches"][0]["snippet"] == expected


@pytest.mark.parametrize(
    ("paths", "entries", "root"),
    [
        (["/srv/kb/a.md", "/srv/kb/b/c.md"], {"a.md", "b/c.md"}, "/srv/kb/"),
        (["a.md"], {"a.md"}, ""),
        (["C:\\kb\\a.md"], {"a.md"}, "C:/kb/"),
        (["/x/a.md", "/y/a.md", "/y/b.md"], {"a.md", "b.md"}, "/y/"),
        (["/srv/kb/z.md"], {"a.md"}, None),
        ([], {"a.md"}, None),
    ],
)
def test_the_root_is_what_most_paths_have_before_an_entry(paths, entries, root):
    assert guess_root(paths, entries) == root


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning")
def test_the_real_package_of_llama_index_writes_this_layout(folder, client):
    package = pytest.importorskip("llama_index.vector_stores.qdrant")
    from llama_index.core.schema import TextNode

    store = package.QdrantVectorStore("kb", client=client)
    nodes = [
        TextNode(
            text=text,
            embedding=WordEmbeddings().embed_query(text),
            metadata={"file_path": f"/srv/kb/{path}", "file_name": path},
        )
        for path, text in TEXTS.items()
    ]
    store.add(nodes)
    check(look_up(folder, client, layout="llama_index"))


async def test_the_real_package_of_the_mcp_server_writes_this_layout(folder, tmp_path):
    package = pytest.importorskip("mcp_server_qdrant.qdrant")

    class Provider:
        async def embed_documents(self, documents):
            return WordEmbeddings().embed_documents(documents)

        async def embed_query(self, query):
            return WordEmbeddings().embed_query(query)

        def get_vector_name(self):
            return "fast-words"

        def get_vector_size(self):
            return 64

    path = str(tmp_path / "qdrant")
    connector = package.QdrantConnector(None, None, "kb", Provider(), path)
    for name, text in TEXTS.items():
        entry = package.Entry(content=text, metadata={"source": f"/srv/kb/{name}"})
        await connector.store(entry, collection_name="kb")
    await connector._client.close()
    client = QdrantClient(path=path)
    check(look_up(folder, client, layout="mcp_server_qdrant"))
    client.close()
