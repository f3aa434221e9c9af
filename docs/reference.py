"""Write the parts of the pages that come from the code: `python docs/reference.py`.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. A test holds that all parts are
current.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

import yaml
from typing_extensions import is_typeddict

import langchain_lookup_knowledge as package
from langchain_lookup_knowledge import health, types
from langchain_lookup_knowledge.integrations.cli import _parser
from langchain_lookup_knowledge.lookup.reading import ReadResult

DOCS = Path(__file__).parent
MEANINGS: dict[str, dict[str, str]] = yaml.safe_load((DOCS / "fields.yml").read_text("utf-8"))
"""What each field means: text that has no place in a type."""
RESULTS: dict[str, Any] = {
    "LookupResult": types.LookupResult,
    "Match": types.Match,
    "MatchPassage": types.MatchPassage,
    "Matched": types.Matched,
    "Relevance": types.Relevance,
    "Hints": types.Hints,
    "HintEntry": types.HintEntry,
    "HintTerm": types.HintTerm,
    "GlossaryJoin": types.GlossaryJoin,
    "FilterChoice": types.FilterChoice,
    "L1Report": types.L1Report,
    "Invocation": types.Invocation,
    "ReadResult": ReadResult,
    "Health": health.Health,
}
OPTIONS: dict[str, Any] = {
    "KnowledgeBase.open": package.KnowledgeBase.open,
    "KnowledgeBase.from_documents": package.KnowledgeBase.from_documents,
    "KnowledgeBase.sync": package.KnowledgeBase.sync,
    "FrontmatterFields": package.FrontmatterFields,
    "LookupOptions": package.LookupOptions,
    "create_lookup_knowledge_tool": package.create_lookup_knowledge_tool,
    "create_read_knowledge_tool": package.create_read_knowledge_tool,
    "knowledge_tools": package.knowledge_tools,
    "create_lookup_knowledge_graph": package.create_lookup_knowledge_graph,
    "QdrantIndex": package.QdrantIndex,
    "QdrantIndex.from_existing": package.QdrantIndex.from_existing,
    "FastEmbedModel": package.FastEmbedModel,
    "SQLInvocationRecorder": package.SQLInvocationRecorder,
}
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"^((?:`\w+`, )*`\w+`|(?:\w+, )*\w+): ")


def json_type(annotation: Any) -> str:
    """Return a type as JSON has it, with links to the objects of this page."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is NotRequired:
        return f"{json_type(inner[0])}, may be absent"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in _flat(annotation))
    if origin in (Union, UnionType):
        return " or ".join(map(json_type, inner))
    if origin is list:
        return f"array of {json_type(inner[0])}"
    if is_typeddict(annotation):
        name = annotation.__name__
        shown = "Match" if name == "PrimaryMatch" else name
        return f"[{shown}](#{shown.lower()})"
    return _JSON.get(annotation, "object")


def _flat(literal: Any) -> Iterator[str]:
    for value in get_args(literal):
        if get_origin(value) is Literal:
            yield from _flat(value)
        else:
            yield str(value)


def results() -> Iterator[str]:
    """Yield the tables of result and record.

    Raises:
        KeyError: `fields.yml` misses a field, or names one that does not exist.
    """
    for name, kind in RESULTS.items():
        hints = get_type_hints(kind, include_extras=True)
        if hints.keys() != MEANINGS[name].keys():
            differing = sorted(hints.keys() ^ MEANINGS[name].keys())
            raise KeyError(f"docs/fields.yml, {name}: {', '.join(differing)}")
        yield from (f"### {name}", "", "| field | type | meaning |", "|---|---|---|")
        for field, meaning in MEANINGS[name].items():
            yield f"| `{field}` | {json_type(hints[field])} | {_cell(meaning)} |"
        yield ""


def described(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a docstring explains, each with its text.

    A text goes to the next name, or to the end of its paragraph.
    """
    names: list[str] = []
    text: list[str] = []
    for line in [*inspect.cleandoc(docstring).splitlines(), ""]:
        stripped = line.strip()
        found = _FIELD.match(stripped)
        is_nested = line.startswith(" " * 8)
        if (found and not is_nested) or not stripped:
            yield from ((name, " ".join(text)) for name in names)
            names, text = [], []
        if found and not is_nested:
            names = found[1].replace("`", "").split(", ")
            stripped = stripped[found.end() :]
        text.append(stripped)


def _parameters(documented: Any) -> Iterator[tuple[str, str]]:
    """Yield the parameters, each with its default as written in Python; "" if it has none."""
    if is_dataclass(documented):
        for field in fields(documented):
            yield field.name, "" if field.default is MISSING else repr(field.default)
        return
    for name, parameter in inspect.signature(documented).parameters.items():
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            has_default = parameter.default is not inspect.Parameter.empty
            yield name, repr(parameter.default) if has_default else ""


def options() -> Iterator[str]:
    """Yield the tables of arguments.

    Raises:
        KeyError: a docstring explains no such argument.
    """
    for name, documented in OPTIONS.items():
        meanings = dict(described(documented.__doc__))
        yield from (f"### {name}", "", "| argument | default | meaning |", "|---|---|---|")
        for parameter, default in _parameters(documented):
            shown = f"`{default}`" if default else "required"
            yield f"| `{parameter}` | {_cell(shown)} | {_cell(meanings[parameter])} |"
        yield ""


def commands() -> Iterator[str]:
    """Yield the arguments of each command."""
    (subparsers,) = (
        action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    helps = {action.dest: action.help for action in subparsers._choices_actions}
    for name, parser in subparsers.choices.items():
        yield from (f"### {name}", "", f"{str(helps[name])[:1].upper()}{str(helps[name])[1:]}.")
        yield from ("", "| argument | meaning |", "|---|---|")
        for action in parser._actions:
            if not isinstance(action, argparse._HelpAction):
                yield f"| {_cell(_spelled(action))} | {_cell(_help(action, parser.prog))} |"
        yield ""


def _spelled(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return f"`{value}`"
    takes = action.nargs != 0
    return ", ".join(
        f"`{name} {value}`" if takes else f"`{name}`" for name in action.option_strings
    )


def _help(action: argparse.Action, prog: str) -> str:
    values = {**vars(action), "prog": prog}
    return (action.help or "") % values


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "results": results,
    "options": options,
    "commands": commands,
}


def current(page: str) -> str:
    """Return a page with its generated parts as the code has them now."""

    def written(part: re.Match[str]) -> str:
        lines = "\n".join(PARTS[part[2]]())
        return f"{part[1]}\n{lines.rstrip()}\n\n{part[3]}"

    return _PART.sub(written, page)


def main() -> None:
    """Bring all pages up to date."""
    for path in DOCS.rglob("*.md"):
        page = path.read_text("utf-8")
        if current(page) != page:
            path.write_text(current(page), "utf-8")
            print(f"{path.relative_to(DOCS)}: written")


if __name__ == "__main__":
    main()
