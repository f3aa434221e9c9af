"""Asks for exact things - a row, a code, a version - with the answer in the text or not, against
the usual hybrid of chunks.

`python benchmarks/exact_items.py [--seed N] [--asks N] [--out FOLDER]`

Writes a knowledge base from a seed: reference pages of fourteen families, each with rows that
differ from one another in a few characters, among pages of prose. Every ask names one row by its
exact thing, and counts as shown if that row's own value is in the text that the model gets, and as
first if it is in the first match (the first chunk of the hybrid). Both sides get the same number of
characters; see `evidence.py` for how the hybrid is made.
"""

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from evidence import Ask, UsualHybrid, answer, first_match

from langchain_lookup_knowledge import (
    KnowledgeBase,
    LookupOptions,
    create_lookup_knowledge_graph,
)
from langchain_lookup_knowledge.evaluation.measuring import shows

ROWS = 24
"""Rows of a reference page."""
PAGES = 3
"""Reference pages of a family."""

Row = tuple[str, str, str]
"""A line of a page, what is asked for, and the value that answers it."""
Family = Callable[[random.Random, str], Row]

_SYLLABLES = "ba co di fa ga hu ka lo mi na or pe ra su ta ul va we zo".split()
_JOBS = "orders invoices sessions exports reports alerts backups uploads ledgers tickets".split()
_TEAMS = "Payroll Logistics Security Facilities Legal Treasury Procurement Training".split()
_SENTENCES = (
    "The {team} team looks after {job} and reviews the procedure every quarter.",
    "Changes are announced two weeks ahead, so that nobody is surprised by them.",
    "If something looks wrong, write down what you did and ask before you try again.",
    "Most requests about {job} are settled on the same day they arrive.",
    "Older notes on {job} were moved to the archive, where they can still be read.",
    "Everyone in {team} may propose a change; two colleagues have to agree with it.",
    "Keep the list short: what nobody has used for a year is removed.",
    "The figures are checked by hand, since a mistake here costs more than an hour.",
)


def name(rng: random.Random) -> str:
    return "".join(rng.choice(_SYLLABLES) for _ in range(4)).capitalize()


def prose(rng: random.Random, sentences: int) -> str:
    chosen = (rng.choice(_SENTENCES) for _ in range(sentences))
    return " ".join(s.format(team=rng.choice(_TEAMS), job=rng.choice(_JOBS)) for s in chosen)


def port(rng: random.Random, page: str) -> Row:
    number, service = rng.randrange(1024, 49152), name(rng)
    return f"| {number} | TCP | {service} gateway |", f"what listens on port {number}", service


def error_code(rng: random.Random, page: str) -> Row:
    code, cause = f"{page[:2].upper()}-{rng.randrange(1000, 9999)}", name(rng)
    return f"- `{code}`: the {cause} queue is full; empty it and try again.", f"error {code}", cause


def constant(rng: random.Random, page: str) -> Row:
    code = f"ERR_{name(rng).upper()}_{rng.choice(['TIMEOUT', 'REFUSED', 'EXPIRED', 'LOCKED'])}"
    fix = name(rng)
    return f"- {code}: renew the {fix} certificate.", f"I get {code}, what now?", fix


def contact(rng: random.Random, page: str) -> Row:
    person, mail = (
        f"{name(rng)} {name(rng)}",
        f"{name(rng).lower()}.{name(rng).lower()}@example.org",
    )
    return (
        f"| {person} | {mail} | room {rng.randrange(100, 999)} |",
        f"email address of {person}",
        mail,
    )


def release(rng: random.Random, page: str) -> Row:
    version = f"{rng.randrange(1, 4)}.{rng.randrange(20)}.{rng.randrange(20)}"
    change = name(rng)
    return (
        f"### {version}\n\nAdds the {change} importer and mends two faults.\n",
        f"what changed in v{version}",
        change,
    )


def address(rng: random.Random, page: str) -> Row:
    ip, host = (
        f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}",
        f"{name(rng).lower()}-01",
    )
    return f"| {ip} | {host} | rack {rng.randrange(1, 40)} |", f"which host has {ip}?", host


def hardware(rng: random.Random, page: str) -> Row:
    mac, device = ":".join(f"{rng.randrange(256):02x}" for _ in range(6)), f"{name(rng)} printer"
    return f"| {mac} | {device} |", f"whose MAC address is {mac}", device


def date(rng: random.Random, page: str) -> Row:
    day = f"20{rng.randrange(20, 30)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    event = name(rng)
    return (
        f"- {day}: the {event} audit takes place in building {rng.randrange(1, 9)}.",
        f"what happens on {day}?",
        event,
    )


def departure(rng: random.Random, page: str) -> Row:
    time, place = f"{rng.randrange(24):02}:{rng.randrange(60):02}", name(rng)
    return (
        f"| {time} | line {rng.randrange(1, 90)} | {place} |",
        f"where does the {page} shuttle at {time} go",
        place,
    )


def setting(rng: random.Random, page: str) -> Row:
    group, kind = name(rng).lower(), name(rng).lower()
    key = f"{group}.{kind}_{rng.choice(['limit', 'size', 'interval', 'ttl'])}"
    value = f"{rng.randrange(100, 99999)} ms"
    return (
        f"- `{key}`: how long a worker waits. The default is {value}.",
        f"default of {key}",
        value,
    )


