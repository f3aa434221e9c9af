"""HTML tags within text and MDX components as a reader sees them."""

import pytest

from langchain_lookup_knowledge.text.visible.cleaning import visible_text


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("a <b>b</b> <em class='x'>c</em><span>d</span>", "a b cd"),
        ("a<br>b<br/>\nc</br>", "a b  \nc  "),
        ("H<sub>2</sub>O 10<sup>6</sup> 1<sup>st</sup>", "H2O 10^6 1st"),
        ("<img src='a' alt='A &amp; B'> <img src=c>d", "A & B d"),
        ('<a href="/x">go</a> <a name="y"></a>z', "[go](/x) z"),
        ('<a href="mailto:a@b.c?subject=D E">F</a>', "[F](<mailto:a@b.c?subject=D E>)"),
        ("<code>a</code> <tt>b(&lt;c&gt;)</tt> <kbd>x`y</kbd>", "`a` `b(<c>)` x`y"),
        ("|<code>a &#124; b</code>|", "|`a \\| b`|"),
        ("<details><summary>s</summary>t</details>", "s: t"),
        ("<details>\n<summary>Why?</summary>\n\nt\n</details>", "\nWhy?\n\nt\n"),
        ("<Note>text</Note>", "Note: text"),
        ('<Callout type="warning">\ntext\n</Callout>', "Warning:\ntext\n"),
        ('<Aside type="tip" title="Mind">text</Aside>', "Mind: text"),
        (
            '<Tabs groupId="x">\n<TabItem value="a" label="A b">\nt\n</TabItem>\n</Tabs>',
            "\nA b:\nt\n\n",
        ),
        (
            "<Tabs values={[{label: 'A b', value: 'a'}]}>\n"
            '<TabItem value="a">\nt\n</TabItem>\n</Tabs>',
            "\nA b:\nt\n\n",
        ),
        ('<Card title="T" href="/x" description="D" /> a', "T: D a"),
        ("<Icon name='x' /> a <Tooltip onClick={() => { x }}>b</Tooltip>", "a b"),
        ("<Steps.Step title={'One'}>a</Steps.Step>", "One: a"),
    ],
)
def test_a_tag_is_what_a_reader_sees(written, seen):
    assert visible_text(written) == seen


@pytest.mark.parametrize(
    "text",
    [
        "List<String> <NAME> <YOUR-KEY> the <Note> tag, a < b, <https://c.d>, <b> alone",
        "`<b>a</b>`\n\n```\n<Note>a</Note>\n```\n",
        "<table>\n<tr><th>a</th></tr>\n</table>\n",
        '<h1 align="center">\na\n</h1>\n',
    ],
)
def test_words_to_fill_in_code_and_blocks_stay(text):
    assert visible_text(text) == text


def test_text_in_a_hidden_element_stays_hidden():
    assert visible_text('a <span hidden><b>b</b>{{< x "c" >}}&amp;</span>d') == "a d"
