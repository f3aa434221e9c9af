"""L0: what matches, what does not, and what may name a domain."""

import pytest
from parts.cases import parameters, write_case

from langchain_lookup_knowledge.l0.hints import HintIndex
from langchain_lookup_knowledge.reading.documents import read_folder
from langchain_lookup_knowledge.reading.entry import Entry
from langchain_lookup_knowledge.types import FrontmatterFields


def entry(name, keywords=(), title="", text="", categories=("c",), entities=()):
    return Entry(name, title or name, tuple(keywords), tuple(categories), tuple(entities), text)


def keywords(query, *terms, **arguments):
    return HintIndex([entry("e", terms)], **arguments).hints(query)["keywords"]


def test_categories_that_differ_in_case_or_blanks_are_one_domain():
    entries = [
        entry("a", ["refund"], categories=["Billing"]),
        entry("b", ["refund"], categories=[" billing "]),
    ]
    assert HintIndex(entries).hints("refund")["domains"] == ["Billing"]


@pytest.mark.parametrize("case", parameters("hints"))
def test_a_case_of_hints(case, tmp_path):
    entries, report = read_folder(write_case(tmp_path, case), FrontmatterFields())
    index = HintIndex(
        entries, case_sensitive=case["input"].get("config", {}).get("case_sensitive_keywords", ())
    )
    for expected in case["input"]["queries"]:
        hints = index.hints(expected["query"])
        for field in ("keywords", "titles", "entities", "domains"):
            if field in expected:
                assert sorted(hints[field]) == sorted(expected[field]), expected["query"]
    if case["id"] == "K-24":
        assert len(index.problems) == 1
    assert report.problems == ()


@pytest.mark.parametrize(
    ("keyword", "query"),
    [
        ("C++", "learn c++ fast"),
        ("C++", "C++17 modules"),
        (".NET", "ASP.NET core"),
        ("node.js", "Node.js streams"),
        ("node.js", "nodejs streams"),
        ("E-4711", "declined: E-4711."),
        ("E-4711", "error e 4711"),
        ("E-4711", "E_4711 again"),
        ("e-mail", "my email bounced"),
        ("email", "my e-mail bounced"),
        ("sign-in", "the sign in page"),
        ("sign in", "the sign-in page"),
        ("sign in", "the sign/in page"),
        ("snake case", "a snake_case name"),
        ("getUserName", "call getUserName()"),
        ("getUserName", "how to get user name"),
        ("user name", "call getUserName()"),
        ("type", "dialog.type() is missing"),
        ("XMLParser", "an xml parser"),
        ("refund", "refunds"),
        ("policies", "policy"),
        ("box", "boxes"),
        ("VPN", "two VPNs"),
        ("customer", "the customer's order"),
        ("café", "café menu"),
        ("café", "cafe\u0301 menu"),
        ("café", "cafe menu"),
        ("cafe", "café menu"),
        ("Straße", "STRASSE"),
        ("STRASSE", "straße"),
        ("İstanbul", "istanbul hotel"),
        ("ISPARTA", "ısparta"),
        ("API", "ＡＰＩ gateway"),
        ("refund", "re\u00adfund"),
        ("refund", "\u202erefund\u202c"),
        ("refund policy", "refund\u00a0policy"),
        ("O'Reilly", "an O\u2019Reilly book"),
        ("退款", "如何申请退款流程"),
        ("退款", "退款"),
        ("税", "税 的 问题"),
        ("税", "增值税怎么算"),
        ("税", "税金の話"),
        ("湯", "新しい湯沸器"),
        ("C", "how do pointers work in C?"),
        ("C", "vitamin C, twice a day"),
        ("R", "plots with (R)"),
        ("R", "用R画图"),
        ("API", "这个API怎么用"),
        ("テスト", "ﾃｽﾄのやり方"),
        ("ガイド", "ｶﾞｲﾄﾞを見る"),
        ("返品", "返品について教えて"),
        ("환불", "환불을 받고 싶어요"),
        ("คืนเงิน", "ขอคืนเงินได้ไหม"),
        ("عودة", "سياسة العَوْدة عودة"),
        ("👍", "👍🏽 ok"),
        ("☑️", "mark ☑ done"),
        ("rocket 🚀", "a rocket 🚀 launch"),
        ("#hello", "say #hello there"),
        ("/plan", "/plan the trip"),
        ("--force", "git push --force now"),
        ("AT&T", "my AT&T line"),
        ("C:\\temp", "open C:\\temp now"),
        ('"store credit"', "use store credit"),
        ("x86_64", "an x86-64 image"),
        ("IT", "IT helpdesk"),
        ("refund", "Refund? REFUND! refund..."),
    ],
)
def test_matches(keyword, query):
    assert keywords(query, keyword) == [keyword]


