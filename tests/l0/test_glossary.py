"""Words of the house: abbreviations are found in texts and files, and join their long forms."""

import json
import unicodedata

import pytest
from conftest import WordEmbeddings, write_files
from parts.growth import grows_with_its_input

from langchain_lookup_knowledge import (
    DocumentError,
    FrontmatterFields,
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.integrations.cli import main
from langchain_lookup_knowledge.l0.glossary import Glossary, HouseWords, acronyms
from langchain_lookup_knowledge.lookup.answer.rendering import render
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.reading.glossary_file import (
    GlossaryFile,
    GlossaryTerm,
    read_glossary,
)

FOUND = [
    ("Ask for paid time off (PTO) early.", ("PTO", "paid time off")),
    ("PTO (paid time off) is booked early.", ("PTO", "paid time off")),
    ("PTO (paid time off, 25 days)", ("PTO", "paid time off")),
    ("Each Contracting Officer Representative (COR) signs.", ("COR", None)),
    ("CRDs (custom resource definitions)", ("CRD", "custom resource definitions")),
    ("service level objectives (SLOs)", ("SLO", "service level objectives")),
    ("the Department of Defense (DoD)", ("DoD", "Department of Defense")),
    ("the Office of Management and Budget (OMB)", ("OMB", "Office of Management and Budget")),
    ("Software as a Service (SaaS)", ("SaaS", "Software as a Service")),
    ("Family and Medical Leave Act (FMLA)", ("FMLA", "Family and Medical Leave Act")),
    ("multi-factor authentication (MFA)", ("MFA", "multi-factor authentication")),
    ("JavaScript Object Notation (JSON)", ("JSON", "JavaScript Object Notation")),
    ("**Paid Time Off** (PTO)", ("PTO", "Paid Time Off")),
    ("the [Thrift Savings Plan] (TSP)", ("TSP", "Thrift Savings Plan")),
    ("First. Time to live (TTL)", ("TTL", "Time to live")),
    ("a service\nlevel agreement (SLA)", ("SLA", "service level agreement")),
    ("the Director's Guidance Unit's (DGU)", ("DGU", "Director's Guidance Unit")),
    ("*[PTO]: paid time off", ("PTO", "paid time off")),
    ("to be determined (TBD)", ("TBD", "to be determined")),
]
NOT_FOUND = [
    "See the manual (PDF).",
    "paid leave (PTO)",
    "It is off. Paid time. Off (PTO)",
    "API (see below)",
    "PTO (ask Maria)",
    "ends in pay, time, off (PTO)",
    "of Acquisition (OA)",
    "identifier (ID)",
    "foo/bar baz (BB)",
    "paid time off (pto)",
    "a (B)",
    "( (()) (AB) )",
    "",
]


@pytest.mark.parametrize(("text", "expected"), FOUND, ids=[text for text, _ in FOUND])
def test_an_abbreviation_is_found_with_its_long_form(text, expected):
    (found,) = acronyms(text)
    assert found.word == expected[0]
    assert found.forms == (expected[1] or "Contracting Officer Representative",)


@pytest.mark.parametrize("text", NOT_FOUND)
def test_other_parentheses_are_no_abbreviations(text):
    assert acronyms(text) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "piece", ["(AB)", "A B C (ABC) ", "a " * 50 + "(AA)", "AB (", "*[A", "-_" * 9 + "(AB)"]
)
def test_finding_abbreviations_takes_linear_time(piece):
    small, large = (piece * (size // len(piece)) for size in (100_000, 400_000))
    assert grows_with_its_input(acronyms, small, large)


def glossary(*pairs, declared=()):
    entries = [
        Entry(f"{n}.md", "T", (), (), (), f"The {long} ({short}) is here.")
        for n, (short, long) in enumerate(pairs)
    ]
    words = HouseWords.of(entries, None, GlossaryFile(declared))
    return words.glossary([entry.entry_id for entry in entries])


def joined(found, query):
    return [(join["text"], join["forms"]) for join in found.joins(query)]


PAIRS = (
    ("PTO", "paid time off"),
    ("IT", "information technology"),
    ("IaaS", "infrastructure as a service"),
    ("IAA", "inter agency agreement"),
    ("PT", "paid time"),
)
JOINS = [
    ("how many PTO days", [("PTO", ["paid time off"])]),
    ("pto", [("pto", ["paid time off"])]),
    ("how many PTOs", [("PTOs", ["paid time off"])]),
    ("Paid Time Off?", [("Paid Time Off", ["PTO"])]),
    ("paid-time-off rules", [("paid-time-off", ["PTO"])]),
    ("paid, time off", []),
    ("time off", []),
    ("IT support", [("IT", ["information technology"])]),
    ("is it open", []),
    ("WHERE IS IT", []),
    ("information technology and PTO", [("information technology", ["IT"]), ("PTO", None)]),
    ("IaaS", [("IaaS", ["infrastructure as a service"])]),
    ("IAA", [("IAA", ["inter agency agreement"])]),
    ("PTOX", []),
    ("paid time", [("paid time", ["PT"])]),
    ("paid time is", [("paid time", ["PT"])]),
]


@pytest.mark.parametrize(("query", "expected"), JOINS)
def test_the_words_of_a_query_are_joined_in_both_directions(query, expected):
    found = joined(glossary(*PAIRS), query)
    assert [text for text, _ in found] == [text for text, _ in expected]
    for (_, forms), (_, wanted) in zip(found, expected, strict=True):
        assert wanted is None or forms == wanted


def test_an_abbreviation_with_two_meanings_is_joined_with_neither_and_named():
    found = glossary(("SOW", "statement of work"), ("SOW", "scope of work"))
    assert joined(found, "SOW and statement of work") == []
    (problem,) = found.ambiguous
    assert problem.path == "0.md"
    assert "'SOW' stands for 'statement of work' (0.md) and 'scope of work' (1.md)" in str(problem)
    alike = glossary(
        ("SRE", "site reliability engineer"),
        ("SRE", "Site Reliability Engineering"),
        ("SRE", "site reliability engineering"),
    )
    assert joined(alike, "SRE") == [("SRE", ["Site Reliability Engineering"])]
    assert alike.ambiguous == []


def test_a_declared_meaning_comes_before_those_of_the_texts():
    pairs = (("SOW", "statement of work"), ("SOW", "scope of work"))
    found = glossary(*pairs, declared=[GlossaryTerm("SOW", ("scope of work",))])
    assert joined(found, "SOW") == [("SOW", ["scope of work"])]
    assert found.ambiguous == []
    twice = [GlossaryTerm("CC", ("carbon copy",)), GlossaryTerm("CC", ("credit card",))]
    both = Glossary(twice, {})
    assert (joined(both, "CC"), len(both.ambiguous)) == ([], 1)
    synonyms = Glossary([GlossaryTerm("PTO", ("paid time off", "vacation"))], {})
    assert joined(synonyms, "vacation") == [("vacation", ["PTO", "paid time off"])]


def test_an_abbreviation_that_many_entries_use_says_nothing():
    entries = [Entry(f"{n}.md", "T", (), (), (), "An IP address.") for n in range(30)]
    entries.append(Entry("x.md", "T", (), (), (), "Our intellectual property (IP)."))
    names = [entry.entry_id for entry in entries]
    assert joined(HouseWords.of(entries).glossary(names), "IP address") == []
    few = [f"{n}.md" for n in range(5)] + ["x.md"]
    assert joined(HouseWords.of(entries).glossary(few), "IP") == [("IP", ["intellectual property"])]


def test_words_of_unchanged_texts_are_kept():
    entries = [Entry("a.md", "T", (), (), (), "paid time off (PTO)")]
    first = HouseWords.of(entries)
    assert HouseWords.of(entries, first).found["a.md"] is first.found["a.md"]
    changed = [Entry("a.md", "T", (), (), (), "service level agreement (SLA)")]
    assert HouseWords.of(changed, first).found["a.md"][0].word == "SLA"


# the file

FILES = [
    (
        "g.md",
        "# Words\n\n| Word | Meaning |\n|---|---|\n| PTO | paid time off |\n| **SLA** | [service "
        "level agreement](x.md) | extra |\n",
        [("PTO", ("paid time off",)), ("SLA", ("service level agreement",))],
    ),
    (
        "g.md",
        "---\ntitle: G\n---\nWord | Meaning\n--- | ---\nPTO | Paid time off: the days on which "
        "staff are free and paid all the same\n",
        [("PTO", ("Paid time off",))],
    ),
    ("g.yaml", "PTO: paid time off\nSLA: [service level agreement, contract]\n", None),
    ("sub/g.yml", "# house\nPTO: 'paid time off'\n", [("PTO", ("paid time off",))]),
]


@pytest.mark.parametrize(("name", "text", "expected"), FILES)
def test_a_glossary_is_a_table_or_yaml(tmp_path, name, text, expected):
    terms, problems, _ = read_glossary(
        write_files(tmp_path, {name: text}), name, FrontmatterFields()
    )
    wanted = expected or [
        ("PTO", ("paid time off",)),
        ("SLA", ("service level agreement", "contract")),
    ]
    assert ([tuple(term) for term in terms], problems) == (wanted, [])


BAD = [
    ("g.yaml", "PTO: [a\n", 2, "the glossary is not used: it is not YAML"),
    ("g.yaml", "- PTO\n", 1, "is not a mapping"),
    ("g.yaml", "PTO: {a: b}\nSLA: contract\n", 1, "ignored: write a word"),
    ("g.yaml", "PTO: " + "word " * 9 + "\n", 1, "'PTO' has no other form of at most 8 words"),
    ("g.md", "No table.\n", None, "the glossary has no words"),
    (
        "g.md",
        "---\ntitle: G\n---\n<!--\nx\n-->\n\n| a | b |\n|---|---|\n| PTO | " + "word " * 9 + "|\n",
        10,
        "'PTO' has no",
    ),
    ("g.yaml", "\n# words\n\nPTO: {a: b}\nSLA: contract\n", 4, "ignored: write a word"),
    ("gone.md", None, None, "the glossary is not used: it cannot be read"),
    ("../out.yaml", None, None, "leaves the knowledge folder"),
    ("/etc/hostname", None, None, "leaves the knowledge folder"),
    (".hidden/g.yaml", "PTO: paid time off\n", None, "hidden place"),
]


@pytest.mark.parametrize(("name", "text", "line", "message"), BAD)
def test_a_glossary_that_cannot_be_used_is_reported(tmp_path, name, text, line, message):
    folder = tmp_path / "kb"
    folder.mkdir()
    (tmp_path / "out.yaml").write_text("PTO: paid time off\n")
    if text is not None:
        write_files(folder, {name: text})
    _, problems, _ = read_glossary(folder, name, FrontmatterFields())
    assert (problems[0].path, problems[0].line) == (name, line)
    assert message in str(problems[0])


def test_a_glossary_is_kept_in_the_settings(tmp_path):
    folder = write_files(
        tmp_path / "kb", {"a.md": "Vacation is 25 days.\n", "words.yaml": "PTO: vacation\n"}
    )
    with pytest.raises(DocumentError, match=r"glossary: no\.yaml is no file in"):
        KnowledgeBase.open(folder, index=None, glossary="no.yaml")
    with pytest.raises(DocumentError, match="is no file in"):
        KnowledgeBase.open(folder, index=None, glossary="../kb2/words.yaml")
    with KnowledgeBase.open(folder, index=None, glossary=folder / "words.yaml") as kb:
        kb.save_settings()
        assert kb.problems == []
    settings = json.loads((folder / ".lookup-knowledge" / "settings.json").read_text())
    assert settings["glossary"] == "words.yaml"
    with KnowledgeBase.open(folder, index=None) as kb:
        assert kb.hints("PTO")["glossary"][0]["forms"] == ["vacation"]
        (folder / "words.yaml").write_text("PTO: leave\n")
        kb.sync()
        assert kb.hints("PTO")["glossary"][0]["forms"] == ["leave"]
        (folder / "words.yaml").unlink()
        kb.sync()
        assert "the glossary is not used" in str(kb.problems[0])
    with KnowledgeBase.open(folder, index=None, glossary="") as kb:
        assert "glossary" not in kb.hints("PTO")
    write_files(folder, {"more.yaml": "PTO: holidays\n"})
    assert main(["index", str(folder), "--glossary", "more.yaml"]) == 0
    with KnowledgeBase.open(folder, index=None) as kb:
        assert kb.hints("PTO")["glossary"][0]["forms"] == ["holidays"]


# lookups

HOUSE = {
    "leave.md": "---\ntitle: Rules\nkeywords: [paid time off]\ncategory: HR\n---\n"
    "Paid time off is 25 days. Book it with the lead.\n",
    "hello.md": "# Welcome\n\nYou may ask about paid time off (PTO) here.\n",
    "sla.md": "# Contracts\n\nThe SLA names four hours.\n",
    "words.yaml": "SLA: service level agreement\n",
    **{f"x{n}.md": f"# Choir {n}\n\nChoir {n} meets on day {n}.\n" for n in range(8)},
}


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp("house"), HOUSE)
    with KnowledgeBase.open(
        folder, embedding=WordEmbeddings(), progress=False, glossary="words.yaml"
    ) as kb:
        yield kb


def ask(kb, query, **options):
    graph = create_lookup_knowledge_graph(kb, record=None, options=LookupOptions(**options))
    return graph.invoke({"query": query})


def test_a_match_by_the_glossary_says_so(house):
    result = ask(house, "how long is my PTO")
    found = {match["entry_id"]: match["matched"] for match in result["matches"]}
    assert {"field": "glossary", "text": "PTO = paid time off"} in found["leave.md"]
    assert {"field": "keywords", "text": "paid time off"} in found["leave.md"]
    assert not any(item["field"] == "glossary" for item in found["hello.md"])
    text = render(result, 4400)
    assert "keywords 'paid time off' (for 'PTO'), glossary 'PTO = paid time off'" in text
    (term,) = result["hints"]["terms"]
    assert (term["kind"], term["specific"], term["domains"]) == ("glossary", True, [])
    assert "found through 'PTO' in the glossary" in term["reason"]
    assert result["filter"]["category"] is None


def test_a_declared_long_form_finds_the_abbreviation(house):
    result = ask(house, "service level agreement")
    assert result["primary"]["entry_id"] == "sla.md"
    glossary_match = {"field": "glossary", "text": "service level agreement = SLA"}
    assert glossary_match in result["primary"]["matched"]
    assert "no passage holds" not in result["relevance"]["reason"]


def test_the_glossary_helps_without_l1(house):
    result = ask(house, "PTO rules", l1_enabled=False)
    assert result["primary"]["entry_id"] == "leave.md"
    own = house.l0.metadata.search("paid time", 5)
    assert own[0]["entry_id"] == "leave.md"


@pytest.mark.parametrize(
    "query",
    ["PTO", "hello PTO choir 3", "choir 3 PTO", "paid time off", "SLA choir 5", "lead"],
)
def test_the_glossary_never_lowers_what_the_own_words_find(house, query, monkeypatch):
    with_words = {m["entry_id"]: m["score"] for m in ask(house, query, k=20)["matches"]}
    with_hints = house.hints(query)
    monkeypatch.setattr(Glossary, "joins", lambda self, query: [])
    without = {m["entry_id"]: m["score"] for m in ask(house, query, k=20)["matches"]}
    own = house.hints(query)
    assert all(with_words[name] >= score for name, score in without.items())
    assert with_hints["terms"][: len(own["terms"])] == own["terms"]
    assert with_hints["domains"] == own["domains"]
    names = [entry["entry_id"] for entry in own["entries"]]
    assert [entry["entry_id"] for entry in with_hints["entries"]][: len(names)] == names


def test_words_come_only_from_entries_that_the_caller_may_see(tmp_path):
    files = {
        "acme.md": "---\ntenant: acme\n---\nOur project blue canary (PBC).\n",
        "beta.md": "---\ntenant: beta\n---\nThe PBC and the project blue canary.\n",
        "words.md": "---\ntenant: acme\n---\n| a | b |\n|---|---|\n| QQX | quiet quince |\n",
    }
    folder = write_files(tmp_path / "kb", files)
    with KnowledgeBase.open(
        folder, embedding=WordEmbeddings(), progress=False, glossary="words.md"
    ) as kb:
        options = LookupOptions(scope_fields=("tenant",))
        graph = create_lookup_knowledge_graph(kb, record=None, options=options)
        for query, form in (("PBC", "project blue canary"), ("QQX", "quiet quince")):
            for caller, sees in (("acme", True), ("beta", False)):
                result = graph.invoke({"query": query}, {"configurable": {"tenant": caller}})
                assert ("glossary" in result["hints"]) is sees
                assert (form in str(result["hints"])) is sees
        assert kb.l0.glossary.joins("QQX")


def test_an_ambiguous_abbreviation_is_a_suggestion(tmp_path):
    files = {
        "a.md": "The statement of work (SOW) is signed.\n",
        "b.md": "The scope of work (SOW) is agreed.\n",
    }
    with KnowledgeBase.open(write_files(tmp_path / "kb", files), index=None) as kb:
        assert "glossary" not in kb.hints("SOW")
        assert any("'SOW' stands for" in str(problem) for problem in kb.suggestions())


@pytest.mark.parametrize("header", ["tenant: acme", "tenant: acme\ndraft: true"])
def test_a_glossary_that_is_no_entry_has_the_scope_of_its_frontmatter(tmp_path, header):
    words = f"---\n{header}\n---\n| a | b |\n|---|---|\n| QQX | quiet quince |\n"
    folder = write_files(tmp_path / "kb", {"a.md": "x", "words.md": words})
    with KnowledgeBase.open(folder, index=None, glossary="words.md", exclude=["words.md"]) as kb:
        assert [entry.entry_id for entry in kb.entries] == ["a.md"]
        assert kb.hints("QQX")["glossary"][0]["forms"] == ["quiet quince"]
        assert "glossary" in kb.hints("QQX", scope={"tenant": "acme"})
        assert "glossary" not in kb.hints("QQX", scope={"tenant": "beta"})


def test_a_glossary_that_is_a_skipped_draft_is_not_used(tmp_path):
    words = "---\ndraft: true\n---\n| a | b |\n|---|---|\n| QQX | quiet quince |\n"
    folder = write_files(tmp_path / "kb", {"a.md": "x", "words.md": words})
    fields = FrontmatterFields(skip_drafts=True)
    with KnowledgeBase.open(folder, index=None, glossary="words.md", fields=fields) as kb:
        assert "glossary" not in kb.hints("QQX")
        said = "\n".join(map(str, kb.problems))
        assert "words.md: the glossary is not used: a draft (draft: true)" in said


def test_a_glossary_whose_name_is_decomposed_on_the_disk_is_read(tmp_path):
    name = unicodedata.normalize("NFD", "wörter/größe.yaml")
    folder = write_files(tmp_path / "kb", {"a.md": "x", name: "QQX: quiet quince\n"})
    for written in (name, unicodedata.normalize("NFC", name)):
        with KnowledgeBase.open(folder, index=None, glossary=written) as kb:
            assert kb.hints("QQX")["glossary"][0]["forms"] == ["quiet quince"]
            assert kb.problems == []
