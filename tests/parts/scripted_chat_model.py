"""A chat model without a network: it says what it is told to."""

from typing import Any

from langchain_core.language_models import GenericFakeChatModel


class ScriptedChatModel(GenericFakeChatModel):
    """Says what it is told to; takes tools as every chat model does."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedChatModel":
        return self