def term(rng: random.Random, page: str) -> Row:
    word, meaning = name(rng), name(rng)
    return (
        f"**{word}**\n: A record that was signed by the {meaning} office.\n",
        f"what does {word} mean",
        meaning,
    )


def clause(rng: random.Random, page: str) -> Row:
    number = f"{rng.randrange(1, 30)}.{rng.randrange(1, 30)}.{rng.randrange(1, 9)}"
    duty = name(rng)
    return (
        f"{number} The lessee informs the {duty} board in writing.\n",
        f"section {number} of the {page} terms",
        duty,
    )


def file_name(rng: random.Random, page: str) -> Row:
    file = f"{name(rng).lower()}-{name(rng).lower()}.{rng.choice(['yml', 'toml', 'csv', 'log'])}"
    use = name(rng)
    return f"- {file}: read by the {use} importer at night.", f"what is {file} for?", use


def saying(rng: random.Random, page: str) -> Row:
    words = f"{rng.choice(_JOBS)} {name(rng).lower()} {rng.choice(_JOBS)}"
    origin = name(rng)
    return (
        f"- The phrase {words} comes from the {origin} branch.",
        f'where does "{words}" come from',
        origin,
    )


FAMILIES: dict[str, tuple[Family, str]] = {
    "port": (port, "| port | protocol | service |\n| --- | --- | --- |\n"),
    "error code": (error_code, ""),
    "constant": (constant, ""),
    "contact": (contact, "| name | mail | room |\n| --- | --- | --- |\n"),
    "version": (release, ""),
    "address": (address, "| address | host | rack |\n| --- | --- | --- |\n"),
    "MAC": (hardware, "| address | device |\n| --- | --- |\n"),
    "date": (date, ""),
    "time": (departure, "| time | line | to |\n| --- | --- | --- |\n"),
    "setting": (setting, ""),
    "glossary": (term, ""),
    "section": (clause, ""),
    "file": (file_name, ""),
    "phrase": (saying, ""),
}


def pages(rng: random.Random) -> Iterator[tuple[str, str, list[tuple[str, Row]]]]:
    """Yield the path and text of each page, and its rows with their family."""
    for family, (row, head) in FAMILIES.items():
        for _ in range(PAGES):
            place = name(rng)
            rows = [row(rng, place) for _ in range(ROWS)]
            text = (
                f"---\ntitle: {place} {family} list\ncategory: {rng.choice(_TEAMS)}\n---\n\n"
                f"# {place} {family} list\n\n"
                f"{prose(rng, 4)}\n\n## Entries\n\n{head}"
                + "\n".join(line for line, _, _ in rows)
                + "\n\n"
                f"## How it is kept\n\n{prose(rng, 6)}\n"
            )
            yield (
                f"{family.replace(' ', '-')}/{place.lower()}.md",
                text,
                [(family, one) for one in rows],
            )
    for number in range(40):
        title = f"{rng.choice(_TEAMS)} and {rng.choice(_JOBS)} {number}"
        body = "\n\n".join(f"## Step {step}\n\n{prose(rng, 7)}" for step in range(1, 6))
        yield f"notes/{number}.md", f"---\ntitle: {title}\n---\n\n{body}\n", []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--asks", type=int, default=336, help="how many rows are asked for")
    parser.add_argument("--out", type=Path, help="keep the knowledge base there")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    asks: dict[str, list[Ask]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.out or Path(made)
        for path, text, rows in pages(rng):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
            for family, (_, query, value) in rows:
                asks[family].append(Ask(query, (value,)))
        each = max(1, arguments.asks // len(asks))
        with KnowledgeBase.open(folder) as kb:
            graph = create_lookup_knowledge_graph(
                kb, record=None, options=LookupOptions(l1_timeout=60)
            )
            hybrid = UsualHybrid(kb)
            total = [0, 0, 0, 0, 0]
            print(f"{'':<12}{'asks':>6}{'shown':>8}{'first':>8}{'hybrid shown':>14}{'first':>8}")
            for family, known in asks.items():
                counts = [0, 0, 0, 0, 0]
                for ask in rng.sample(known, min(each, len(known))):
                    text, result = answer(graph, ask.query)
                    chunks = hybrid.search(ask.query, len(text))
                    counts[0] += 1
                    counts[1] += shows(text, ask.evidence)
                    counts[2] += shows(first_match(result), ask.evidence)
                    counts[3] += shows("\n".join(chunks), ask.evidence)
                    counts[4] += shows(chunks[0] if chunks else "", ask.evidence)
                print(row_of(family, counts))
                total = [a + b for a, b in zip(total, counts, strict=True)]
            print(row_of("together", total))


def row_of(label: str, counts: list[int]) -> str:
    shares = [count / counts[0] for count in counts[1:]]
    cells = (f"{share:>{width}.3f}" for share, width in zip(shares, (8, 8, 14, 8), strict=True))
    return f"{label:<12}{counts[0]:>6}{''.join(cells)}"


if __name__ == "__main__":
    main()
