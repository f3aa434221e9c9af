"""Frontmatter as it is written in the wild: every shape gives what its author meant, or says why it
does not.
"""

import json

import pytest
from conftest import write_files
from parts.cases import FOLDER, parameters, write_case

from langchain_lookup_knowledge import FrontmatterFields, KnowledgeBase
from langchain_lookup_knowledge.reading.documents import read_folder


def read(tmp_path, text, **fields):
    entries, report = read_folder(
        write_files(tmp_path, {"a.md": text}), FrontmatterFields(**fields)
    )
    return entries[0], [str(problem) for problem in report.problems]


@pytest.mark.parametrize(
    ("text", "title", "keywords"),
    [
        ("+++\ntitle = 'T'\ntags = ['1.10', 'b']\nversion = 1.10\n+++\nbody\n", "T", ("1.10", "b")),
        (
            "+++\ntags = [1.10, 7, 2024-02-29, 08:00:00, true]\n+++\n# H\n",
            "H",
            ("1.10", "7", "2024-02-29", "08:00:00", "true"),
        ),
        (
            '{"title": "T", "tags": ["a", 1.10, 1e5, null, true]}\nbody\n',
            "T",
            ("a", "1.10", "1e5", "true"),
        ),
        ('\n\n{\n\t"title": "T",\n\t"tags": "a, b"\n}\n\nbody\n', "T", ("a", "b")),
        ('---\ntitle: !!str 1.10\ntags: \'["a", "b, c"]\'\n---\nbody\n', "1.10", ("a", "b, c")),
        (
            "---\ntitle: T\ntags: ['#one', 'C#', '#1 fan']\n---\nbody\n",
            "T",
            ("one", "C#", "#1 fan"),
        ),
        ("---\ntitle: T\nmeta: {tags: [x1]}\n---\nbody\n", "T", ()),
    ],
)
def test_values_stay_as_written(tmp_path, text, title, keywords):
    entry, problems = read(tmp_path, text)
    assert (entry.title, entry.keywords, problems) == (title, keywords, [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("+++\ntitle = \n+++\nkept\n", "a.md:2: the frontmatter is not TOML"),
        ("+++\nt = 1\nt = 2\n+++\nkept\n", "a.md:3: the frontmatter is not TOML"),
        (
            "+++\ntitle = 1\nkept\n",
            "a.md:1: the frontmatter is never closed; the whole file is used "
            "as text: add a line +++",
        ),
        (
            "+++\na" + ".a" * 60 + " = 1\n+++\nkept\n",
            "a.md:2: the frontmatter has a key of more than 50 parts",
        ),
        ('{"title": "T",\n "tags": [}\nkept\n', "a.md:2: the frontmatter is not JSON"),
        ('{"a":' * 5000, "a.md:1: the frontmatter is not JSON ("),
        ("---\n" + "a: [" * 2000 + "\n---\nkept\n", "a.md:2: the frontmatter is not YAML"),
        (
            "---\nx: " + "y" * 100_001 + "\n---\nkept\n",
            "a.md:1: the frontmatter has 100006 characters, more than 100000",
        ),
    ],
)
def test_a_header_that_cannot_be_read_stays_in_the_text_and_is_reported(tmp_path, text, problem):
    entry, problems = read(tmp_path, text)
    assert entry.text == text
    assert [text[: len(problem)] for text in problems] == [problem]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (
            "+++\ntitle = 'T'\ntags = {a = 1}\n+++",
            "a.md:3: tags: a mapping is ignored: write a list or a string",
        ),
        (
            '{"title": "A",\n"title": "B"}',
            "a.md:2: the key 'title' is written twice; the last one counts: remove one",
        ),
        (
            "---\ntitle: T\ntags: !!python/name:os.system x\n---",
            "a.md:3: tags: a value with the tag 'tag:yaml.org,",
        ),
        (
            "---\ntitle: T\ntags: !secret x\n---",
            "a.md:3: tags: a value with the tag '!secret' is ignored: remove the tag",
        ),
        (
            '---\ntitle: T\ntags: ["a\\u202eb"]\n---',
            "a.md:3: tags: hidden characters are removed (U+202E): they may",
        ),
        (
            f"---\ntitle: {'T' * 201}\n---",
            "a.md: the title has 201 characters; those after the first 200 are ignored: shorten it",
        ),
        (
            f"---\ntags: [{'k' * 201}, ok1]\n---",
            "a.md: keywords and tags: values longer than 200 characters are "
            "ignored (1): shorten them",
        ),
    ],
)
def test_a_value_that_is_not_used_as_written_is_reported_with_its_line(tmp_path, header, problem):
    _, problems = read(tmp_path, f"{header}\nbody\n")
    assert [text[: len(problem)] for text in problems] == [problem]


