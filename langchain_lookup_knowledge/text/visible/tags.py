"""The visible text of template tags.

The name and arguments of a tag decide its kind; the tables below list the kinds. A tag with an
unknown name is replaced by its quoted words.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

MAX_VALUES = 20
"""Maximum values of an unknown tag that are shown."""
MAX_LINK = 200
"""Maximum characters of a link's address or text."""
ADMONITIONS = frozenset(
    "admonition alert aside attention beta callout caution danger deprecated error experimental "
    "hint important info note notice preview tip warning".split()
)
"""Tags for a box with a heading: the title of the tag, else its type, else its name."""
TEXT_ARGUMENTS = ("text", "title", "label", "heading", "header", "name", "summary", "caption")
"""Arguments whose value is text for readers, in order of preference."""
DESCRIPTIONS = ("description", "alt")
"""Arguments whose value is shown after that of the first of `TEXT_ARGUMENTS`."""
PICTURES = frozenset("figure icon image img inline-image logo photo picture screenshot".split())
"""Words in the names of picture tags, which are replaced by their caption and alt text."""
_CAPTIONS = ("title", "caption", "alt", "label")
_TYPES = ("type", "kind", "level", "color", "style", "variant")
_GROUPS = frozenset("accordions cards carousel columns grid row steps tabpane tabs tabset".split())
_EMBEDS = frozenset(
    "asciinema audio codepen embed gist iframe instagram map soundcloud spotify tweet twitter "
    "video vimeo youtube".split()
)
_CONTROL = frozenset(
    "assign autoescape block break call capture case continue cycle decrement do else elif elseif "
    "elsif extends filter for form from if ifchanged import increment layout liquid load macro "
    "paginate section set spaceless switch tablerow trans unless use when with".split()
)
_INCLUDED_TEXTS = ("alt", "title", "heading", "text", "content", "message", "body", "caption")
"""Arguments of an include tag whose values the included file shows as text."""
_INCLUDES = frozenset("partial readfile render snippet transclude".split())
_SAMPLES = frozenset("code_sample codefile codenew literalinclude".split())
_STATES = frozenset(
    "added beta changed date deprecated experimental new preview removed requires since "
    "state".split()
)
VALUES = frozenset("env get param params site skew var variable vars".split())
"""Tags that insert a named value; they are replaced by the name."""
_NO_TEXT = frozenset(
    "align anchor background category class classes cols color columns copy data file format "
    "group groupid height href html icon id include items key lang language layout length level "
    "link overflow path rel size src style target theme to type url value variant width".split()
)

_INSIDE = re.compile(r"[-+~]?\s*(?P<end>/?)\s*(?P<name>[^\W\d][\w./:-]*)?(?P<rest>.*)", re.DOTALL)
_ARGUMENT = re.compile(
    r"""(?:(?P<key>[\w.-]++)\s*+[=:]\s*+)?+
    (?:"(?P<double>(?:\\.|[^"\\]|"(?!\s|[,)]|$|[\w-]++=))*+)"
      |'(?P<single>(?:\\.|[^'\\]|'(?!\s|[,)]|$|[\w-]++=))*+)'
      |`(?P<raw>[^`]*+)`
      |["'`](?P<open>.*+)
      |(?P<bare>[^\s"'`,()]*+))""",
    re.VERBOSE | re.DOTALL,
)
_MEASURE = re.compile(
    r"|[-+]?\d*\.?\d*(?:px|em|rem|vh|vw|%)?|true|false|null|none|auto", re.IGNORECASE
)
_NO_WORDS = re.compile(rf"{_MEASURE.pattern}|(?-i:[a-z_])[\w-]*+(?:\.[\w-]++)*+", re.IGNORECASE)
"""Pattern of a measure, a switch, or the name of a variable such as `page.title`."""


class Tag(NamedTuple):
    """A template tag: its name, its unnamed arguments (quoted or bare) and its named arguments."""

    name: str
    is_closing: bool
    quoted: tuple[str, ...]
    bare: tuple[str, ...]
    named: Mapping[str, str]

    @property
    def words(self) -> frozenset[str]:
        """The words of the name, in lower case, and the name itself."""
        name = self.name.casefold()
        return frozenset((name, *re.split(r"[-_./:]", name)))

    def values(self, keys: tuple[str, ...]) -> list[str]:
        return [self.named[key] for key in keys if self.named.get(key)]


@lru_cache(maxsize=256)
def parse_tag(inside: str) -> Tag:
    """Parse the text between the braces of a tag, such as `note title="Mind"` or `/note`."""
    found = _INSIDE.match(inside)
    name = (found["name"] or "") if found else ""
    is_closing = bool(found and found["end"] and name) or re.match(r"end\w|end$", name) is not None
    quoted: list[str] = []
    bare: list[str] = []
    named: dict[str, str] = {}
    for argument in _ARGUMENT.finditer(found["rest"] if found else ""):
        written = (argument[kind] for kind in ("double", "single", "raw", "open"))
        text = next((text for text in written if text is not None), None)
        value = " ".join((argument["bare"] if text is None else text).split())
        if argument["key"]:
            named.setdefault(argument["key"].casefold(), value)
        elif text is not None:
            quoted.append(value)
        elif value:
            bare.append(value)
    return Tag(name.rstrip("./:-"), is_closing, tuple(quoted), tuple(bare), named)


