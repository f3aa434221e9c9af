"""The standing of an entry: its state, its version, and which entries replace it."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MAX_REFERENCES = 5
"""Maximum entries in `replaced_by` and in `replaces`."""

State = Literal["", "superseded", "deprecated", "archived", "draft"]

_STATES: dict[str, State] = {
    "superseded": "superseded",
    "replaced": "superseded",
    "deprecated": "deprecated",
    "obsolete": "deprecated",
    "retired": "deprecated",
    "archived": "archived",
    "archive": "archived",
    "draft": "draft",
}
_NAMED = ("status", "state")
_FLAGS = ("deprecated", "archived", "obsolete", "draft")
_REPLACED_BY = ("superseded_by", "replaced_by", "supersededby", "replacedby")
STATE_KEYS = frozenset(
    (*_NAMED, *_FLAGS, *_REPLACED_BY, *(key.replace("_", "-") for key in _REPLACED_BY))
)
"""Frontmatter keys that declare a state."""
_REPLACES = ("replaces", "supersedes")
OFF = frozenset({"false", "no", "off", "0"})
"""Values, in lower case, that switch a frontmatter key off."""
_WORD = re.compile(r"[\W_]*([a-z]+)(?:[\s_-]+by\b:?\s*(.+))?", re.IGNORECASE)
_LINK = re.compile(r"\[\[([^\[\]|#]+)[^\[\]]*\]\]|\[[^\[\]]*\]\(([^()#\s]+)[^()]*\)")
_VERSION_FOLDER = re.compile(
    r"(?:(?:v|ver|version|release)[-_. ]?(\d+(?:\.\d+)*)|((?!(?:19|20)\d\d\b)\d+(?:\.\d+)+))(\.x)?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?:adr[-_ ]?)?(0*\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Standing:
    """The state and version of an entry; empty if its file does not declare them.

    `replaced_by` and `replaces` name other entries as written: a path, a title or a number.
    """

    state: State = ""
    version: str = ""
    replaced_by: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, attributes: Iterable[tuple[str, str]]) -> "Standing":
        """Return the standing of an entry, given its path and its frontmatter values.

        The version is the field `version`, else the innermost folder named like `v2.1` or `2.1.x`.
        """
        values: dict[str, list[str]] = {}
        for key, value in attributes:
            values.setdefault(key.replace("-", "_"), []).append(value)
        state: State = ""
        by = [value for key in _REPLACED_BY for value in values.get(key, ())]
        for value in (value for key in _NAMED for value in values.get(key, ())):
            word = _WORD.match(value)
            if word and word[1].casefold() in _STATES and not state:
                state = _STATES[word[1].casefold()]
                by += [word[2]] if word[2] else []
        for flag in _FLAGS:
            if not state and any(value.casefold() not in OFF for value in values.get(flag, ())):
                state = _STATES[flag]
        replaces = [value for key in _REPLACES for value in values.get(key, ())]
        return cls(
            state or ("superseded" if by else ""),
            next(iter(values.get("version", ())), "") or _folder_version(name),
            _references(by),
            _references(replaces),
        )

    @property
    def names_others(self) -> bool:
        """Whether it names an entry that replaces it, or one that it replaces."""
        return bool(self.replaced_by or self.replaces)


NO_STANDING = Standing()


def state_named(word: str) -> str:
    """Return the state that a word means, such as "deprecated" for "Obsolete"; else the word, in
    lower case.
    """
    return _STATES.get(word.casefold(), word.casefold())


def _folder_version(name: str) -> str:
    found = (_VERSION_FOLDER.fullmatch(folder) for folder in reversed(name.split("/")[:-1]))
    return next(((match[1] or match[2]) + (match[3] or "") for match in found if match), "")


def _references(written: Iterable[str]) -> tuple[str, ...]:
    """Return the references in values: the targets of links, or the values themselves."""
    found: list[str] = []
    for value in written:
        links = [wiki or target for wiki, target in _LINK.findall(value)]
        found += links or [part.partition("#")[0] for part in value.split(",")]
    named = dict.fromkeys(one for text in found if (one := text.strip().strip("\"'")))
    return tuple(named)[:MAX_REFERENCES]


def refers_to(reference: str, origin: str, entry_id: str, title: str) -> bool:
    """Return whether a reference in the entry `origin` names the entry with this id and title."""
    wanted, whole = reference.casefold(), entry_id.casefold()
    relative = posixpath.normpath(posixpath.join(posixpath.dirname(origin.casefold()), wanted))
    stems = {whole, posixpath.splitext(whole)[0]}
    if stems & {relative, wanted.lstrip("/").removeprefix("./")} or wanted == title.casefold():
        return True
    stem = posixpath.basename(posixpath.splitext(whole)[0])
    if stem == wanted or stem == posixpath.splitext(wanted)[0]:
        return True
    number, own = _NUMBERED.fullmatch(reference), _NUMBERED.match(stem)
    return bool(number and own and number[1].lstrip("0") == own[1].lstrip("0") != "")


def version_parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: `(2, 1)` for `v2.1.x`; empty if it has no number."""
    found = re.search(r"\d+(?:\.\d+)*", version)
    return tuple(int(part[:18]) for part in found[0].split(".")) if found else ()