@pytest.mark.parametrize(
    "text",
    ["{% if x\n", "{{< figure\n", "{not json}\n", "{}\ntext", '{"a": 1} is JSON\n'],
)
def test_a_text_that_begins_with_a_brace_is_text(tmp_path, text):
    entry, problems = read(tmp_path, text)
    assert (entry.text, problems) == (text, [])


def test_entities_in_titles_and_keywords_are_decoded(tmp_path):
    text = (
        "---\ntitle: Logs &amp; <em>more</em>\nkeywords: R&amp;D, a&lt;b\n"
        "aliases: [Q&amp;A, AT&T]\n---\nx\n"
    )
    entry, problems = read(tmp_path, text)
    assert (entry.title, entry.keywords) == ("Logs & more", ("R&D", "a<b"))
    assert (entry.entities, problems) == (("Q&A", "AT&T"), [])


def test_nested_keys_are_named_with_dots(tmp_path):
    text = "---\nmetadata:\n  triggers: [find product]\nms.topic: article\n---\n"
    entry, _ = read(
        tmp_path,
        text,
        keywords=("metadata.triggers", "ms.topic", "ms.absent", "metadata.triggers.deeper"),
    )
    assert entry.keywords == ("find product", "article")


@pytest.mark.parametrize(
    "field", ["draft: true", 'draft: "True"', "publish: false", "published: no"]
)
def test_a_draft_is_skipped_where_that_is_asked_for(tmp_path, field):
    write_files(tmp_path, {"a.md": f"---\n{field}\n---\n", "b.md": "---\ndraft: false\n---\n"})
    assert len(read_folder(tmp_path, FrontmatterFields())[0]) == 2
    entries, report = read_folder(tmp_path, FrontmatterFields(skip_drafts=True))
    assert [entry.entry_id for entry in entries] == ["b.md"]
    (skipped,) = report.skipped
    assert str(skipped).startswith("a.md: skipped: a draft (")
    assert (report.seen, report.loaded) == (2, 1)


SHAPES = {
    1: {
        "title": "Moving the archive",
        "keywords": ("archive", "tape"),
        "categories": ("storage ops",),
    },
    2: {"title": "Getting started"},
    3: {"title": "About"},
    4: {"title": "Rotate keys", "keywords": ("keys", "rotation"), "categories": ("Security",)},
    5: {"title": "Rotate keys", "keywords": ("keys", "rotation"), "categories": ("Security",)},
    6: {
        "title": "Sum of subsets",
        "keywords": ("search", "pruning"),
        "categories": ("Algorithms",),
    },
    7: {"title": "Container runtimes", "text": "Which runtimes\nare supported.\n\n\nBody\n"},
    8: {"title": "이미지", "text": "\n\nBody\n"},
    9: {
        "title": "Connect to Splunk",
        "keywords": ("splunk", "connector", "panel"),
        "entities": ("Splunk",),
    },
    10: {"title": "Component rating"},
    11: {"title": "Guide"},
    12: {"title": "Package tool guide", "text": "From zero\n\n# Guide\n\n---\n\nBody\n"},
    13: {
        "title": "a",
        "text": "Tool\nFast\n\n- One\n  Detail one\n- Two\n  Detail two\n",
    },
    14: {
        "title": "Scheduler internals",
        "keywords": ("backend", "scheduler"),
        "categories": ("Tech",),
    },
    15: {"title": "Layout"},
    16: {"title": "Document: body property", "entities": ("body",)},
    17: {
        "title": "Recordset: scrolling | Docs",
        "keywords": ("VS.Help.1016", "recordsets [C++], end of", "cursors [ODBC], moving to"),
    },
    18: {"title": "Reviewing your log", "keywords": ("Identity", "Access management")},
    19: {"title": "How it works"},
    20: {"title": "Page", "keywords": ("HTML5", "CSS")},
    21: {"title": "a", "keywords": ("world/place/inn",)},
    22: {
        "title": "a",
        "keywords": ("lecture", "note", "university"),
        "entities": ("Product-market fit", "PMF"),
    },
    23: {"title": "a", "keywords": ("derivation", "QM", "energy")},
    24: {"title": "a"},
    25: {"title": "a", "categories": ("Cloud",)},
    26: {"title": "Pod", "keywords": ("a.b.c", "scratch")},
    27: {
        "title": "202401021530 Atomic notes",
        "keywords": ("zettel", "method", "note-taking"),
        "entities": ("Atomic", "Evergreen note"),
    },
    28: {"title": "a", "text": "title: Deploy\n"},
    29: {
        "title": "My review",
        "keywords": ("pelican", "publishing"),
        "categories": ("Python",),
        "text": "\nBody\n",
    },
    30: {"title": "Second post", "keywords": ("posts", "second tag")},
    31: {
        "title": "a",
        "text": '---\n  title: "Time series"\n',
        "problem": "a.md:3: the frontmatter is not YAML",
    },
    32: {"title": "Report", "categories": ("news", "c#", "analysis")},
    33: {
        "title": "Interface guide",
        "text": "\n# Interface guide\n\n+++\n\nText after a cell break\n",
    },
    34: {"title": "Model", "keywords": ("summarization", "7b")},
    35: {"title": "search-and-filter", "keywords": ("find product", "filter results")},
    36: {
        "title": "a",
        "text": "---\ndescription: Accessibility",
        "problem": "a.md:2: the frontmatter is not YAML",
    },
    37: {"title": "Use one queue"},
    38: {"title": "Extra field", "keywords": ("extra field",)},
    39: {"title": "Meta Intents", "categories": ("Conversational",)},
    40: {"title": "external/fft.cpp"},
    41: {"title": "Json page", "keywords": ("json", "x"), "text": "\nBody\n"},
    42: {"title": "a", "text": "\n\n\n\nBody\n"},
    43: {
        "title": "Queue design",
        "keywords": ("infra", "queue"),
        "entities": ("MQ",),
        "text": "\n- Body\n",
    },
}
FIELDS = {
    9: {"entities": ("entities", "sidebar_label")},
    16: {"entities": ("short-title",)},
    17: {"keywords": ("f1_keywords", "helpviewer_keywords")},
    18: {"keywords": ("topics",)},
    25: {"category": ("topic",)},
    27: {"entities": ("aliases", "alias")},
    35: {"title": ("title", "name"), "keywords": ("metadata.triggers",)},
    39: {"title": ("pagename",), "category": ("categoryname",)},
}


