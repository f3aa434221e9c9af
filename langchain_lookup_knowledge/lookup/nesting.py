"""The compiled lookup graph: how it is cancelled, and its output and checkpoints as a node of
another graph.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from langchain_lookup_knowledge.lookup.cancelling import CANCELS, LookupRun
from langchain_lookup_knowledge.types import LookupResult

READ_ONLY = ("query", "filters")
"""Keys of the input; they belong to the parent graph."""
_TASK, _CHECKPOINTER = "__pregel_task_id", "__pregel_checkpointer"
"""Keys of the configuration that LangGraph gives to the nodes of a graph."""


class LookupGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """The compiled lookup graph.

    As a node of another graph it does not return `query` and `filters`, which belong to the parent
    graph, so two lookups may run in parallel. It stores checkpoints there only if it fails or is
    interrupted, because the state of the parent graph holds each finished lookup.

    Args:
        record_cancelled: as `record` of a `LookupRun`.
        attributes: the attributes of the compiled graph that this one is made of.
    """

    def __init__(
        self, *, record_cancelled: Callable[[Any, RunnableConfig], None], **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self.record_cancelled = record_cancelled

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Run the graph; see `CompiledStateGraph.invoke`."""
        options = self._durability(config) | options
        return _without_input(super().invoke(input, config, **options), config)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        """Run the graph; see `CompiledStateGraph.ainvoke`."""
        options = self._durability(config) | options
        return _without_input(await super().ainvoke(input, config, **options), config)

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Iterator[Any]:
        """Run the graph and record it if it is cancelled; see `CompiledStateGraph.stream`."""
        run = LookupRun(input, config, self.record_cancelled)
        try:
            yield from super().stream(input, run.config, **options)
        except CANCELS as reason:
            if recording := run.cancelled(reason):
                recording.join()
            raise

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Run the graph and record it if it is cancelled; see `CompiledStateGraph.astream`."""
        run = LookupRun(input, config, self.record_cancelled)
        parts: Any = super().astream(input, run.config, **options)
        try:
            async with aclosing(parts):
                async for part in parts:
                    yield part
        except CANCELS as reason:
            recording = run.cancelled(reason)
            while recording is not None and recording.is_alive():
                await asyncio.sleep(0.01)
            raise

    def _durability(self, config: RunnableConfig | None) -> dict[str, Any]:
        around = ensure_config(config)  # set even if a node passes no config
        inherits = self.checkpointer is not False and _given(around, _CHECKPOINTER)
        return {"durability": "exit"} if inherits and _given(around, _TASK) else {}


def _given(config: RunnableConfig | None, key: str) -> Any:
    return ((config or {}).get("configurable") or {}).get(key)


def _without_input(output: Any, config: RunnableConfig | None) -> Any:
    if isinstance(output, dict) and _given(config, _TASK):
        return {key: value for key, value in output.items() if key not in READ_ONLY}
    return output


def schemas(state: type, result_key: str | None) -> tuple[Any, Any]:
    """Return the schemas of the state and the output, with the whole result under `result_key`.

    Raises:
        ValueError: the lookup itself uses this key.
    """
    if result_key is None:
        return state, LookupResult
    own = {**state.__annotations__, **LookupResult.__annotations__}
    if not isinstance(result_key, str) or not result_key.strip() or result_key in own:
        raise ValueError(
            f"result_key takes a name that the lookup itself does not use, not {result_key!r}"
        )
    keys = {result_key: LookupResult}
    under = TypedDict("LookupStateUnderKey", {**own, **keys}, total=False)  # type: ignore[misc]
    output = TypedDict("LookupResultUnderKey", keys)  # type: ignore[misc]
    return under, output
