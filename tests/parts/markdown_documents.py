"""Markdown documents generated from a seed: CommonMark's constructs, nested and broken."""

import random
from collections.abc import Iterator

WORDS = "kiln glaze clay wheel bisque cone shelf vent slip wedge trim fire".split()


def markdown_documents(count: int, seed: int) -> Iterator[str]:
    """Yield documents; comments in them are numbered: `<!-- c1 -->`, `<!-- c2 -->`."""
    rng = random.Random(seed)
    for _ in range(count):
        writer = _Writer(rng)
        lines = [line for _ in range(rng.randint(1, 12)) for line in writer.block(0)]
        if rng.random() < 0.2:  # broken anywhere
            lines = [line[rng.randint(0, 3) :] if rng.random() < 0.1 else line for line in lines]
        yield "\n".join(lines) + rng.choice(["", "\n", "\n\n"])


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._comments = 0

    def block(self, depth: int) -> list[str]:
        """Return the lines of a random block, often with a blank line after it."""
        makers = [self.atx, self.setext, self.fence, self.paragraph, self.table, self.html]
        makers += [self.indented, self.comment, self.rule]
        if depth < 4:
            makers += [self.bullets, self.bullets, self.quote]
        lines = self._rng.choice(makers)(depth)
        return [*lines, ""] if self._rng.random() < 0.7 else lines

    def words(self) -> str:
        return " ".join(self._rng.choices(WORDS, k=self._rng.randint(1, 6)))

    def note(self) -> str:
        self._comments += 1
        return f"<!-- c{self._comments} -->"

    def atx(self, _: int) -> list[str]:
        level = self._rng.randint(1, 7)
        closing = self._rng.choice(["", "", " #", " ###", "#"])
        space = self._rng.choice([" ", " ", " ", "", "\t", "   "])
        return [
            " " * self._rng.choice([0, 0, 1, 3, 4]) + "#" * level + space + self.words() + closing
        ]

    def setext(self, _: int) -> list[str]:
        line = self._rng.choice(["=", "===", "---", "-", "=====  ", "- -", "   ---", "    ---"])
        return [self.words() for _ in range(self._rng.randint(1, 2))] + [line]

    def fence(self, _: int) -> list[str]:
        mark = self._rng.choice(["```", "~~~", "````", "~~~~~", "``"])
        closing = self._rng.choice([mark, mark, mark, mark[:-1], mark + mark[0], "", mark + " x"])
        inside = self._rng.choices(
            ["# no heading", "", "- no item", "~~~", "```", "x = 1", self.note()], k=3
        )
        opening = (
            " " * self._rng.choice([0, 0, 0, 2, 4]) + mark + self._rng.choice(["", "sh", " a b"])
        )
        return [opening, *dict.fromkeys(inside), closing]

    def paragraph(self, _: int) -> list[str]:
        lines = [self.words() for _ in range(self._rng.randint(1, 3))]
        if self._rng.random() < 0.3:
            lines.append(f"{self.words()} {self.note()} {self.words()}")
        return lines

    def table(self, _: int) -> list[str]:
        rule = self._rng.choice(["|---|---|", "--|--", "|:-:|-:|", "|---|", "|--|--|--|"])
        rows = [f"| {self.words()} | {self.words()} |" for _ in range(self._rng.randint(0, 4))]
        return [f"| {self.words()} | {self.words()} |", rule, *rows]

    def html(self, _: int) -> list[str]:
        return self._rng.choice(
            [
                ["<div>", self.words(), "</div>"],
                ["<div", f'id="x">{self.words()}', "", "</div>"],
                [f"<h2>{self.words()}</h2>"],
                ["<h1 align='center'>", self.words(), "</h1>"],
                ["<p><h3>", self.words(), "</h3></p>"],
                [f"<h1>{self.words()}", self.words()],
                ["<pre>", "", "# no heading", "</pre>"],
                ["<table><tr><td>", "", "# a heading", "", "</td></tr></table>"],
                [f"<b>{self.words()}</b>"],
                ["<custom-tag>", f"# {self.words()}", ""],
                ["<?php", "", self.words(), "?>"],
            ]
        )

    def comment(self, _: int) -> list[str]:
        return self._rng.choice([[self.note()], ["<!--", self.words(), "", "# none", "-->"]])

    def indented(self, _: int) -> list[str]:
        indent = self._rng.choice(["    ", "\t", "     ", "  \t"])
        return ["", f"{indent}{self.words()}", f"{indent}{self.note()}"]

    def rule(self, _: int) -> list[str]:
        return [self._rng.choice(["---", "***", "_ _ _", "- - -", "[a]: <b> 'c'", "[a]:", "+"])]

    def bullets(self, depth: int) -> list[str]:
        lines: list[str] = []
        for number in range(self._rng.randint(1, 4)):
            mark = self._rng.choice(["- ", "* ", f"{number + 1}. ", f"{number}) ", "-   ", "-\t"])
            inner = [line for _ in range(self._rng.randint(1, 2)) for line in self.block(depth + 1)]
            width = len(mark.expandtabs(4)) + self._rng.choice([0, 0, 0, 0, -1, 1])
            lines += [mark + inner[0], *(" " * width * bool(line) + line for line in inner[1:])]
        return lines

    def quote(self, depth: int) -> list[str]:
        mark = self._rng.choice(["> ", ">", " > "])
        lines = [line for _ in range(self._rng.randint(1, 3)) for line in self.block(depth + 1)]
        return [line if self._rng.random() < 0.05 else mark + line for line in lines]
