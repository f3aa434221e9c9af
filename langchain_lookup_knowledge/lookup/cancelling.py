"""Lookups that end before their last step: cancelled in a node or between two nodes, or because
their stream is not read to the end.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from threading import Thread
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge.errors import unexpected
from langchain_lookup_knowledge.lookup.recording import is_interrupt

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

logger = logging.getLogger("langchain_lookup_knowledge")

CANCELS = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
"""What ends a lookup from outside. `GeneratorExit`: its stream is not read to the end."""
_RUN = "__lookup_run"
"""Key of the configuration for the `LookupRun`; LangGraph neither stores nor traces such keys."""


class LookupRun:
    """One run of the lookup graph: what was found so far, in case it is cancelled.

    Args:
        state: the input of the graph.
        config: the configuration of the graph.
        record: records a cancelled lookup, given its state and the configuration of a node.
    """

    def __init__(
        self,
        state: Any,
        config: "RunnableConfig | None",
        record: "Callable[[Any, RunnableConfig], None]",
    ) -> None:
        self._state = state
        self._record = record
        self._context: Context | None = None
        self._is_recorded = False
        around = config or {}
        configurable = {**(around.get("configurable") or {}), _RUN: self}
        self.config: RunnableConfig = {**around, "configurable": configurable}

    def note(self, state: Any, config: "RunnableConfig", *, is_recorded: bool = False) -> None:
        """Note the state before or after a node, and the node's configuration and context."""
        self._state, self.config, self._context = state, config, copy_context()
        self._is_recorded = is_recorded

    def cancelled(self, reason: BaseException) -> Thread | None:
        """Start to record the cancelled run, if there is something to record; return the thread
        that does it if the caller should wait for it.

        A thread does it: a closed event loop takes no work, and the garbage collector may close a
        stream while this thread writes another row.
        """
        if self._is_recorded or not isinstance(self._state, Mapping):
            return None
        context = self._context or copy_context()
        thread = Thread(target=context.run, args=(self._recorded,))
        try:
            thread.start()
        except RuntimeError:  # the process ends
            return None
        return None if isinstance(reason, GeneratorExit) else thread

    def _recorded(self) -> None:
        try:
            self._record(self._state, self.config)
        except CANCELS:  # of a host's recorder: the lookup is cancelled already
            pass
        except Exception as error:
            if is_interrupt(error):
                return
            logger.debug("the cancelled lookup was not recorded", exc_info=True)
            logger.error("the cancelled lookup was not recorded: %s", unexpected(error))


def note(state: Any, config: "RunnableConfig", *, is_recorded: bool = False) -> None:
    """Note how far the run of a node has come; see `LookupRun.note`."""
    run = (config.get("configurable") or {}).get(_RUN)
    if isinstance(run, LookupRun):
        run.note(state, config, is_recorded=is_recorded)