def shapes():
    lines = (FOLDER / "frontmatter_shapes.jsonl").read_text("utf-8").splitlines()
    return [
        pytest.param(shape, id=f"{shape['number']}-{shape['about']}")
        for shape in map(json.loads, lines)
    ]


@pytest.mark.parametrize("shape", shapes())
def test_a_shape_found_in_the_wild(tmp_path, shape):
    number = shape["number"]
    entry, problems = read(tmp_path, shape["text"], **FIELDS.get(number, {}))
    wanted = {"keywords": (), "categories": (), "entities": ()} | SHAPES[number]
    problem = wanted.pop("problem", None)
    assert [text[: len(problem or "")] for text in problems] == ([problem] if problem else [])
    start = wanted.pop("text", "")
    assert entry.text.startswith(start)
    assert {field: getattr(entry, field) for field in wanted} == wanted


CASES = {
    "F-01": {"a.md": ("Refund rules", ("refund", "chargeback", "store credit"))},
    "F-02": {"odbc.md": ("Scrolling", ("recordsets [C++], end of", "cursor moves"))},
    "F-03": {
        "n1.md": ("A", ()),
        "n2.md": ("B", ("billing",)),
        "n3.md": ("Shipping times", ("shipping",)),
    },
    "F-06": {"y.md": ("20240425", ("2024", "429", "1.10", "010", "1_000", "0x1F"))},
    "F-09": {"bad.md": ("Leap", ("leap",)), "ok.md": ("Shipping times", ("shipping",))},
    "F-15": {"l.md": ("l", ()), "s.md": ("s", ())},
    "F-17": {"indent.md": ("indent", ()), "open.md": ("open", ()), "typo.md": ("typo", ())},
    "F-19": {"nb.md": ("Notebook", ("notebook",)), "plain.md": ("plain", ())},
    "F-21": {"dup.md": ("Second", ("dup",))},
    "F-23": {"bomb.md": ("Lol", ()), "ok.md": ("Shipping times", ("shipping",))},
    "F-26": {
        "named.md": ("Named", ("vase",)),
        "tp.md": ("Tp", ("tp",)),
        "tpl.md": ("Template", ("tpl",)),
    },
    "F-27": {"ok.md": ("Shipping times", ("shipping",)), "u16.md": ("Wide", ("wide",))},
    "F-28": {"ok.md": ("Shipping times", ("shipping",))},
    "F-29": {"ok.md": ("Public launch", ("launch",))},
    "F-30": {"a.md": ("Shipping times", ("shipping",))},
    "F-31": {},
    "F-32": {"a.md": ("Shipping times", ("shipping",))},
    "F-33": {"caf\u00e9.md": ("Caf\u00e9 menu", ("menu",))},
    "F-39": {"zh.md": ("镜像", ("镜像",))},
    "F-40": {
        "B.MD": ("Upper case ext", ()),
        "a.mdx": ("Connect Splunk", ("splunk",)),
        "c.markdown": ("Long ext", ()),
    },
    "F-43": {"a.md": ("Shipping times", ("shipping",)), "b.md": ("b", ())},
    "F-44": {"j.md": ("J", ()), "s.md": ("S", ("don't fix",))},
    "F-45": {
        "#sudo su README.md": ("Odd", ("odd",)),
        'a b/c\'s "d".md': ("Quote", ("quote",)),
        "\\xff\\xfe.md": ("Raw name", ()),
    },
}
REPORTED = {
    "F-15": [
        "l.md:2: the frontmatter is not a mapping",
        "s.md:2: the frontmatter is not a mapping",
    ],
    "F-17": ["open.md:1: the frontmatter is never closed"],
    "F-21": ["dup.md:4: the key 'title' is written twice"],
    "F-23": ["bomb.md:11: tags: list items that are not plain text are ignored"],
    "F-26": [
        "named.md:2: title: a template that was not filled in is ignored",
        "named.md:3: keywords: a template that was not filled in is ignored",
        "tpl.md:3: date: looks like a template that was not filled in",
    ],
    "F-27": ["bad.md:4: skipped: not utf-8 at byte 25", "gbk.md:2: skipped: not utf-8 at byte 11"],
    "F-29": [f"{name}.md: skipped: a draft" for name in "dps"],
    "F-30": [
        "broken.md: skipped: it cannot be read",
        "leak.md: skipped: a link that leaves",
        "out: linked folder",
        "sub/loop: linked",
    ],
    "F-31": [".: no Markdown file", "A: linked folder not followed"],
    "F-43": ["b.md:2: the frontmatter is not YAML", "c.md:1: skipped: not utf-16"],
}


