"""What objects show of themselves in a console and in a notebook."""

import json
from html.parser import HTMLParser

import pytest
from conftest import write_files

from langchain_lookup_knowledge import (
    FastEmbedModel,
    KnowledgeBase,
    LookupKnowledgeRetriever,
    LookupOptions,
    SQLInvocationRecorder,
    create_lookup_knowledge_graph,
    create_lookup_knowledge_tool,
    create_read_knowledge_tool,
)
from langchain_lookup_knowledge.evaluation.measuring import evaluate, read_questions

USEFUL = """
close data_folder embedding entries entry feedback fields folder from_documents glossary health
hints index load_report open problems related scope_fields section seen_by show suggestions
surrounding_passages sync watch
"""


class Tags(HTMLParser):
    """Collects tags and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), ""

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def parsed(html):
    page = Tags()
    page.feed(html)
    assert page.tags <= {"table", "caption", "tr", "td", "th", "br"}
    return page.text


def test_a_knowledge_base_says_what_is_in_it(kb, ask):
    assert repr(kb) == "<KnowledgeBase 'kb': 3 entries, index current, L1 untried>"
    ask("how long does a refund take")
    assert repr(kb) == "<KnowledgeBase 'kb': 3 entries, index current, L1 ok>"


def test_a_closed_knowledge_base_still_shows_itself(kb):
    kb.close()
    assert "3 entries" in repr(kb)
    assert "Billing (1)" in kb._repr_html_()


def test_the_table_of_a_knowledge_base_has_no_markup_of_files(tmp_path, embedding):
    files = {
        "a.md": "---\ncategory: <script>alert(1)</script>\n---\nText.",
        "b.md": "---\ntitle: x",
    }
    folder = write_files(tmp_path / "<b>kb", files)
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        text = parsed(kb._repr_html_())
    assert "Knowledge base <b>kb" in text
    assert "b.md:1: the frontmatter is never closed" in text


def test_a_long_list_of_problems_is_cut(tmp_path, embedding):
    folder = write_files(tmp_path / "kb", {f"{i}.md": "---\ntitle: x" for i in range(8)})
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        assert len(kb.problems) == 8
        assert "... and 3 more" in parsed(kb._repr_html_())
        assert repr(kb.load_report) == (
            "LoadReport(seen=8, loaded=8, skipped=0, problems=8, left_out=0)"
        )


def test_completion_lists_what_users_need(kb):
    assert [name for name in dir(kb) if not name.startswith("_")] == USEFUL.split()


class Marks(HTMLParser):
    """Collects tags, and the texts that are marked and in bold."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.marked, self.bold, self.text = [], set(), [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "mark" in self.open:
            self.marked.append(data)
        if self.open[-2:] == ["mark", "b"]:
            self.bold.append(data)


def test_a_result_shows_its_passages_and_why(kb, ask):
    result = ask("how long does a refund take")
    page = Marks()
    page.feed(kb.show(result)._repr_html_())
    assert page.text.startswith("Refunds billing/refunds.md:")
    assert "because: " in page.text
    assert {"Refunds", "take"} <= {*page.marked}
    assert page.text.endswith(".")
    assert repr(kb.show(result)).startswith("<Answer to 'how long does a refund take': ")
    assert json.loads(json.dumps(result)) == result  # it stays as it was


def test_terms_that_an_entry_declares_are_bold(kb, ask):
    page = Marks()
    page.feed(kb.show(ask("how do I install the vpn"))._repr_html_())
    assert {"Install", "VPN"} <= {*page.marked}
    assert {*page.bold} == {"VPN"}


def test_a_result_without_matches_says_so(kb, ask):
    shown = kb.show(ask("?!"))
    assert "Not searched" in repr(shown)
    assert "Not searched" in shown._repr_html_()


def test_a_result_has_no_markup_of_files(tmp_path, embedding):
    text = (
        "# <script>alert(1)</script> roses\n\nRoses `<img src=x onerror=alert(2)>` and &lt;b&gt;."
    )
    folder = write_files(tmp_path / "kb", {"<b>.md": text})
    with KnowledgeBase.open(folder, embedding=embedding) as kb:
        result = create_lookup_knowledge_graph(kb, record=None).invoke({"query": "<i>roses"})
        page = Marks()
        page.feed(kb.show(result)._repr_html_())
    assert page.tags == {"div", "details", "summary", "b", "code", "p", "blockquote", "mark"}
    assert "<b>.md:" in page.text
    assert "onerror" in page.text


def test_what_is_no_result_is_named(kb):
    with pytest.raises(ValueError, match="the result of a lookup, not str"):
        kb.show("refund")
    with pytest.raises(ValueError, match="not one without query, status, relevance, l1: give it"):
        kb.show({"matches": []})
    with pytest.raises(ValueError, match="not dict"):
        kb.show({})


def test_entries_tools_and_retrievers_are_one_line(kb):
    assert repr(kb.entries[0]) == "Entry('billing/refunds.md', 'Refunds')"
    tool = create_lookup_knowledge_tool(kb, options=LookupOptions(model_filters=("category",)))
    assert repr(tool) == "KnowledgeTool('lookup_knowledge', arguments: query, category)"
    assert str(create_read_knowledge_tool(kb)) == (
        "KnowledgeTool('read_knowledge', arguments: source, heading, lines)"
    )
    assert repr(LookupKnowledgeRetriever(knowledge_base=kb, k=2)) == (
        f"LookupKnowledgeRetriever(knowledge_base={kb!r}, k=2)"
    )
    assert repr(FastEmbedModel()) == "FastEmbedModel('all-MiniLM-L6-v2-int8')"


def test_a_recorder_shows_no_password(tmp_path):
    url = f"sqlite:///{tmp_path / 'calls.db'}"
    assert repr(SQLInvocationRecorder(url)) == f"SQLInvocationRecorder({url!r})"


def test_an_evaluation_is_a_table_and_stays_json(kb, tmp_path):
    question = {
        "id": "1",
        "query": "how long does a refund take",
        "relevant": ["billing/refunds.md"],
    }
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(question), "utf-8")
    figures = evaluate(kb, read_questions(path))
    text = parsed(figures._repr_html_())
    assert "1 answerable questions" in text
    assert "L1 hybrid1.0001.00 to 1.00" in text
    assert json.loads(json.dumps(figures)) == figures
