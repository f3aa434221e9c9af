"""Template tags as a reader sees them."""

import pytest

from langchain_lookup_knowledge.text.visible.cleaning import visible, visible_text


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        # text for readers, in an argument or in quotes
        ('A {{< glossary_tooltip text="node" term_id="node" >}}.', "A node."),
        ('A {{<glossary_tooltip term_id="kube-proxy" length="all">}}.', "A kube-proxy."),
        ("A {{< tip-of 'x y' >}}.", "A x y."),
        ('Ask {% slack_channel "people-ops-help" %}.', "Ask people-ops-help."),
        ('Ask {% slack_channel "help" "the help channel" %}.', "Ask the help channel."),
        ('## {{% heading "whatsnext" %}}', "## whatsnext"),
        ("## {%- heading 'next' -%}", "## next"),
        ('{{< badge color=blue text="Mac only" >}} 13+', "Mac only 13+"),
        ('{{< button text="Go on" url="a/b.md" >}}', "[Go on](a/b.md)"),
        ('[page]({% page "/a/#b" %})', "[page](/a/#b)"),
        ('[page]({{< relref "/docs/a" >}})', "[page](/docs/a)"),
        ("[page]({% page\n  '/a' %})", "[page](/a)"),
        ('A {{< unknown a="x" b=true width="10%" path="/x/" >}}.', "A x."),
        ('{{< x a="it\'s" b="say "so"" >}}', 'it\'s say "so"'),
        # boxes
        ("{{< note >}}\nMind.\n{{< /note >}}\n", "Note:\nMind.\n\n"),
        ("{{% warning %}}Mind.{{% /warning %}}", "Warning: Mind."),
        ('{{< alert color="danger" title="Stop" >}}', "Stop:"),
        ('{% alert "Heads up!" %}', "Heads up!"),
        ('{% alert "", "warning" %}', "Warning:"),
        ("{% alert %}", "Note:"),
        ('{% hint style="info" %}a{% endhint %}', "Info: a"),
        ("{{< callout type=warning >}}", "Warning:"),
        # sections
        ('{{< tabs name="x" >}}\n{{% tab name="AWS" %}}\na\n{{% /tab %}}\n', "\nAWS:\na\n\n"),
        ('{% tab title="macOS" %}a{% endtab %}', "macOS: a"),
        ('{{< details "More?" >}}a{{< /details >}}', "More? a"),
        ('{{< details summary="More" >}}a{{< /details >}}', "More: a"),
        # states, values
        ('{{< feature-state for_k8s_version="v1.24" state="beta" >}}', "Feature state: v1.24 beta"),
        ('{{< release-date date="2019-04-27" >}}', "Release date: 2019-04-27"),
        ("{{< new-in 0.123.0 >}}", "New in: 0.123.0"),
        ("Kubernetes v{{< skew currentVersion >}}.", "Kubernetes v current version."),
        ('Use {{< param "kube_version" >}} now', "Use kube version now"),
        ('https://a.b/v{{< param "version" >}}/c', "https://a.b/v{version}/c"),
        # pictures, samples, embedded things
        ('{% image "_img/a.png" "A login" %}', "A login"),
        ('{% image_with_class "_img/a.png" "wide" "A login" %}', "A login"),
        (
            '{{< figure src="/a.svg"\n  alt="A flow" caption="Figure 1"\n  class="x" >}}',
            "Figure 1. A flow",
        ),
        ('{% image "_img/a.png" %}{% uswds_icon "campaign" %}', ""),
        ('{{% code_sample file="/a/b.yaml" %}}', "a/b.yaml"),
        ('{{< codenew language="yaml" file="a/b.yaml" >}}', "a/b.yaml"),
        ("{{< youtube w7Ft2ymGmfc >}}", ""),
        # what stands for no text
        ('{% include note.html content="Mind it." class="b" icon=\'c\' %}', "Mind it."),
        ('{% include a.html file="b.png" caption="A pump" alt="pump" max-width="600" %}', "A pump"),
        ("{% include a.html content=page.text title=message heading=true %}", ""),
        ('{{< include "a.md" >}}{% include "b.html"\n  steps: c.d\n  at:e %}', ""),
        ("a {% if user == 'x' %}b{% else %}c{% endif %}", "a b" + "c"),
        ("{% assign a = 'b' %}\n{{< version-check >}} If you", "\nIf you"),
        ("a {{< x >}} b", "a b"),
        # variables
        ("# {{ title }}", "# title"),
        ("{{ page.name | upcase }}", "page.name"),
        ("{{ 'Hello there' | t }}", "Hello there"),
        ('{{ t("Hello") }}', "Hello"),
        ("[a]({{ site.baseurl }}/b)", "[a](/b)"),
        ("https://a.b/{{ x }}", "https://a.b/{x}"),
        # code
        (
            "{{< highlight yaml >}}\na: {{ b }}\n# c\n{{< /highlight >}}\n",
            "```yaml\na: {{ b }}\n# c\n```\n",
        ),
        ('{{< highlight promql "hl_inline=true" >}}sum(a){{< /highlight >}}', "`sum(a)`"),
        ("{{< mermaid >}}\na --> b %% c %%\n{{< /mermaid >}}", "```mermaid\na --> b %% c %%\n```"),
        ("{% code title='a' %}\n```\nb\n```\n{% endcode %}", "\n```\nb\n```\n"),
        ('{% raw %}{% x "y" %}<!-- z -->{% endraw %}', '{% x "y" %}'),
        ('{{</* note "a" */>}}', '`{{< note "a" >}}`'),
        ("{{< a.inline >}}{{ with .b }}\nc\n{{ end }}{{< /a.inline >}}", "\nc\n"),
        # comments
        ("a {{< comment >}}b\n\nc{{< /comment >}}d", "a d"),
        ("a {{! b }}c{{!d}} {{!\n e\n}}f", "a c f"),
        ("{% raw %}{{! a }}{% endraw %}b", "{{! a }}b"),
        (
            "a{% comment %}b{%- comment -%}c{% endcomment %}d{% endcomment %}e"
            "{% comment %}f{% endcomment %}g",
            "aeg",
        ),
        ("a{% comment %}b{% comment %}c{% endcomment %}d", "ad"),
        ("a{% comment %}b {% x %}{% endcomment %}c{# d #}{#e#}{{/* f */}}{{!-- g --}}", "ac"),
    ],
)
def test_a_tag_is_the_text_that_it_stands_for(written, seen):
    assert visible_text(written) == seen


