"""Shared code of the knowledge tools: calls by LangChain and other frameworks, and names."""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any, SupportsIndex, cast
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, PrivateAttr

from langchain_lookup_knowledge.knowledge_base import KnowledgeBase
from langchain_lookup_knowledge.lookup.signals.tracing import traced_by
from langchain_lookup_knowledge.text.visible.cleaning import bounded, one_line

logger = logging.getLogger("langchain_lookup_knowledge")

NAME_CHARS = 40
"""Maximum length of the part of a tool's name that comes from a folder."""

Answer = tuple[str, Any]
"""The text for the model, and the artifact."""


class KnowledgeTool(StructuredTool):
    """A tool of a knowledge base.

    `func` and `coroutine` return only the text, because frameworks that call them directly expect
    this; LangChain gets the text and the artifact. The id of a tool call is passed to the record
    and the trace.
    """

    _answer: Callable[..., Answer] = PrivateAttr()
    _aanswer: Callable[..., Awaitable[Answer]] = PrivateAttr()
    _base: str = PrivateAttr()

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `StructuredTool.invoke`."""
        return super().invoke(input, _with_call_id(input, config), **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the tool; see `StructuredTool.ainvoke`."""
        return await super().ainvoke(input, _with_call_id(input, config), **kwargs)

    def _run(
        self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        with traced_by(run_manager):
            return self._answer(*args, config=config, **kwargs)

    async def _arun(
        self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        with traced_by(run_manager):
            return await self._aanswer(*args, config=config, **kwargs)

    def __repr__(self) -> str:
        return f"KnowledgeTool({self.name!r}, arguments: {', '.join(self.args)})"

    def __str__(self) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "KnowledgeTool":
        """Return a copy that shares the knowledge base."""
        return self.model_copy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Raise TypeError: a tool with an open knowledge base cannot be pickled."""
        raise TypeError(
            f"the tool {self.name!r} cannot be pickled, because its knowledge base is open: "
            "open the folder and create the tool in the other process"
        )


def _with_call_id(input: Any, config: RunnableConfig | None) -> RunnableConfig | None:
    if isinstance(input, dict) and input.get("type") == "tool_call":
        return merge_configs(config, {"metadata": {"tool_call_id": input.get("id")}})
    return config


def make_tool(
    kb: KnowledgeBase,
    answer: Callable[..., Answer],
    aanswer: Callable[..., Awaitable[Answer]],
    *,
    name: str,
    description: str,
    arguments: type[BaseModel],
    extras: dict[str, Any] | None = None,
) -> KnowledgeTool:
    """Return a tool that answers with `answer` and `aanswer`.

    Both take the fields of `arguments`, `config` and `runtime`; the last two have defaults. If a
    tool of another knowledge base in this process has the same name, a warning names the fix.
    """
    tool = KnowledgeTool(
        name=name,
        description=description,
        args_schema=arguments,
        func=_text_of(answer),
        coroutine=_text_of(aanswer),
        response_format="content_and_artifact",
        extras=extras,
    )
    tool._answer, tool._aanswer, tool._base = answer, aanswer, str(kb.data_folder)
    _warn_of_namesake(tool, kb)
    return tool


def _text_of(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the same parameters that returns only the text."""

    def text(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)[0]

    async def atext(*args: Any, **kwargs: Any) -> Any:
        return (await answer(*args, **kwargs))[0]

    chosen: Any = atext if iscoroutinefunction(answer) else text
    chosen.__annotations__ = {**answer.__annotations__, "return": str}
    chosen.__signature__ = signature(answer).replace(return_annotation=str)
    return cast(Callable[..., Any], chosen)


_named: WeakValueDictionary[str, KnowledgeTool] = WeakValueDictionary()
_warned: set[str] = set()


def _warn_of_namesake(tool: KnowledgeTool, kb: KnowledgeBase) -> None:
    """Warn once if a tool of another knowledge base has the same name, because an agent with both
    could call only one of them.
    """
    other = _named.setdefault(tool.name, tool)
    if other._base != tool._base and tool.name not in _warned:
        _warned.add(tool.name)
        logger.warning(
            "two knowledge bases have a tool named %r, the second in %s: an agent with both needs "
            "knowledge_tools([...]), or a name= for each",
            tool.name,
            one_line(kb.folder.name),
        )


def folder_slugs(folders: Sequence[Path]) -> list[str]:
    """Return a unique name for each folder: lowercase ASCII letters, digits and `_`.

    Folders with the same name get the name of their parent folder as a prefix. A folder without an
    ASCII letter is named after its position in the list, from 1.
    """
    slugs = [_slug(folder.name) for folder in folders]
    twice = {slug for slug, times in Counter(slugs).items() if slug and times > 1}
    named = [
        _slug(f"{folder.parent.name} {folder.name}") if slug in twice else slug
        for folder, slug in zip(folders, slugs, strict=True)
    ]
    found: list[str] = []
    for number, slug in enumerate(named, start=1):
        numbered = f"{slug[: NAME_CHARS - 6]}_{number}".lstrip("_")
        while numbered in named:
            numbered += "_"
        found.append(slug if slug and named.count(slug) == 1 else numbered)
    return found


def _slug(name: str) -> str:
    """Return a name in ASCII of at most `NAME_CHARS`; empty if it has no ASCII letter."""
    plain = unicodedata.normalize("NFKD", bounded(name)).encode("ascii", "ignore").decode().lower()
    slug = re.sub("[^a-z0-9]+", "_", plain).strip("_")[:NAME_CHARS].strip("_")
    return slug if re.search("[a-z]", slug) else ""