@pytest.mark.parametrize(
    ("keyword", "query"),
    [
        ("art", "how to start"),
        ("git", "digital"),
        ("C#", "c#sharpener"),
        ("node.js", "end of node. js is fine"),
        ("refund policy", "refund. Policy matters"),
        ("refund policy", "policy refund"),
        ("refund", "refundable deposit"),
        ("pdf", "pdfs123"),
        ("IT", "is it raining"),
        ("AIMS", "the plan aims to grow"),
        ("Red", "the red car"),
        ("new", "the news today"),
        ("news", "a new thing"),
        ("テスト", "コンテスト"),
        ("#hello", "hello"),
        ("/plan", "plan"),
        ("的", "我的车"),
        ("税", "関係ない"),
        ("C", "pointers in c"),
        ("C", "C++ templates"),
        ("C", "C# generics"),
        ("C", "open C:\\temp"),
        ("C", "C-level meeting"),
        ("R", "the R&D budget"),
        ("D", "the R & D budget"),
        ("R", "R2 storage"),
        ("A", "A plan"),
        ("a", "a plan"),
        ("the", "the plan"),
        ("-", "a - b"),
        (".*", "anything at all"),
        ("ガ", "カ"),
    ],
)
def test_does_not_match(keyword, query):
    assert keywords(query, keyword) == []


def test_an_exact_match_hides_one_that_differs_in_accents():
    assert keywords("resume", "résumé", "resume") == ["resume"]
    assert keywords("résumé", "résumé", "resume") == ["résumé"]


def test_longest_first_and_the_shorter_one_inside_after_it():
    assert keywords("请问退款政策是什么", "退款", "退款政策") == ["退款政策", "退款"]
    assert keywords("what is the refund  policy?", "refund", "refund policy") == [
        "refund policy",
        "refund",
    ]


def test_a_term_tells_where_and_how_it_matched():
    (term,) = HintIndex([entry("e", ["refund"])]).hints("two refunds please")["terms"]
    assert (term["text"], term["field"], term["span"], term["kind"]) == (
        "refund",
        "keywords",
        [4, 11],
        "plural",
    )
    assert (term["document_frequency"], term["specific"], term["domains"]) == (1, True, ["c"])


@pytest.mark.parametrize(
    "text",
    ["the Annual\nLeave Act", "> the Annual\n> Leave Act", "- the\n  Annual\n  Leave\n  Act"],
)
def test_a_phrase_that_goes_on_in_the_next_line_is_one_phrase(text):
    entries = [entry("e", ["Annual Leave Act"]), entry("f", text=text)]
    for cased in ((), ("Annual Leave Act",)):
        (term,) = HintIndex(entries, case_sensitive=cased).hints("the Annual Leave Act")["terms"]
        assert term["document_frequency"] == 2
    (found,) = HintIndex(entries).hints(text)["terms"]
    assert found["text"] == "Annual Leave Act"


def test_keywords_that_differ_in_case_alone_are_one_term():
    index = HintIndex([entry("a", ["Docker"]), entry("b", ["docker"])])
    hints = index.hints("docker")
    assert hints["keywords"] == ["Docker"]
    assert [found["entry_id"] for found in hints["entries"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("kuberntes pods", "kubernetes"),
        ("kubernetse pods", "kubernetes"),
        ("kubernetees", "kubernetes"),
        ("rifund policy", "refund policy"),
    ],
)
def test_one_wrong_letter_is_a_weak_hint(query, word):
    hints = HintIndex([entry("e", [word])]).hints(query)
    (term,) = hints["terms"]
    assert (term["text"], term["kind"], term["specific"], term["domains"]) == (
        word,
        "typo",
        False,
        [],
    )
    assert hints["keywords"] == hints["domains"] == []
    assert [found["entry_id"] for found in hints["entries"]] == ["e"]


@pytest.mark.parametrize("query", ["kubrntes", "format the disk", "contract law"])
def test_what_is_further_off_or_a_common_word_is_no_typo(query):
    assert HintIndex([entry("e", ["kubernetes", "former", "contact"])]).hints(query)["terms"] == []


