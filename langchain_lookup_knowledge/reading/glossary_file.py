"""The glossary of a knowledge base: a Markdown table or a YAML file with words and their other
forms.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from langchain_lookup_knowledge.errors import DocumentError
from langchain_lookup_knowledge.reading.entry import file_line
from langchain_lookup_knowledge.reading.files import path_on_disk, read_text
from langchain_lookup_knowledge.reading.metadata.frontmatter import Frontmatter
from langchain_lookup_knowledge.reading.metadata.headers import (
    Header,
    Unreadable,
    lines_above,
    scalar_lists,
)
from langchain_lookup_knowledge.scope import PUBLIC
from langchain_lookup_knowledge.text.visible.cleaning import clean, one_line, visible
from langchain_lookup_knowledge.types import FrontmatterFields, Problem

MAX_TERMS = 10_000
"""Maximum words of a glossary."""
MAX_FORM_WORDS = 8
"""Maximum words of a form; a longer text is taken for a definition."""

_ROW = re.compile(r"[ \t]*\|?([^|\n]{1,500})\|([^|\n]{1,2000})(?:\|.*)?")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-{1,500}:?[ \t]*\|[-| \t:]*")
_MARKUP = re.compile(r"!?\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]|!?\[([^\[\]]*)\]\([^()]*\)|[*`]+")
_DEFINED = re.compile(r"[.;:(,–—]|\s-\s")


class GlossaryTerm(NamedTuple):
    """A word of a glossary, and its other forms."""

    word: str
    forms: tuple[str, ...]


class GlossaryFile(NamedTuple):
    """A glossary as read: its words, its problems, and the attributes that decide who may use it.

    A YAML file has no frontmatter, so everyone may use it.
    """

    terms: Sequence[GlossaryTerm] = ()
    problems: Sequence[Problem] = ()
    attributes: tuple[tuple[str, str], ...] = (PUBLIC,)


NO_GLOSSARY = GlossaryFile()


def read_glossary(folder: Path, name: str, fields: FrontmatterFields) -> GlossaryFile:
    """Return a glossary; without words and problems if `name` is empty.

    Args:
        folder: the knowledge folder.
        name: the path of the file in this folder. In a Markdown file, each row of a table gives a
            word and another form; in a YAML file, each key is a word, and its value is another form
            or a list of them.
        fields: whether drafts are skipped, and what is a header.
    """
    if not name:
        return NO_GLOSSARY
    try:
        text = clean(read_text(folder, name))
    except ValueError as error:
        return GlossaryFile((), [Problem(name, None, f"the glossary is not used: {error}")])
    problems: list[Problem] = []
    if name.casefold().endswith((".yaml", ".yml")):
        return GlossaryFile(_terms(name, _yaml_rows(name, text, problems), problems), problems)
    header, body = Frontmatter.read(name, text, [], untitled=fields.plain_headers)
    if fields.skip_drafts and (field := header.is_draft()):
        reason = f"a draft ({field}): remove that field, or set skip_drafts=False"
        return GlossaryFile((), [Problem(name, None, f"the glossary is not used: {reason}")])
    terms = _terms(name, _table_rows(body, lines_above(text, body)), problems)
    return GlossaryFile(terms, problems, header.attributes())


def _terms(
    name: str, rows: Iterable[tuple[str, list[str], int]], problems: list[Problem]
) -> list[GlossaryTerm]:
    """Return the words of the rows that can be used; the other rows are reported."""
    terms = []
    for number, (word, forms, line) in enumerate(rows):
        if number >= MAX_TERMS:
            problems.append(
                Problem(name, line, f"words after the first {MAX_TERMS} are ignored: remove some")
            )
            break
        kept = tuple(form for written in forms if (form := _form(written)) and form != word)
        if word and kept:
            terms.append(GlossaryTerm(word, kept))
        elif word:
            message = f"{word!r} has no other form of at most {MAX_FORM_WORDS} words: shorten it"
            problems.append(Problem(name, line, message))
    if not terms and not problems:
        message = "the glossary has no words: add a table with two columns, or lines `PTO: paid …`"
        problems.append(Problem(name, None, message))
    return terms


def _form(written: str) -> str:
    """Return a form without markup; a definition is cut at its first punctuation mark."""
    form = one_line(_MARKUP.sub(_shown, written))
    if len(form.split()) > MAX_FORM_WORDS:
        form = _DEFINED.split(form)[0].strip()
    return form if len(form.split()) <= MAX_FORM_WORDS else ""


def _shown(markup: re.Match[str]) -> str:
    return markup[1] or markup[2] or ""


def _table_rows(body: str, above: int) -> Iterator[tuple[str, list[str], int]]:
    """Yield the first two cells of each row below the head of a table, and its line in the file.

    `above`: the number of lines above the body.
    """
    seen = visible(body)
    is_table = False
    for number, line in enumerate(seen.text.split("\n"), 1):
        if _RULE.fullmatch(line):
            is_table = True
        elif not (found := _ROW.fullmatch(line)):
            is_table = False
        elif is_table:
            word = one_line(_MARKUP.sub(_shown, found[1]))
            yield word, [found[2]], above + file_line(number, seen.shifts)


def _yaml_rows(
    name: str, text: str, problems: list[Problem]
) -> Iterator[tuple[str, list[str], int]]:
    """Yield the keys of a mapping with their values."""
    try:
        mapping = Header("YAML", text, "", 1).parse()
    except Unreadable as unreadable:
        reason = str(unreadable).partition(";")[0]
        problems.append(
            Problem(name, unreadable.line, f"the glossary is not used: it {reason}: correct it")
        )
        return
    for key, forms, line in scalar_lists(mapping):
        if forms is None:
            problems.append(Problem(name, line, "ignored: write a word, `: ` and its other form"))
        else:
            yield one_line(key), forms, line


def glossary_name(folder: Path, path: Path) -> str:
    """Return the name of a glossary within the knowledge folder.

    Raises:
        DocumentError: there is no such file in the folder.
    """
    place = Path(os.path.normpath(folder / path.expanduser()))
    if place.is_relative_to(folder):
        name = unicodedata.normalize("NFC", place.relative_to(folder).as_posix())
        place = path_on_disk(folder, name)
    if not place.is_file() or not place.is_relative_to(folder):
        raise DocumentError(
            f"glossary: {path} is no file in {folder}: give the path of a file in this folder"
        )
    return unicodedata.normalize("NFC", place.relative_to(folder).as_posix())