@pytest.mark.parametrize("case", parameters("frontmatter"))
def test_a_case_of_frontmatter(case, tmp_path):
    folder = write_case(tmp_path, case)
    fields = FrontmatterFields(
        skip_drafts=case["input"].get("config", {}).get("skip_drafts", False)
    )
    with KnowledgeBase.open(folder, index=None, fields=fields) as kb:
        read_titles = {entry.entry_id: (entry.title, entry.keywords) for entry in kb.entries}
        wanted = CASES[case["id"]]
        assert read_titles == wanted
        problems, starts = sorted(map(str, kb.problems)), REPORTED.get(case["id"], [])
        assert [text[: len(start)] for text, start in zip(problems, starts, strict=True)] == starts
        assert kb.load_report.seen == kb.load_report.loaded + len(kb.load_report.skipped)
        kb.hints(case["input"]["query"])
        if case["id"] == "F-39":
            (shown,) = kb.l0.excerpt("zh.md", [])
            assert shown["text"] == "容器镜像说明。"


def test_scopes_see_every_key_and_single_values_before_those_of_lists(tmp_path):
    listed = ", ".join(f"k{number}" for number in range(150))
    entry, problems = read(
        tmp_path, f"---\nkeywords: [{listed}]\ncategory: it\ntenant: acme\nowner: ~\n---\nx\n"
    )
    assert entry.attributes[:3] == (("category", "it"), ("tenant", "acme"), ("keywords", "k0"))
    assert len(entry.attributes) == 100
    assert problems == [
        "a.md: the frontmatter has 152 values; scopes use only the first 100: remove some"
    ]


def test_a_keyword_is_read_without_its_marks(tmp_path):
    written = (
        "---\nkeywords: ['`kubectl`', '**paid leave**', '[Refunds](refunds.md)', '[[a|Pay day]]', "
        "'form {{! old }}7 <!-- x -->', 'a*b', __init__, 'list[str]', 'f(x)']\n---\nText.\n"
    )
    (entry,), _ = read_folder(write_files(tmp_path, {"a.md": written}), FrontmatterFields())
    assert entry.keywords == (
        "kubectl", "paid leave", "Refunds", "Pay day", "form 7", "a*b", "__init__", "list[str]",
        "f(x)",
    )  # fmt: skip
