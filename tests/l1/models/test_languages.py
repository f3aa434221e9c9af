"""The language of entries and questions."""

import pytest
from conftest import write_files

from langchain_lookup_knowledge import FastEmbedModel, KnowledgeBase, create_lookup_knowledge_graph
from langchain_lookup_knowledge.l1.models import embeddings, languages


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("How do I reset the password of my account?", "en"),
        ("Comment réserver un ouvrage déjà emprunté ?", "fr"),
        ("Ile kosztują dodatkowe konta użytkowników?", "pl"),
        ("Bảo hiểm chi trả bao nhiêu phần trăm tiền thuốc?", "vi"),
        ("Сколько секунд удерживать кнопку сброса?", "ru"),
        ("有給休暇は入社後いつ付与されますか", "ja"),
        ("怎么在路由上配置限流插件", "zh"),
        ("收到退货后三到五个工作日内退款到原支付方式", "zh"),
    ],
)
def test_the_language_of_a_question(text, code):
    assert languages.language(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vpn",
        "ERR_CONNECTION_RESET",
        "Install Docker Desktop on Fedora",
        "Docker Model Runner",
        "Containerize a Bun application",
        "personal token instead of password for docker login",
        "── ───── ├── app │ ── docker │ └── data",
        "`pip install x`",
        "https://example.org/ou/est/la/bibliotheque",
    ],
)
def test_a_text_of_a_few_words_or_names_does_not_tell(text):
    assert languages.language(text) is None


def test_any_characters_are_taken():
    text = "Où se trouve \0 la \ud800 bibliothèque la plus proche et quand est-elle ouverte ?"
    assert languages.language(text) == "fr"
    assert languages.language("部署") != languages.ENGLISH


def test_only_models_that_know_english_alone_are_spared_other_languages():
    polish = "Ile kosztują dodatkowe konta użytkowników?"
    for name, is_english in (
        (embeddings.DEFAULT_MODEL, True),
        ("BAAI/bge-small-en-v1.5", True),
        ("thenlper/gte-base", True),
        ("jinaai/jina-embeddings-v2-base-de", False),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", False),
    ):
        model = FastEmbedModel(name)
        assert embeddings.is_english(model) == is_english
        assert embeddings.understands(model, polish) != is_english
        assert embeddings.understands(model, "vpn")
        assert embeddings.understands(model, "vpn", usual="pl") != is_english


class Counting(FastEmbedModel):
    """The default model, which keeps what it embedded."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def embed_documents(self, texts):
        self.texts += texts
        return super().embed_documents(texts)

    def embed_query(self, text):
        self.texts.append(text)
        return super().embed_query(text)


MIXED = {
    "en/vpn.md": "# VPN\n\nInstall the VPN client on your laptop before you travel abroad.\n",
    "en/pay.md": "# Pay day\n\nSalaries are paid on the last working day of each month.\n",
    "en/desk.md": "# Desk\n\nAsk the front desk if you need a key for your locker.\n",
    "en/mixed.md": "# Notes\n\n"
    + "The team in Beijing asked that we keep the next paragraph as it is. " * 8
    + "\n\n## In Chinese\n\n"
    + "收到退货后三到五个工作日内退款到原支付方式。" * 12
    + "\n",
    "zh/both.md": "# 说明\n\n"
    + "收到退货后三到五个工作日内退款到原支付方式。" * 20
    + "\n\n## In English\n\n"
    + "You get your money back in the way that you paid, within five working days. " * 12
    + "\n",
    "zh/refund.md": "# 退款政策\n\n收到退货后三到五个工作日内退款到原支付方式。\n",
    "pl/urlop.md": "# Urlop\n\nPracownicy mają 26 dni urlopu w roku i proszą o nie w portalu.\n",
}


def test_what_the_model_does_not_know_is_neither_embedded_nor_asked(tmp_path):
    model = Counting()
    with KnowledgeBase.open(write_files(tmp_path / "kb", MIXED), embedding=model) as kb:
        assert {text.partition("\n")[0] for text in model.texts} == {
            "dimensions",
            "VPN",
            "Pay day",
            "Desk",
            "Notes",
            "说明 > In English",
        }
        assert kb.problems == []
        assert kb.index.contents().unembedded == ()
        graph, model.texts = create_lookup_knowledge_graph(kb), []
        polish = graph.invoke({"query": "Ile dni urlopu mają w roku pracownicy?"})
        assert model.texts == []
        assert polish["matches"][0]["entry_id"] == "pl/urlop.md"
        assert polish["matches"][0]["similarity"] is None
        assert polish["relevance"]["level"] == "medium"
        assert "the embedding model does not know Polish" in polish["relevance"]["reason"]
        assert "the embedding model does not know Polish" in polish["l1"]["reason"]
        english = graph.invoke({"query": "when do I get my salary"})
        assert english["matches"][0]["entry_id"] == "en/pay.md"
        assert english["l1"]["reason"] is None
        limited = graph.invoke({"query": "when do I get my salary", "filters": {"folder": "pl"}})
        assert limited["l1"]["status"] in ("ok", "empty")
        assert limited["relevance"]["level"] in ("low", "none")
        (suggestion,) = (s.message for s in kb.suggestions() if "does not know" in s.message)
        assert "3 entries are in Chinese and Polish" in suggestion
        assert kb.sync().written is False


def test_an_english_question_about_entries_in_another_language(tmp_path):
    with KnowledgeBase.open(write_files(tmp_path / "kb", {"zh.md": MIXED["zh/refund.md"]})) as kb:
        graph = create_lookup_knowledge_graph(kb)
        nothing = graph.invoke({"query": "How long does it take until I get my money back?"})
        assert nothing["l1"]["status"] == "empty"
        assert "the embedding model does not know Chinese" in nothing["l1"]["reason"]
        assert "index" not in nothing["l1"]["reason"]
        found = graph.invoke({"query": "What does the term 退款 stand for in this context?"})
        assert found["relevance"]["level"] in ("low", "medium")
        assert "does not know Chinese" in found["relevance"]["reason"]