def is_include(tag: Tag) -> bool:
    """Return whether a tag includes another file."""
    name = tag.name.casefold()
    return not tag.is_closing and (name.startswith("include") or name in _INCLUDES)


def included(tag: Tag) -> str | None:
    """Return the path that an include tag names; None if it names none."""
    named = tag.values(("file", "path", "src", "page"))
    return next(iter((*named, *tag.quoted, *tag.bare)), None)


def shown(tag: Tag, *, is_paired: bool) -> str:
    """Return the visible text of a tag; empty if it has none.

    Args:
        tag: an opening tag, or a tag without a closing tag.
        is_paired: whether a closing tag follows; the text between them is the tag's content.
    """
    words, name = tag.words, tag.name.casefold()
    if tag.is_closing or name in _CONTROL:
        return ""
    if is_include(tag):
        texts = tag.values(_INCLUDED_TEXTS)
        return _joined(_unlike([text for text in texts if not _NO_WORDS.fullmatch(text)]))
    if words & _STATES and not is_paired:
        return _state(tag)
    if name in ADMONITIONS or (is_paired and words & ADMONITIONS):
        return heading_of(tag)
    if words & PICTURES:
        text = _joined(tag.values(_CAPTIONS))
        return text or next((quoted for quoted in reversed(tag.quoted[1:]) if quoted), "")
    if words & _EMBEDS:
        return _joined(tag.values(("title", "caption", "label", "alt")))
    if name.rpartition("/")[2] in _GROUPS:
        return _joined(tag.values(("title", "caption")))
    if name in _SAMPLES:
        return (included(tag) or "").lstrip("/")
    if name in VALUES:
        return " ".join((*tag.quoted, *tag.bare, *tag.named.values())) or tag.name
    return _text_of(tag, is_paired=is_paired)


def _text_of(tag: Tag, *, is_paired: bool) -> str:
    first = tag.values(TEXT_ARGUMENTS)[:1]
    before = [f"{text} …" for text in tag.values(("prepend",))]
    if text := _joined([*first, *tag.values(DESCRIPTIONS), *before]):
        address = next(iter(tag.values(("url", "href", "link", "to"))), "")
        is_link = not is_paired and first and 0 < len(address) <= MAX_LINK
        return f"[{text}]({address})" if is_link and " " not in address else text
    quoted = [word for word in tag.quoted[:MAX_VALUES] if not _MEASURE.fullmatch(word)]
    others = [
        value
        for key, value in [*tag.named.items()][:MAX_VALUES]
        if key not in _NO_TEXT and not _MEASURE.fullmatch(value) and not value.startswith("/")
    ]
    values = quoted if is_paired else [*quoted, *others]
    return " ".join(_unlike(values))


def _unlike(values: list[str]) -> list[str]:
    """Return the values that no later one contains."""
    return [
        value
        for place, value in enumerate(values)
        if not any(value.casefold() in later.casefold() for later in values[place + 1 :])
    ]


def _state(tag: Tag) -> str:
    """Return the text of a version or state tag, such as `Feature state: v1.24 stable`."""
    values = " ".join((*tag.quoted, *tag.named.values(), *tag.bare))
    label = re.sub(r"[-_./]+", " ", tag.name).capitalize()
    if values:
        return f"{label}: {values}"
    return label if tag.name.casefold() in ADMONITIONS else ""


def heading_of(tag: Tag) -> str:
    """Return the heading of a box, such as `Warning:`."""
    given = [word for word in (*tag.quoted, *tag.bare) if word]
    types = [word for word in (*given, *tag.values(_TYPES)) if word.casefold() in ADMONITIONS]
    titles = [*tag.values(("title", "heading", "header", "label", "summary"))]
    titles += [word for word in tag.quoted if word and word not in types]
    named = next((word for word in tag.name.split("/") if word.casefold() in ADMONITIONS), "note")
    general = named.casefold() in ("admonition", "alert", "aside", "callout", "notice")
    text = next(iter((*titles, *types)), "note" if general else named)
    return ended(text if titles else text.capitalize())


def ended(text: str) -> str:
    """Return a heading with a colon at its end, unless it ends with punctuation."""
    return text if not text or text[-1] in ".:;!?。：！？" else f"{text}:"


def _joined(texts: list[str]) -> str:
    unlike = list(dict.fromkeys(texts))
    return " ".join([*(t if t[-1] in ".:;!?" else f"{t}." for t in unlike[:-1]), *unlike[-1:]])