def knowledge_base(total, holders, inside):
    """A base of `total` entries: one declares "zork" in category a, `holders` more hold it,
    `inside` of those in a.
    """
    declaring = entry("0", ["zork"], categories=["a"], text="zork")
    others = [
        entry(f"{i}", text="zork", categories=["a" if i <= inside else f"b{i}"])
        for i in range(1, holders + 1)
    ]
    return [
        declaring,
        *others,
        *(entry(f"{i}", categories=["a"]) for i in range(holders + 1, total)),
    ]


@pytest.mark.parametrize(
    ("total", "holders", "inside", "specific", "domains"),
    [
        (1, 0, 0, True, ["a"]),
        (3, 0, 0, True, ["a"]),
        (3, 2, 0, True, ["a"]),
        (30, 2, 0, True, ["a"]),
        (30, 3, 0, False, []),
        (1000, 0, 0, True, ["a"]),
        (1000, 19, 19, True, ["a"]),
        (1000, 19, 9, True, ["a"]),
        (1000, 19, 5, True, []),
        (1000, 20, 20, False, []),
        (6000, 99, 99, True, ["a"]),
        (6000, 100, 100, False, []),
    ],
)
def test_only_rare_terms_are_specific_and_name_a_domain_only_if_most_of_their_entries_are_in_it(
    total, holders, inside, specific, domains
):
    hints = HintIndex(knowledge_base(total, holders, inside)).hints("about zork")
    (term,) = hints["terms"]
    assert (term["specific"], term["domains"], hints["domains"]) == (specific, domains, domains)
    assert str(holders + 1) in term["reason"]


def test_a_term_of_an_entry_without_category_names_none():
    hints = HintIndex([entry("e", ["zork"], categories=[])]).hints("zork")
    assert hints["domains"] == []
    assert hints["terms"][0]["reason"].endswith("its entries have no category")


def test_a_query_in_capitals_names_no_domain_by_a_name_that_is_a_word():
    index = HintIndex([entry("e", ["IT", "VPN"])])
    assert index.hints("IS IT RAINING")["domains"] == []
    assert index.hints("IT helpdesk")["domains"] == ["c"]
    assert index.hints("VPN SETUP")["domains"] == ["c"]


@pytest.mark.parametrize("title", ["Overview", "README", "Index", "Introduction", "概述"])
def test_a_generic_title_gives_no_hint(title):
    assert HintIndex([entry("e", title=title)]).hints(f"the {title} of it")["terms"] == []


def test_case_sensitive_terms_can_be_named():
    assert keywords("mia casa", "MIA") == ["MIA"]
    assert keywords("mia casa", "MIA", case_sensitive=["MIA"]) == []


def test_entries_that_share_more_and_rarer_terms_come_first():
    entries = [
        entry("both", ["alpha", "beta"]),
        entry("one", ["alpha"]),
        entry("other", ["beta"]),
        entry("third", ["beta"]),
    ]
    assert [found["entry_id"] for found in HintIndex(entries).hints("alphas beta")["entries"]][
        :2
    ] == ["both", "one"]


def test_a_term_that_very_many_entries_declare_ranks_but_lists_no_more_than_ten():
    entries = [entry(f"{i:03}", ["common"]) for i in range(300)] + [
        entry("rare", ["rare", "common"])
    ]
    hints = HintIndex(entries).hints("a rare common thing")
    assert len(HintIndex(entries).hints("common")["entries"]) == 10
    assert [(found["entry_id"], found["keywords"]) for found in hints["entries"]] == [
        ("rare", ["rare", "common"])
    ]


def test_unused_keywords_are_reported_once_per_entry():
    (problem,) = HintIndex([entry("e.md", ["a", "the", "-", "fine"])]).problems
    assert str(problem) == (
        "e.md: keywords that would match everything, or nothing, are not used "
        "as hints: 'a', 'the', '-'"
    )


@pytest.mark.parametrize(
    ("keyword", "written"),
    [("fly", "flies"), ("flies", "Flies"), ("O'Neil", "O’Neil"), ("OʼNeil", "o'neils")],
)
def test_a_new_keyword_counts_every_entry_that_writes_it_otherwise(keyword, written):
    others = [entry(f"{i}.md", text=f"A {written}.") for i in range(8)]
    new = [*others, entry("new.md", [keyword])]
    updated, afresh = (
        index.hints(written) for index in (HintIndex(others).updated(new), HintIndex(new))
    )
    assert updated == afresh
