"""The scope of a caller, read from the host's configuration: `configurable`, the runtime context,
or a function of the host.
"""

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from langchain_lookup_knowledge.errors import ScopeError
from langchain_lookup_knowledge.lookup.recording import current_runtime
from langchain_lookup_knowledge.scope import Scope
from langchain_lookup_knowledge.text.visible.cleaning import one_line
from langchain_lookup_knowledge.types import LookupOptions, ScopeFunction

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

logger = logging.getLogger("langchain_lookup_knowledge")


def with_scope_fields(options: LookupOptions, fields: Sequence[str]) -> LookupOptions:
    """Return options that also have the scope fields of the knowledge base."""
    further = [name for name in fields if name not in options.scope_fields]
    if not further:
        return options
    return replace(options, scope_fields=(*options.scope_fields, *further))


def caller_scope(options: LookupOptions, config: "RunnableConfig", runtime: Any = None) -> Scope:
    """Return the scope of the caller of a graph or tool.

    Args:
        options: `scope_fields` and `scope` are used.
        config: the config of the call.
        runtime: the runtime of a tool; by default, that of the graph whose node is running.

    Raises:
        ScopeError: the scope is not known, or is given twice with different values.
    """
    configurable: Mapping[str, Any] = config.get("configurable") or {}
    context = None
    if options.scope_fields:
        runtime = runtime or current_runtime()
        context = getattr(runtime, "context", None)
        if options.scope is not None:
            configurable, context = _from_function(options.scope, config, runtime), None
    return read_scope(options.scope_fields, configurable, context)


def _from_function(
    scope: ScopeFunction, config: "RunnableConfig", runtime: object
) -> Mapping[str, Any]:
    try:
        given = scope(config, runtime)
    except Exception as error:
        logger.debug("the scope function failed", exc_info=True)
        raise ScopeError(f"the scope function failed with {type(error).__name__}") from error
    if iscoroutine(given):
        given.close()
    if not isinstance(given, Mapping):
        raise ScopeError(
            "the scope function must return a mapping of fields to values, "
            f"not {type(given).__name__}"
        )
    return given


def read_scope(fields: Sequence[str], configurable: Mapping[str, Any], context: object) -> Scope:
    """Return the scope of a caller.

    The value of each field is taken from `configurable` or from the runtime context.

    Raises:
        ScopeError: a field has no value, or one that is neither text nor an integer, or two values
            that differ.
    """
    return tuple((field, _value(field, configurable, context)) for field in fields)


def _value(field: str, configurable: Mapping[str, Any], context: object) -> str:
    inside = context.get(field) if isinstance(context, Mapping) else getattr(context, field, None)
    values = {
        _checked(field, given) for given in (configurable.get(field), inside) if given is not None
    }
    if len(values) > 1:
        raise ScopeError(
            f'the caller\'s {field!r} in config["configurable"] is not the one in the runtime '
            "context: set it in one of them"
        )
    return values.pop() if values else _checked(field, None)


def _checked(field: str, given: object) -> str:
    """Return the value of a scope field as text for comparison."""
    given = given.value if isinstance(given, Enum) else given
    try:
        written = (
            str(given).strip(" ")
            if isinstance(given, str | int) and not isinstance(given, bool)
            else ""
        )
    except ValueError as error:  # an integer with thousands of digits
        raise ScopeError(f"the caller's {field!r} is too long: shorten it") from error
    value = one_line(written)
    if value != unicodedata.normalize("NFC", written):  # otherwise two callers could share a scope
        raise ScopeError(
            f"the caller's {field!r} has invisible characters or extra whitespace: remove them"
        )
    if not value:
        where = f'config={{"configurable": {{"{field}": ...}}}}'
        raise ScopeError(
            f"the caller's scope is not known: set {field!r} to a text in {where}, "
            "or in the runtime context"
        )
    return value