@pytest.mark.parametrize(
    "text",
    [
        '`{{< note >}}` and ``{% x "y" %}``',
        '```\n{{< note >}}\n{% x "y" %}\n{{ z }}\n```\n',
        'a\n\n    {{< note >}}\n    {% x "y" %}\n',
        "${{ secrets.TOKEN }} {{.ID}} {{ range .Items }} {{else}}",
        "## Heading {#an-id}\n\n## Other {#other}\n",
        "never closed {{< note and {% if and {{ x\n\n>}} %} }}",
        "\\{{< note >}}",
        "a {b} { c } 50 % of {}",
    ],
)
def test_what_is_no_tag_and_code_that_shows_tags_stay(text):
    assert visible_text(text) == text


def test_lines_stay_exact_below_tags_of_several_lines():
    body = 'a\n\n{{< figure\n  src="b"\n  alt="c" >}}\n\n{% include "d"\n  e: f %}\n\ng\n'
    seen = visible(body)
    assert seen.text == "a\n\nc\n\n\n\ng\n"
    lines = seen.text.split("\n")
    shift = max(pair for pair in seen.shifts if pair[0] <= lines.index("g") + 1)[1]
    assert body.split("\n").index("g") == lines.index("g") + shift


UNITS = [
    *("{{<", "{{< a >}}", '{{< a "b', "{{<a =", "{%", '{% a "', "{% raw %}", "{% comment %}", "{#"),
    *(
        "{# ",
        "{{",
        "{{a(",
        "{{ a |",
        "{{/*",
        "{{!--",
        "{{!",
        "{% comment %}{% endcomment %}",
        "{{</*",
        "a{{ b }}",
        "](x{{ b }}",
    ),
    *("{{< highlight >}}", "{{< code >}}", "{{< /code >}}", "{{< a.inline >}}", "{{< a b=c "),
]


def steps(text):
    """Return how many positions the scan of a text looks at."""
    from langchain_lookup_knowledge.text.visible import templates

    counted = 0
    closer = templates.Templates.closer

    class Counted(templates.Templates):
        def closer(self, mark, position):
            nonlocal counted
            before = self._next.get(mark)
            found = closer(self, mark, position)
            if self._next.get(mark) != before or before is None:
                counted += (len(self._text) if found is None else found) - position
            return found

    scan = Counted(text)
    position = 0
    while (position := text.find("{", position)) >= 0:
        position = max(scan.edits(position)[0], position + 1)
    return counted


@pytest.mark.parametrize("unit", UNITS)
def test_closing_marks_are_looked_for_once(unit):
    short, long = (unit * (size // len(unit)) for size in (50_000, 100_000))
    assert steps(long) <= 2.1 * steps(short) + 1000
