"""Comments, CriticMarkup, statements of modules and entities."""

import pytest

from langchain_lookup_knowledge.text.visible.cleaning import seen_title, visible, visible_text


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a %%b%% c %% d %%\n%%\ne\n\n```\nf\n```\n%%\ng", "a  c \n\ng"),
        ("50%% on 100%% of %%PATH%%", "50%% on 100%% of %%PATH%%"),
        ("a %% b\n\nc %% d", "a %% b\n\nc %% d"),
        ("%% never closed", "%% never closed"),
        ("a\n\n% b\n% c\n\nd\n% e of f\n", "a\n\n\n\nd\n% e of f\n"),
        ("% a\n\nb", "\n\nb"),
        ("a {--b--} {++c++}{>>d<<} {~~e~>f~~} {==g==}", "a c f g"),
        ("{++a <!-- b -->c++} {~~d~~} {--e", "a c {~~d~~} {--e"),
        ("a\n\n::: {.content-hidden}\nb\n\n:::: {.c}\nd\n::::\n:::\n\ne", "a\n\n\n\ne"),
        (":::{ .content-hidden }\na\n:::\n::: {.b}\nc\n:::\n", "\n::: {.b}\nc\n:::\n"),
        ('::: {.content-hidden when-format="pdf"}\na\n:::\n', None),
        ("::: {.content-hidden}\na\n\n::: {.b}\nc\n:::\n", None),
        ("::: {.not-content-hidden}\na\n:::\n", None),
        ("```\n::: {.content-hidden}\na\n:::\n```\n", None),
        ("import {\n  a,\n  b,\n} from 'c';\nimport d, { e } from \"f\"\n\ng", "\n\n\ng"),
        ("export const a = {\n  b: [1],\n\n  c: '{}',\n};\n\nd", "\n\nd"),
        ("export default function A() {\n  return (\n    1\n  );\n}\nb", "\nb"),
        ("export const a = {\nexport const b = 1\nc", "\n\nc"),
        ("export { a }\nexport * from 'b'\nc", "\n\nc"),
        ("import the data.\nexport default values are used.\n", None),
        ("export FOO=bar\n", None),
        ("a &amp; b&nbsp;c &#65;&#x42; &hellip; &unknown; &amp x", "a & b c AB … &unknown; &amp x"),
        ("a &lt; b &lt;c&gt;", "a < b \\<c>"),
        ("|a &#124; b|", "|a \\| b|"),
        ("&#35; a\n- &gt; b &#42;c&#42;", "\\# a\n- \\> b \\*c\\*"),
        ("a&#8203;b&shy;c&#x202e;", "abc"),
        ("`&amp;` a", "`&amp;` a"),
        ("```\n%% a %% {--b--} &amp;\n% c\n```\n", None),
    ],
)
def test_what_a_dialect_hides_or_writes_in_another_way(written, seen):
    assert visible_text(written) == (written if seen is None else seen)


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Logging in &amp; Networks", "Logging in & Networks"),
        ("Travel <em>before</em> onboarding", "Travel before onboarding"),
        ("&lt;b&gt; | R&amp;D &amp;amp; a&param", "<b> | R&D &amp; a&param"),
        ("{{ title }}", "title"),
        ("import a from 'b'", "import a from 'b'"),
        ("C++ and List<String>", "C++ and List<String>"),
        ("<!-- a -->", "<!-- a -->"),
    ],
)
def test_a_title_reads_as_a_reader_sees_it(written, title):
    assert seen_title(written) == title


def test_lines_stay_exact_below_hidden_blocks():
    body = "a\n%%\nb\n\nc\n%%\nd\n\nexport const e = {\n  f,\n}\ng {--h\n\ni--}\nj\n"
    seen = visible(body)
    lines = seen.text.split("\n")
    for mark in ("a", "d", "g ", "j"):
        number = lines.index(mark) + 1
        shift = max(pair for pair in seen.shifts if pair[0] <= number)[1]
        assert body.split("\n")[number + shift - 1].startswith(mark)
